"""An installed version of a route never changes, and who is no developer changes no more than the rules."""

import asyncio
from typing import Any

import pytest

from memory import journal
from memory.database import Database
from memory.keys import Keys
from memory.routes import Routes
from perdure.errors import NotFound, PolicyDenied, VersionConflict
from perdure.ids import digest
from perdure.messages import Principal
from perdure.names import Event, Stream
from perdure.route import Route
from tests.memory.scene import ROUTE


@pytest.fixture
def developer(principal: Principal) -> Principal:
    return principal.model_copy(update={"actor": "dev", "roles": ("developer",)})


@pytest.fixture
def officer(principal: Principal) -> Principal:
    return principal.model_copy(update={"actor": "officer", "roles": ("security",)})


def changed(**fields: Any) -> Route:
    return Route.model_validate(ROUTE.model_dump(mode="json") | fields)


async def install(routes: Routes, who: Principal, route: Route) -> tuple[int, bool]:
    return await routes.install(who, route, digest(route.model_dump(mode="json")))


OTHER_INPUT = changed(input={"order_id": {"type": "identifier"}, "note": {"type": "text"}})
OTHER_OWNER = changed(handoff={"owner": "boss"})


async def test_each_change_is_a_version_and_the_old_ones_stay(
    routes: Routes, developer: Principal, principal: Principal
) -> None:
    assert [await install(routes, developer, r) for r in (ROUTE, OTHER_INPUT)] == [(1, True), (2, True)]
    first, newest = await routes.get(principal, "refund", 1), await routes.get(principal, "refund")
    assert (first.route, first.version, first.installed_by) == (ROUTE, 1, "dev")
    assert (newest.route, newest.version) == (OTHER_INPUT, 2)
    assert [stored.version for stored in await routes.list(principal)] == [2]


async def test_the_newest_again_is_no_version_and_an_older_one_is(routes: Routes, developer: Principal) -> None:
    answers = [await install(routes, developer, r) for r in (ROUTE, ROUTE, OTHER_INPUT, ROUTE, ROUTE)]
    assert answers == [(1, True), (1, False), (2, True), (3, True), (3, False)]


async def test_of_the_same_route_at_once_one_is_installed(
    routes: Routes, developer: Principal, database: Database, keys: Keys
) -> None:
    answers = await asyncio.gather(*(install(routes, developer, ROUTE) for _ in range(8)))
    assert sorted(answers) == [(1, False)] * 7 + [(1, True)]
    async with database.transaction(developer) as connection:
        stream = await journal.read(connection, keys, developer.tenant, Stream.ROUTE, "refund")
    assert [(e.type, e.payload["version"]) for e in stream] == [(Event.ROUTE_INSTALLED, 1)]


async def test_two_different_ones_at_once_are_two_versions(routes: Routes, developer: Principal) -> None:
    different = [changed(handoff={"owner": f"o{n}"}) for n in range(5)]
    answers = await asyncio.gather(*(install(routes, developer, r) for r in different), return_exceptions=True)
    assert [a for a in answers if isinstance(a, BaseException) and not isinstance(a, VersionConflict)] == []
    assert sorted(a for a in answers if isinstance(a, tuple)) == [(n, True) for n in range(1, 6)]


async def test_an_unknown_route_version_or_tenant_is_not_there(
    routes: Routes, developer: Principal, principal: Principal
) -> None:
    await install(routes, developer, ROUTE)
    foreign = principal.model_copy(update={"tenant": f"{principal.tenant}x"})
    for who, name, version in ((principal, "other", None), (principal, "refund", 2), (foreign, "refund", None)):
        with pytest.raises(NotFound):
            await routes.get(who, name, version)
    assert await routes.list(foreign) == []


@pytest.mark.parametrize("roles", [(), ("app", "approver", "operator", "analyst"), ("security",), ("Developer",)])
async def test_nobody_but_a_developer_installs_a_new_route(
    routes: Routes, principal: Principal, roles: tuple[str, ...]
) -> None:
    with pytest.raises(PolicyDenied):
        await install(routes, principal.model_copy(update={"roles": roles}), ROUTE)
    assert await routes.list(principal) == []


def ruled(route: Route) -> Route:
    """The route with other compliance rules."""
    return Route.model_validate(
        route.model_dump(mode="json") | {"compliance": {"data_classes": {"amount": "personal"}}}
    )


async def test_a_security_officer_changes_the_rules_and_nothing_else(
    routes: Routes, developer: Principal, officer: Principal, principal: Principal
) -> None:
    await install(routes, developer, ROUTE)
    assert await install(routes, officer, ruled(ROUTE)) == (2, True)
    assert (await routes.get(principal, "refund")).installed_by == "officer"
    for other in (OTHER_INPUT, OTHER_OWNER, ruled(OTHER_INPUT)):
        with pytest.raises(PolicyDenied):
            await install(routes, officer, other)
    assert (await routes.get(principal, "refund")).version == 2
    with pytest.raises(PolicyDenied):
        await install(routes, principal.model_copy(update={"roles": ("app",)}), ROUTE)
