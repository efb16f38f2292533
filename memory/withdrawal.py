"""What a change undoes: reviews that nobody decided yet, and grants that nobody used."""

from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from memory import journal
from memory.database import change, many
from memory.keys import Keys, Subject
from perdure.messages import EffectResult, Principal
from perdure.names import Event, Stream


class Owner(Protocol):
    """The run whose reviews and grants they are."""

    @property
    def run_id(self) -> str: ...

    @property
    def route(self) -> str: ...

    @property
    def sealed_for(self) -> Subject: ...


async def of_fields(
    connection: AsyncConnection, keys: Keys, principal: Principal, run: Owner, fields: tuple[str, ...], because: str
) -> None:
    """Withdraw what rests on one of the fields."""
    if fields:
        await _withdraw(connection, keys, principal, run, "rests_on && CAST(:what AS text[])", list(fields), because)


async def of_intent(
    connection: AsyncConnection, keys: Keys, principal: Principal, run: Owner, intent_id: str, because: str
) -> None:
    """Withdraw everything that stands open for one intent, whatever its version."""
    await _withdraw(connection, keys, principal, run, "intent_id = CAST(:what AS text)", intent_id, because)


async def of_run(connection: AsyncConnection, keys: Keys, principal: Principal, run: Owner, because: str) -> None:
    """Withdraw everything that stands open in a run."""
    await _withdraw(connection, keys, principal, run, "CAST(:what AS text) IS NULL", None, because)


async def of_effects(
    connection: AsyncConnection, keys: Keys, principal: Principal, run: Owner, because: str
) -> list[str]:
    """Call effects that were under way unknown, for whoever held them is gone; returns their keys."""
    scope = {"tenant": principal.tenant, "run_id": run.run_id}
    under_way = [row["key"] for row in await many(connection, _UNDER_WAY, **scope)]
    result = EffectResult(outcome="unknown", reason=because)
    for key in under_way:
        plain = result.model_dump_json().encode()
        sealed = await keys.seal(connection, principal.tenant, run.sealed_for, plain, f"result|{key}".encode())
        await change(connection, _UNKNOWN, tenant=principal.tenant, key=key, result=sealed)
        await journal.append(
            connection, keys, principal, Stream.EFFECT, key, Event.EFFECT_SETTLED,
            {"outcome": "unknown", "because": because}, run.sealed_for, process=run.route,
        )  # fmt: skip
    return under_way


async def _withdraw(
    connection: AsyncConnection,
    keys: Keys,
    principal: Principal,
    run: Owner,
    condition: str,
    what: object,
    because: str,
) -> None:
    """Reviews first: a decision under way holds the review's row, and its grant is there when it lets go."""
    scope = {"tenant": principal.tenant, "run_id": run.run_id, "what": what, "because": because}
    reviews = await many(connection, f"{_CANCEL} AND {condition} RETURNING review_id AS id", **scope)
    grants = await many(connection, f"{_REVOKE} AND {condition} RETURNING review_id AS id", **scope)
    for rows, event in ((reviews, Event.REVIEW_CANCELLED), (grants, Event.GRANT_REVOKED)):
        for row in rows:
            await journal.append(
                connection, keys, principal, Stream.REVIEW, row["id"], event, {"because": because}, run.sealed_for,
                process=run.route,
            )  # fmt: skip


_CANCEL = (
    "UPDATE perdure.reviews SET status = 'cancelled', cancelled_because = :because"
    " WHERE tenant = :tenant AND run_id = :run_id AND status = 'pending'"
)
_REVOKE = (
    "UPDATE perdure.grants SET revoked_at = clock_timestamp(), revoked_because = :because"
    " WHERE tenant = :tenant AND run_id = :run_id AND revoked_at IS NULL AND uses_left > 0"
)
_UNDER_WAY = (
    "SELECT key FROM perdure.effects WHERE tenant = :tenant AND run_id = :run_id AND status = 'reserved' FOR UPDATE"
)
_UNKNOWN = (
    "UPDATE perdure.effects SET status = 'unknown', result = :result, fence = fence + 1, settled_at = clock_timestamp()"
    " WHERE tenant = :tenant AND key = :key"
)
