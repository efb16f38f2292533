"""Faults of what a run stands on: its history reset, a wrong key, a lost lease, a database that does not answer."""

import asyncio
import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import psutil
import psycopg
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client

from embedded import Postgres
from perdure.calls import ReserveRequest, SettleRequest
from perdure.errors import LeaseLost
from perdure.keyring import KeyRing
from perdure.messages import EffectResult, ReviewState
from perdure.temporal import data_converter
from tests.stage import Run, Stage, run_id_of, until

OUTAGE_SECONDS = 3.0


async def reset(stage: Stage, run: Run, task: int) -> Run:
    """Reset to the end of the workflow task with this number; the new execution."""
    ends = [
        event.event_id
        for event in (await run.fetch_history()).events
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    ]
    await stage.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=stage.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=run.id, run_id=run.result_run_id or ""),
            reason="a drill",
            workflow_task_finish_event_id=ends[task],
            request_id=uuid.uuid4().hex,
        )
    )
    return stage.latest(run)


@pytest.mark.parametrize("task", [0, 1, -2])
async def test_a_reset_run_does_nothing_again(stage: Stage, task: int) -> None:
    """Reset to its beginning, to before the approval, and to before the effect's answer: the same end, one effect."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        assert (await stage.ledger.decide(stage.approver, stage.decision(review))).accepted
        first = await run.result()
        again = await (await reset(stage, run, task)).result()
    assert first == again
    assert first.outcome == "refunded"
    assert (stage.provider.attempts, len(stage.provider.refunds)) == (1, 1)


async def test_a_reset_that_loses_a_later_message_keeps_the_first_end(stage: Stage) -> None:
    """Whatever way a second execution takes, what was written down first is the run's end."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        await stage.send(run, "cancel")
        first = await run.result()
        again = await (await reset(stage, run, 0)).result()
    assert (first.outcome, again.outcome) == ("cancelled", "cancelled")
    assert (await stage.ledger.read_review(stage.principal, review.review_id)).status == "cancelled"
    assert stage.provider.attempts == 0


async def test_a_wrong_codec_key_stops_nothing_for_good(stage: Stage) -> None:
    """The failure of the task names the key and no value; histories are listed; the right key lets the run go on."""
    config = stage.client.config()
    config["data_converter"] = data_converter(KeyRing.generate("another"))
    keyless = Client(**config)
    async with stage.working(replace(stage.parts, client=keyless)):
        run = await stage.start()

        async def failure() -> str | None:
            for event in (await keyless.get_workflow_handle(run.id).fetch_history()).events:
                if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                    return str(event.workflow_task_failed_event_attributes.failure)
            return None

        told = await until(failure)
    assert "KeyMissing" in told
    assert "cus_1" not in told
    found = [w.id async for w in keyless.list_workflows(f'WorkflowId = "{run.id}"')]
    assert found == [run.id]
    async with stage.working():
        assert (await stage.waiting(run)).step == "approve"


async def test_an_old_holder_cannot_settle(stage: Stage) -> None:
    """Its lease ran out while it slept, and another took over: its result is refused, the other's stays."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
    outcome = await stage.ledger.decide(stage.approver, stage.decision(review))
    old = await stage.ledger.reserve(reservation(stage, run, review, outcome.grant_id or "", "old"))
    asleep = await stage.ledger.reserve(reservation(stage, run, review, outcome.grant_id or "", "new"))
    assert (old.status, asleep.status) == ("fresh", "in_flight")
    await asyncio.sleep(0.3)
    new = await stage.ledger.reserve(reservation(stage, run, review, outcome.grant_id or "", "new"))
    assert (new.status, new.fence) == ("resumed", old.fence + 1)
    with pytest.raises(LeaseLost):
        await stage.ledger.settle(settlement(stage, run, old.key, old.fence, "not_executed"))
    assert (await stage.ledger.settle(settlement(stage, run, new.key, new.fence, "done"))).outcome == "done"
    assert (await stage.ledger.settle(settlement(stage, run, old.key, old.fence, "unknown"))).outcome == "done"


def reservation(stage: Stage, run: Run, review: ReviewState, grant: str, holder: str) -> ReserveRequest:
    return ReserveRequest(
        principal=stage.principal,
        run_id=run_id_of(run),
        route="refund",
        grant_id=grant,
        intent_id=review.intent_id,
        intent_version=review.version,
        action="refund",
        tool="payments.refund",
        object_type="charge",
        object_id="ch_1",
        arguments={"charge": "ch_1", "amount": "820.00", "currency": "EUR"},
        amount="820.00",
        currency="EUR",
        holder=holder,
        lease_for=timedelta(seconds=0.2),
    )


def settlement(stage: Stage, run: Run, key: str, fence: int, outcome: str) -> SettleRequest:
    result = EffectResult.model_validate({"outcome": outcome})
    return SettleRequest(principal=stage.principal, run_id=run_id_of(run), key=key, fence=fence, result=result)


@contextmanager
def paused(postgres: Postgres) -> Iterator[None]:
    """The whole server stands still, connections and all."""
    master = psutil.Process(int((postgres.directory / "postmaster.pid").read_text().split()[0]))
    everybody = [master, *master.children(recursive=True)]
    for process in everybody:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in reversed(everybody):
            os.kill(process.pid, signal.SIGCONT)


async def test_a_database_that_stands_still_only_delays_a_run(stage: Stage, postgres: Postgres) -> None:
    """Nothing answers for a while in the middle of a step; then the run goes on as if nothing had been."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        await stage.waiting(run)
        with paused(postgres):
            await run.signal("decide", stage.decision(review))
            await asyncio.sleep(OUTAGE_SECONDS)
        assert (await run.result()).outcome == "refunded"
    assert (stage.provider.attempts, len(stage.provider.refunds)) == (1, 1)


async def test_broken_connections_only_delay_a_run(stage: Stage, postgres: Postgres) -> None:
    """Every connection is cut while a run waits, and again while it acts."""
    stage.provider.delay = 0.5
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        await stage.waiting(run)
        cut(postgres)
        await run.signal("decide", stage.decision(review))
        await until(lambda: _acting(stage))
        cut(postgres)
        assert (await run.result()).outcome == "refunded"
    assert (stage.provider.attempts, len(stage.provider.refunds)) == (1, 1)


async def _acting(stage: Stage) -> bool:
    return stage.provider.attempts > 0


def cut(postgres: Postgres) -> None:
    with psycopg.connect(host=str(postgres.sockets), user="postgres", dbname="postgres", autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND usename LIKE 'perdure_%'"
        )
