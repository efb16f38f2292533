"""What a change undoes: reviews that nobody decided yet, and grants that nobody used."""

from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from memory import journal
from memory.database import many
from memory.keys import Keys, Subject
from perdure.messages import Principal
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
