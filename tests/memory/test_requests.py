"""An idempotency key belongs to the first request that it came with."""

import asyncio

import pytest

from memory.database import Database
from memory.requests import remember
from perdure.errors import IdempotencyMismatch
from perdure.messages import Principal
from tests.memory.scene import rolled_back


async def asked(database: Database, principal: Principal, operation: str = "start", digest: str = "d1") -> None:
    async with database.transaction(principal) as connection:
        await remember(connection, principal.tenant, "k1", operation, digest)


async def test_the_same_request_again_is_the_same_request(database: Database, principal: Principal) -> None:
    await asked(database, principal)
    await asked(database, principal)


@pytest.mark.parametrize("other", [{"operation": "decide"}, {"digest": "d2"}])
async def test_another_request_with_the_key_is_refused(
    database: Database, principal: Principal, other: dict[str, str]
) -> None:
    await asked(database, principal)
    for _ in range(2):
        with pytest.raises(IdempotencyMismatch):
            await asked(database, principal, **other)
    await asked(database, principal)


async def test_keys_of_tenants_have_nothing_to_do_with_each_other(database: Database, principal: Principal) -> None:
    await asked(database, principal)
    await asked(database, principal.model_copy(update={"tenant": f"{principal.tenant}-b"}), "decide")


async def test_of_two_requests_at_once_with_one_key_one_is_refused(database: Database, principal: Principal) -> None:
    answers = await asyncio.gather(
        *(asked(database, principal, digest=f"d{n % 2}") for n in range(10)), return_exceptions=True
    )
    assert len([a for a in answers if isinstance(a, IdempotencyMismatch)]) == 5
    assert [a for a in answers if a is not None and not isinstance(a, IdempotencyMismatch)] == []


async def test_a_request_that_is_rolled_back_keeps_no_key(database: Database, principal: Principal) -> None:
    await rolled_back(database, principal, lambda c: remember(c, principal.tenant, "k1", "start", "d1"))
    await asked(database, principal, "decide")
