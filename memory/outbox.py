"""The outbox: what must reach a run, written with the change, claimed row by row and never by a high-water mark."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any, Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from memory.database import Database, change, many, one

Topic = Literal["decided", "message"]
CHANNEL = "perdure_outbox"


@dataclass(frozen=True)
class Claimed:
    """One row to deliver; ``reference`` holds ids alone."""

    tenant: str
    event_id: str
    topic: Topic
    reference: dict[str, str]
    attempts: int
    created_at: datetime


ENQUEUE = (
    "INSERT INTO perdure.outbox (tenant, event_id, topic, reference)"
    " VALUES (:tenant, :event_id, :topic, CAST(:reference AS jsonb)) ON CONFLICT DO NOTHING"
)


async def enqueue(
    connection: AsyncConnection, tenant: str, event_id: str, topic: Topic, reference: dict[str, str]
) -> None:
    """Write a row in the transaction of its change."""
    await change(connection, ENQUEUE, tenant=tenant, event_id=event_id, topic=topic, reference=json.dumps(reference))


class Outbox:
    """The relay's side, under the relay's role, across tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, limit: int, seconds: float) -> list[Claimed]:
        """Take up to ``limit`` due rows, oldest first; they come back if they are not delivered within ``seconds``."""
        async with self._database.across_tenants() as connection:
            rows = await many(connection, _CLAIM, limit=limit, seconds=seconds)
        return [Claimed(**row) for row in sorted(rows, key=itemgetter("created_at"))]

    async def delivered(self, row: Claimed) -> None:
        """It arrived."""
        async with self._database.across_tenants() as connection:
            await change(connection, f"UPDATE perdure.outbox SET delivered_at = clock_timestamp() {_ONE}", **_of(row))

    async def retry_later(self, row: Claimed, seconds: float) -> None:
        """It did not arrive; it is due again after ``seconds``."""
        async with self._database.across_tenants() as connection:
            await change(
                connection,
                f"UPDATE perdure.outbox SET due_at = clock_timestamp() + make_interval(secs => :seconds) {_ONE}",
                seconds=seconds,
                **_of(row),
            )

    async def lag(self) -> tuple[int, float]:
        """How many rows wait, and for how many seconds the oldest has."""
        async with self._database.across_tenants() as connection:
            row = await one(connection, _LAG)
        assert row is not None
        return row["waiting"], float(row["seconds"])

    async def listen(self) -> AsyncIterator[None]:
        """Wake-ups: one at once, then one for each transaction that wrote rows. Raises ``StoreUnavailable``."""
        async with self._database.notifications(CHANNEL) as notifications:
            yield  # what was written before we listened
            async for _ in notifications:
                yield


_ONE = "WHERE tenant = :tenant AND event_id = :event_id AND topic = :topic"
_CLAIM = (
    "UPDATE perdure.outbox o SET attempts = o.attempts + 1,"
    " due_at = clock_timestamp() + make_interval(secs => :seconds) FROM ("
    "SELECT tenant, event_id, topic FROM perdure.outbox WHERE delivered_at IS NULL AND due_at <= clock_timestamp()"
    " ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED) due"
    " WHERE o.tenant = due.tenant AND o.event_id = due.event_id AND o.topic = due.topic"
    " RETURNING o.tenant, o.event_id, o.topic, o.reference, o.attempts, o.created_at"
)
_LAG = (
    "SELECT count(*) AS waiting, COALESCE(extract(epoch FROM clock_timestamp() - min(created_at)), 0) AS seconds"
    " FROM perdure.outbox WHERE delivered_at IS NULL"
)


def _of(row: Claimed) -> dict[str, Any]:
    return {"tenant": row.tenant, "event_id": row.event_id, "topic": row.topic}
