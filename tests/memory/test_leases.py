"""A lease has one holder at a time, and who lost it commits nothing."""

import asyncio

import pytest

from memory import journal, leases
from memory.database import Database, change, one
from memory.keys import Keys
from memory.leases import Leases
from perdure.errors import LeaseHeld, LeaseLost
from perdure.messages import Principal
from perdure.names import Event, Stream

MINUTE, MOMENT = 60.0, 0.02


@pytest.fixture
def held(database: Database, keys: Keys) -> Leases:
    return Leases(database, keys)


async def test_one_holder_at_a_time(held: Leases, principal: Principal) -> None:
    lease = await held.acquire(principal, "export", "read", "a", MINUTE)
    assert (lease.fence, lease.holder) == (1, "a")
    with pytest.raises(LeaseHeld):
        await held.acquire(principal, "export", "read", "b", MINUTE)
    await held.release(principal, lease)
    assert (await held.acquire(principal, "export", "read", "b", MINUTE)).fence == 2


async def test_of_many_at_once_one_has_it(held: Leases, principal: Principal) -> None:
    asked = [held.acquire(principal, "export", "read", f"h{n}", MINUTE) for n in range(20)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    refused = [a for a in answers if isinstance(a, LeaseHeld)]
    assert len(refused) == 19


async def test_one_asked_again_is_renewed_and_for_another_purpose_is_another(
    held: Leases, principal: Principal
) -> None:
    first = await held.acquire(principal, "export", "read", "a", MINUTE)
    again = await held.acquire(principal, "export", "read", "a", MINUTE)
    assert again.fence == first.fence and again.expires_at > first.expires_at
    other = await held.acquire(principal, "export", "write", "a", MINUTE)
    assert (other.fence, other.purpose) == (2, "write")
    with pytest.raises(LeaseLost):
        await held.renew(principal, first, MINUTE)


async def test_the_fence_grows_for_ever(held: Leases, principal: Principal) -> None:
    fences = []
    for holder in "abca":
        lease = await held.acquire(principal, "export", "read", holder, MOMENT)
        fences.append(lease.fence)
        await asyncio.sleep(2 * MOMENT)
    mine = await held.acquire(principal, "export", "read", "a", MINUTE)
    assert [*fences, mine.fence] == [1, 2, 3, 4, 5]


async def test_a_lapsed_lease_is_not_renewed_nor_given_back(held: Leases, principal: Principal) -> None:
    lease = await held.acquire(principal, "export", "read", "a", MOMENT)
    await asyncio.sleep(2 * MOMENT)
    with pytest.raises(LeaseLost):
        await held.renew(principal, lease, MINUTE)
    other = await held.acquire(principal, "export", "read", "b", MINUTE)
    await held.release(principal, lease)
    assert (await held.renew(principal, other, MINUTE)).expires_at > other.expires_at


async def test_a_holder_that_slept_is_refused_inside_its_commit(
    held: Leases, principal: Principal, database: Database
) -> None:
    async def commit(fence: int, key: str) -> None:
        async with database.transaction(principal) as connection:
            await change(
                connection,
                "INSERT INTO perdure.requests (tenant, key, operation, digest) VALUES (:tenant, :key, 'write', 'd')",
                tenant=principal.tenant,
                key=key,
            )
            await leases.check(connection, principal.tenant, "export", fence)

    slept = await held.acquire(principal, "export", "write", "a", MOMENT)
    await asyncio.sleep(2 * MOMENT)
    with pytest.raises(LeaseLost):
        await commit(slept.fence, "lapsed")
    taken = await held.acquire(principal, "export", "write", "b", MINUTE)
    with pytest.raises(LeaseLost):
        await commit(slept.fence, "slept")
    await commit(taken.fence, "held")
    async with database.transaction(principal) as connection:
        row = await one(connection, "SELECT array_agg(key) AS written FROM perdure.requests")
    assert row is not None and row["written"] == ["held"]


async def test_a_commit_under_way_keeps_the_lease_from_passing_on(
    held: Leases, principal: Principal, database: Database
) -> None:
    lease = await held.acquire(principal, "export", "write", "a", 0.2)
    async with database.transaction(principal) as connection:
        await leases.check(connection, principal.tenant, "export", lease.fence)
        other = asyncio.create_task(held.acquire(principal, "export", "write", "b", MINUTE))
        await asyncio.sleep(0.3)
        assert not other.done()
    assert (await other).fence == 2


async def test_leases_of_tenants_have_nothing_to_do_with_each_other(held: Leases, principal: Principal) -> None:
    other = principal.model_copy(update={"tenant": f"{principal.tenant}-b"})
    for owner in (principal, other):
        assert (await held.acquire(owner, "export", "read", "a", MINUTE)).fence == 1


async def test_holders_are_written_down(held: Leases, principal: Principal, database: Database, keys: Keys) -> None:
    lease = await held.acquire(principal, "export", "read", "a", MINUTE)
    await held.release(principal, lease)
    async with database.transaction(principal) as connection:
        stream = await journal.read(connection, keys, principal.tenant, Stream.LEASE, "export")
    assert [event.type for event in stream] == [Event.LEASE_ACQUIRED, Event.LEASE_RELEASED]
    assert stream[0].payload == {"purpose": "read", "holder": "a", "fence": 1}
