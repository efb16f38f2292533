"""Routes over HTTP: checked and installed whole, or refused with every problem."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from gateway.authentication import RouteAuthor, RouteReader
from gateway.idempotency import Key
from gateway.problems import RESPONSES
from gateway.services import Use
from memory.routes import StoredRoute
from perdure.api import RouteDetail, RouteInstalled, RouteList, RouteSummary
from perdure.errors import RouteInvalid
from perdure.ids import digest
from perdure.route import RouteName
from perdure.routecheck import checked

BODY = "route"
_EXAMPLE = """\
route: greet
input:
  name: {type: text, personal: true}
start: done
steps:
  done: {kind: end, outcome: greeted}
handoff: {owner: operator}
"""
_TEXT: dict[str, Any] = {"schema": {"type": "string"}, "example": _EXAMPLE}
_TAKES = {"requestBody": {"required": True, "content": {"application/yaml": _TEXT, "application/json": {"schema": {}}}}}
NameInPath = Annotated[RouteName, Path(description="The route's name")]

router = APIRouter(prefix="/v1/routes", tags=["routes"], responses=RESPONSES)


@router.post("", status_code=201, openapi_extra=_TAKES, responses={200: {"model": RouteInstalled}})
async def install(request: Request, response: Response, key: Key, caller: RouteAuthor, services: Use) -> RouteInstalled:
    """Check a route (YAML or JSON) and install it as the next version; the same route again is the same version (200).

    Roles: developer; security where ``compliance`` alone differs. ``RouteInvalid`` lists all ``problems``;
    ``UnmaskedText`` refuses a route whose texts hold personal data.
    """
    body = await request.body()
    route = checked(_text(body), services.tools, BODY)
    document = route.model_dump(mode="json")
    await services.masker.check("the route", document)
    await services.requests.claim(caller.principal, key, "routes.install", body)
    fingerprint = digest(document)
    version, created = await services.routes.install(caller.principal, route, fingerprint)
    response.status_code = 201 if created else 200
    return RouteInstalled(route=route.route, version=version, digest=fingerprint, created=created)


@router.get("")
async def list_routes(caller: RouteReader, services: Use) -> RouteList:
    """The newest version of each route."""
    return RouteList(items=tuple(_summary(stored) for stored in await services.routes.list(caller.principal)))


@router.get("/{route}")
async def newest(route: NameInPath, caller: RouteReader, services: Use) -> RouteDetail:
    """The newest version of a route."""
    return _detail(await services.routes.get(caller.principal, route, None))


@router.get("/{route}/{version}")
async def one(
    route: NameInPath, version: Annotated[int, Path(ge=1, le=2_147_483_647)], caller: RouteReader, services: Use
) -> RouteDetail:
    """One version of a route."""
    return _detail(await services.routes.get(caller.principal, route, version))


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise RouteInvalid("a route is UTF-8 text") from None


def _summary(stored: StoredRoute) -> RouteSummary:
    return RouteSummary(
        route=stored.route.route,
        version=stored.version,
        digest=stored.digest,
        summary=stored.route.summary,
        installed_by=stored.installed_by,
        installed_at=stored.installed_at,
    )


def _detail(stored: StoredRoute) -> RouteDetail:
    return RouteDetail(**_summary(stored).model_dump(), document=stored.route)
