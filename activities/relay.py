"""The relay: takes what transactions left in the outbox to the runs it is for, at least once."""

import asyncio
import logging
import re
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import assert_never

from temporalio.client import Client, WorkflowExecutionStatus
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
SWEEP_SECONDS = 20.0
FIRST_LOOK_BACK = timedelta(days=30)
LOOK_BACK = timedelta(minutes=5)
"""Visibility lags behind; a run that is looked at twice is abandoned once."""
RUN_ID = re.compile(r"run:(?P<tenant>[A-Za-z0-9][A-Za-z0-9_.%-]{0,63}):(?P<run>[^:]+)")
GONE = (WorkflowExecutionStatus.TERMINATED, WorkflowExecutionStatus.TIMED_OUT, WorkflowExecutionStatus.FAILED)

log = logging.getLogger(__name__)


class Relay:
    """Signals runs. A run whose workflow is gone is abandoned, so that nothing waits for it for ever."""

    def __init__(self, outbox: Outbox, runs: Runs, client: Client) -> None:
        self._outbox = outbox
        self._runs = runs
        self._client = client

    async def run(self) -> None:
        """Deliver and sweep until cancelled. Claims lapse, so a relay that dies loses nothing."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._deliver_for_ever())
            group.create_task(self._sweep_for_ever())

    async def sweep(self, since: datetime) -> None:
        """Abandon runs whose workflow was terminated, timed out or failed since then; nobody else tells the ledger."""
        query = (
            f'WorkflowType = "{names.WORKFLOW_AGENT_RUN}" AND ExecutionStatus IN ("Terminated", "TimedOut", "Failed")'
            f' AND CloseTime > "{since.isoformat()}"'
        )
        async for found in self._client.list_workflows(query):
            run = RUN_ID.fullmatch(found.id)
            if run is None:
                continue
            latest = await self._client.get_workflow_handle(found.id).describe()
            if latest.status in GONE:  # a reset ends one execution and begins the next
                principal = Principal(tenant=run["tenant"], actor="relay", purpose="relay")
                await self._runs.abandon(principal, run["run"], "its workflow is gone")

    async def _sweep_for_ever(self) -> None:
        since = datetime.now(UTC) - FIRST_LOOK_BACK
        while True:
            began = datetime.now(UTC)
            try:
                await self.sweep(since)
                since = began - LOOK_BACK
            except (RPCError, PerdureError) as error:
                log.warning("the sweep for runs that are gone waits: %s", type(error).__name__)
            await asyncio.sleep(SWEEP_SECONDS)

    async def _deliver_for_ever(self) -> None:
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
        """A row that cannot be delivered stops no other and is never dropped: it waits, and the log says why."""
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
