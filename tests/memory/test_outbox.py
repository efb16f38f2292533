"""What must reach a run is claimed by one relay at a time, comes back when it did not arrive, and is never skipped."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from embedded import Postgres
from memory.database import Database, change
from memory.outbox import Claimed, Outbox, enqueue
from perdure.messages import Principal
from tests.memory.scene import rolled_back

SECONDS = 60.0


@pytest.fixture
async def outbox(relay_database: Database) -> AsyncIterator[Outbox]:
    """An outbox in which nothing else waits: it is one for all tenants."""
    await emptied(relay_database)
    yield Outbox(relay_database)
    await emptied(relay_database)


async def emptied(relay_database: Database) -> None:
    async with relay_database.across_tenants() as connection:
        await change(connection, "UPDATE perdure.outbox SET delivered_at = now() WHERE delivered_at IS NULL")


async def drain(box: Outbox) -> list[Claimed]:
    taken: list[Claimed] = []
    while rows := await box.claim(500, SECONDS):
        for row in rows:
            await box.delivered(row)
        taken += rows
    return taken


async def written(database: Database, principal: Principal, *names: str) -> None:
    async with database.transaction(principal) as connection:
        for name in names:
            await enqueue(connection, principal.tenant, name, "message", {"run_id": "r1", "event_id": name})


async def test_a_row_is_claimed_with_its_ids_and_delivered_once(
    database: Database, principal: Principal, outbox: Outbox
) -> None:
    await written(database, principal, "e1")
    assert (await outbox.lag())[0] == 1
    [row] = await outbox.claim(10, SECONDS)
    assert (row.tenant, row.event_id, row.topic, row.attempts) == (principal.tenant, "e1", "message", 1)
    assert row.reference == {"run_id": "r1", "event_id": "e1"}
    await outbox.delivered(row)
    assert await outbox.claim(10, SECONDS) == []


async def test_the_same_row_twice_is_one_and_a_rollback_none(
    database: Database, principal: Principal, outbox: Outbox
) -> None:
    await written(database, principal, "e1")
    await written(database, principal, "e1")
    await rolled_back(database, principal, lambda c: enqueue(c, principal.tenant, "e2", "message", {}))
    assert [row.event_id for row in await outbox.claim(10, SECONDS)] == ["e1"]


async def test_two_claimers_never_have_the_same_row(
    database: Database, principal: Principal, postgres: Postgres, outbox: Outbox
) -> None:
    names = [f"e{n:03}" for n in range(60)]
    await written(database, principal, *names)
    others = Database(postgres.url("perdure_relay"), pool_size=4)

    async def claimer() -> list[str]:
        found: list[str] = []
        while rows := await Outbox(others).claim(3, SECONDS):
            found += [row.event_id for row in rows]
        return found

    shares = await asyncio.gather(*(claimer() for _ in range(4)))
    await others.close()
    assert sorted(name for share in shares for name in share) == names


async def test_a_row_committed_after_a_later_one_is_delivered_too(
    database: Database, principal: Principal, outbox: Outbox
) -> None:
    async with database.transaction(principal) as connection:
        await enqueue(connection, principal.tenant, "inserted first", "message", {})
        await written(database, principal, "committed first")
        assert [row.event_id for row in await drain(outbox)] == ["committed first"]
    assert [row.event_id for row in await drain(outbox)] == ["inserted first"]


async def test_a_claim_that_lapses_comes_back(database: Database, principal: Principal, outbox: Outbox) -> None:
    await written(database, principal, "e1")
    [slept] = await outbox.claim(10, 0.05)
    assert await outbox.claim(10, SECONDS) == []
    await asyncio.sleep(0.08)
    [again] = await outbox.claim(10, SECONDS)
    assert (again.event_id, again.attempts) == ("e1", 2)
    await outbox.delivered(slept)  # the first claimer was only slow
    assert (await outbox.lag())[0] == 0


async def test_what_did_not_arrive_is_due_later(database: Database, principal: Principal, outbox: Outbox) -> None:
    await written(database, principal, "e1", "e2")
    rows = await outbox.claim(10, SECONDS)
    await outbox.retry_later(rows[0], 0.05)
    await outbox.retry_later(rows[1], SECONDS)
    assert await outbox.claim(10, SECONDS) == []
    await asyncio.sleep(0.08)
    assert [row.event_id for row in await outbox.claim(10, SECONDS)] == [rows[0].event_id]


async def test_the_oldest_are_claimed_first_up_to_the_limit(
    database: Database, principal: Principal, outbox: Outbox
) -> None:
    for name in ("a", "b", "c", "d"):
        await written(database, principal, name)
    assert [row.event_id for row in await outbox.claim(3, SECONDS)] == ["a", "b", "c"]
    assert [row.event_id for row in await outbox.claim(3, SECONDS)] == ["d"]


async def test_whoever_listens_is_woken_by_a_commit(database: Database, principal: Principal, outbox: Outbox) -> None:
    calls = outbox.listen()
    await asyncio.wait_for(anext(calls), 5)
    waking = asyncio.ensure_future(anext(calls))
    async with database.transaction(principal) as connection:
        await enqueue(connection, principal.tenant, "e1", "message", {})
        await asyncio.sleep(0.05)
        assert not waking.done()
    await asyncio.wait_for(waking, 5)
    assert [row.event_id for row in await outbox.claim(10, SECONDS)] == ["e1"]
    await calls.aclose()  # type: ignore[attr-defined]


async def test_the_relay_sees_all_tenants_and_a_tenant_its_own(
    database: Database, principal: Principal, outbox: Outbox
) -> None:
    other = principal.model_copy(update={"tenant": f"{principal.tenant}x"})
    await written(database, principal, "e1")
    await written(database, other, "e1")
    async with database.transaction(principal) as connection:
        assert await change(connection, "UPDATE perdure.outbox SET attempts = 7") == 1
    assert sorted(row.attempts for row in await outbox.claim(10, SECONDS)) == [1, 8]
