"""The relay: takes what transactions left in the outbox to the runs it is for, at least once."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import assert_never

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from memory.outbox import Claimed, Outbox
from memory.runs import Runs
from perdure import names
from perdure.calls import Decided
from perdure.errors import PerdureError, Unavailable
from perdure.messages import Principal

BATCH = 50
CLAIM_SECONDS = 30
IDLE_SECONDS = 5.0
LONGEST_DELAY = 60

log = logging.getLogger(__name__)


class Relay:
    """Signals runs. A run whose workflow is gone is abandoned, so that nothing waits for it for ever."""

    def __init__(self, outbox: Outbox, runs: Runs, client: Client) -> None:
        self._outbox = outbox
        self._runs = runs
        self._client = client

    async def run(self) -> None:
        """Deliver until cancelled. Claims lapse, so a relay that dies loses nothing."""
        while True:
            try:
                await self._listen()
            except* Unavailable:
                log.warning("the outbox does not answer")
            await asyncio.sleep(1)

    async def drain(self) -> int:
        """Deliver what can be claimed now; returns how many rows were looked at."""
        looked_at = 0
        while claimed := await self._outbox.claim(BATCH, CLAIM_SECONDS):
            looked_at += len(claimed)
            of_run: dict[tuple[str, str], list[Claimed]] = {}
            for row in claimed:
                of_run.setdefault((row.tenant, row.reference["run_id"]), []).append(row)
            await asyncio.gather(*(self._deliver_in_order(rows) for rows in of_run.values()))
        return looked_at

    async def _listen(self) -> None:
        wake = asyncio.Event()

        async def hear() -> None:
            async for _ in self._outbox.listen():
                wake.set()

        async with asyncio.TaskGroup() as group:
            hearing = group.create_task(hear())
            while not hearing.done():
                wake.clear()
                await self.drain()
                await _within(IDLE_SECONDS, wake.wait())

    async def _deliver_in_order(self, rows: list[Claimed]) -> None:
        for row in rows:
            await self._deliver(row)

    async def _deliver(self, row: Claimed) -> None:
        """A row that cannot be delivered never stops the others, and is never dropped: it waits, and the log says why."""
        try:
            await self._signal_or_abandon(row)
        except RPCError as error:
            await self._later(row, error.status.name)
        except PerdureError as error:
            await self._later(row, type(error).__name__)
        else:
            await self._outbox.delivered(row)

    async def _signal_or_abandon(self, row: Claimed) -> None:
        try:
            await self._signal(row)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            await self._runs.abandon(_relay_of(row), row.reference["run_id"], "its workflow is gone")

    async def _signal(self, row: Claimed) -> None:
        handle = self._client.get_workflow_handle(names.workflow_id(row.tenant, row.reference["run_id"]))
        match row.topic:
            case "decided":
                decided = Decided(review_id=row.reference["review_id"], decision_id=row.reference["decision_id"])
                await handle.signal(names.SIGNAL_DECIDED, decided)
            case "message":
                message = await self._runs.message(_relay_of(row), row.reference["event_id"])
                await handle.signal(names.SIGNAL_MESSAGE, message)
            case _:
                assert_never(row.topic)

    async def _later(self, row: Claimed, because: str) -> None:
        log.warning("outbox row %s of topic %s waits: %s", row.event_id, row.topic, because)
        await self._outbox.retry_later(row, min(2**row.attempts, LONGEST_DELAY))


def _relay_of(row: Claimed) -> Principal:
    return Principal(tenant=row.tenant, actor="relay", purpose="relay")


async def _within(seconds: float, work: Awaitable[object]) -> None:
    try:
        await asyncio.wait_for(work, seconds)
    except TimeoutError:
        return
