"""Installed routes: versions that never change, and who may install which."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from memory import journal
from memory.database import Database, change, many, one
from memory.keys import Keys
from perdure.errors import NotFound, PolicyDenied
from perdure.messages import Principal
from perdure.names import Event, Stream
from perdure.route import Route

DEVELOPER = "developer"
SECURITY = "security"


@dataclass(frozen=True)
class StoredRoute:
    """One version of a route."""

    route: Route
    version: int
    digest: str
    installed_by: str
    installed_at: datetime


class Routes:
    """Routes of a tenant."""

    def __init__(self, database: Database, keys: Keys) -> None:
        self._database = database
        self._keys = keys

    async def install(self, principal: Principal, route: Route, digest: str) -> tuple[int, bool]:
        """Store a checked route; returns its version and whether it is new. The newest again is not stored twice.

        Raises ``PolicyDenied`` when a security officer changes more than the compliance rules.
        """
        async with self._database.transaction(principal) as connection:
            await change(
                connection, "SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))",
                name=f"route|{principal.tenant}|{route.route}",
            )  # fmt: skip
            newest = await _find(connection, principal.tenant, route.route, None)
            if newest is not None and newest.digest == digest:
                return newest.version, False
            _may(principal, route, newest)
            version = 1 if newest is None else newest.version + 1
            await change(
                connection, _ADD, tenant=principal.tenant, name=route.route, version=version, digest=digest,
                document=route.model_dump_json(), by=principal.actor,
            )  # fmt: skip
            await journal.append(
                connection, self._keys, principal, Stream.ROUTE, route.route, Event.ROUTE_INSTALLED,
                {"version": version, "digest": digest}, ("route", route.route), process=route.route,
            )  # fmt: skip
        return version, True

    async def get(self, principal: Principal, name: str, version: int | None = None) -> StoredRoute:
        """One version, or the newest. Raises ``NotFound``."""
        async with self._database.transaction(principal) as connection:
            found = await _find(connection, principal.tenant, name, version)
        if found is None:
            raise NotFound("there is no such route or version", route=name, version=version)
        return found

    async def list(self, principal: Principal) -> list[StoredRoute]:
        """The newest version of each route, by name."""
        async with self._database.transaction(principal) as connection:
            return [_stored(row) for row in await many(connection, _LIST, tenant=principal.tenant)]


def _may(principal: Principal, route: Route, newest: StoredRoute | None) -> None:
    if DEVELOPER in principal.roles:
        return
    if SECURITY in principal.roles and newest is not None and _without_rules(route) == _without_rules(newest.route):
        return
    raise PolicyDenied("only a developer may install a route; a security officer may change its compliance rules alone")


def _without_rules(route: Route) -> dict[str, Any]:
    return route.model_dump(mode="json", exclude={"compliance"})


async def _find(connection: AsyncConnection, tenant: str, name: str, version: int | None) -> StoredRoute | None:
    row = await one(connection, _FIND, tenant=tenant, name=name, version=version)
    return None if row is None else _stored(dict(row))


def _stored(row: dict[str, Any]) -> StoredRoute:
    document = Route.model_validate(row["document"])
    return StoredRoute(document, row["version"], row["digest"], row["installed_by"], row["installed_at"])


_COLUMNS = "version, digest, document, installed_by, installed_at"
_ADD = (
    "INSERT INTO perdure.routes (tenant, name, version, digest, document, installed_by)"
    " VALUES (:tenant, :name, :version, :digest, CAST(:document AS jsonb), :by)"
)
_FIND = (
    f"SELECT {_COLUMNS} FROM perdure.routes WHERE tenant = :tenant AND name = :name"
    " AND (CAST(:version AS integer) IS NULL OR version = :version) ORDER BY version DESC LIMIT 1"
)
_LIST = f"SELECT DISTINCT ON (name) {_COLUMNS} FROM perdure.routes WHERE tenant = :tenant ORDER BY name, version DESC"
