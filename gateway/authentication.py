"""Who calls and whether he may: a bearer token on every request but health."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from gateway.services import Use
from perdure.errors import NotAuthenticated, NotAuthorized
from perdure.tokens import Caller


class Role(StrEnum):
    """Roles of the installation; a review's approvers may be any role beside these."""

    DEVELOPER = "developer"
    APP = "app"
    APPROVER = "approver"
    OPERATOR = "operator"
    SECURITY = "security"
    ANALYST = "analyst"
    INSPECTOR = "inspector"
    """Opens payloads for a UI that shows its token in the address, and may do nothing else."""


_bearer = HTTPBearer(auto_error=False, bearerFormat="JWT", description="JWT with tenant, sub and roles")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


async def authenticated(services: Use, credentials: Credentials) -> Caller:
    """The caller. Raises ``NotAuthenticated``."""
    if credentials is None:
        raise NotAuthenticated("a bearer token is needed")
    caller = await services.tokens.read(credentials.credentials)
    if set(caller.principal.roles) == {Role.INSPECTOR}:
        raise NotAuthorized("an inspector opens payloads for a UI and does nothing else")
    return caller


Anyone = Annotated[Caller, Depends(authenticated)]
"""Any caller with a valid token."""


def with_role(*roles: Role) -> Callable[[Caller], Awaitable[Caller]]:
    """A dependency: the caller has one of the roles, or ``NotAuthorized``."""

    async def checked(caller: Anyone) -> Caller:
        refuse_without(caller, *roles)
        return caller

    return checked


def refuse_without(caller: Caller, *roles: Role) -> None:
    """Raises ``NotAuthorized`` unless the caller has one of the roles."""
    if not set(roles) & set(caller.principal.roles):
        raise NotAuthorized(f"this needs the role {' or '.join(roles)}", roles=[str(role) for role in roles])


RouteAuthor = Annotated[Caller, Depends(with_role(Role.DEVELOPER, Role.SECURITY))]
RouteReader = Annotated[
    Caller, Depends(with_role(Role.DEVELOPER, Role.SECURITY, Role.OPERATOR, Role.APP, Role.ANALYST))
]
App = Annotated[Caller, Depends(with_role(Role.APP))]
Operator = Annotated[Caller, Depends(with_role(Role.OPERATOR))]
AppOrOperator = Annotated[Caller, Depends(with_role(Role.APP, Role.OPERATOR))]
RunReader = Annotated[Caller, Depends(with_role(Role.APP, Role.OPERATOR, Role.DEVELOPER, Role.SECURITY, Role.ANALYST))]
PayloadReader = (Role.OPERATOR, Role.SECURITY, Role.DEVELOPER)
