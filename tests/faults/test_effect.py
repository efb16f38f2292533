"""A provider that is busy or slow, and a run that is cancelled or reset meanwhile: there is one effect, or none."""

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

from perdure import names
from tests.provider import tool_file
from tests.stage import ROUTE, Run, Stage, run_id_of, until

TWICE = ROUTE.replace(
    "refunded: {kind: end, outcome: refunded}",
    """again:
    kind: approval
    intent:
      action: refund
      tool: payments.refund
      object: {type: charge, id: charge}
      arguments: {charge: charge, amount: amount, currency: currency}
      amount: amount
      currency: currency
    approvers: [approver]
    expires_after: 72h
    approved: second
    rejected: declined
  second: {kind: tool, intent: again, sets: {refund_id: id}, next: refunded}
  refunded: {kind: end, outcome: refunded}""",
).replace("sets: {refund_id: id}, next: refunded}\n  again", "sets: {refund_id: id}, next: again}\n  again")


async def approved(stage: Stage) -> Run:
    run = await stage.start()
    await run.execute_update(names.UPDATE_DECIDE, stage.decision(await stage.review(run)))
    return run


async def test_a_busy_provider_is_asked_again(stage: Stage) -> None:
    """429 and 503 promise that nothing was done, with a lookup or without."""
    async with stage.working(stage.tools(tool_file(stage.provider.url, lookup=False))):
        stage.provider.statuses = [429, 503]
        run = await approved(stage)
        assert (await run.result()).outcome == "refunded"
    assert (stage.provider.attempts, len(stage.provider.refunds)) == (3, 1)


async def test_a_slow_provider_is_one_refund(stage: Stage) -> None:
    """It answers after the time-out; the lookup waits for it."""
    stage.provider.delay = 1.5
    async with stage.working(stage.tools(tool_file(stage.provider.url, timeout="PT1S"))):
        run = await approved(stage)
        assert (await run.result()).outcome == "refunded"
    assert (stage.provider.attempts, len(stage.provider.refunds)) == (1, 1)


async def test_a_run_that_is_cancelled_while_the_provider_is_busy(stage: Stage) -> None:
    """What was reserved is settled as not executed; nothing is sent afterwards."""
    stage.provider.statuses = [503] * 50
    async with stage.working():
        run = await approved(stage)
        await stage.waiting(run, "tool:payments.refund")
        await stage.send(run, "cancel")
        assert (await run.result()).outcome == "cancelled"
    [effect] = await stage.ledger.effects(stage.principal, run_id_of(run))
    assert effect.status == "not_executed"


async def test_two_approved_equal_refunds_are_two_effects(stage: Stage) -> None:
    """Two intents, each approved, on one charge and of one amount."""
    await stage.install(TWICE)
    async with stage.working():
        run = await approved(stage)
        second = await stage.review(run)
        await run.execute_update(names.UPDATE_DECIDE, stage.decision(second))
        assert (await run.result()).outcome == "refunded"
    assert len(stage.provider.refunds) == 2


@pytest.mark.slow
async def test_a_workflow_that_is_reset_during_the_effect_acts_once(stage: Stage) -> None:
    """Another holder has it: the new execution waits for the lease, then asks the provider before anything else."""
    stage.provider.drop_answers, stage.provider.drop_lookups = 1, 10_000
    short = stage.tools(tool_file(stage.provider.url, timeout="PT1S"))
    async with stage.working(short):
        run = await approved(stage)
        await stage.waiting(run, "tool:payments.refund")
        await reset(stage, run, await before_the_decision(run))
        await stage.waiting(run, "effect:refund")
        stage.provider.drop_lookups = 0
        assert await until(lambda: _outcome(stage, run), seconds=60) == "refunded"
    assert (stage.provider.attempts, len(stage.provider.refunds)) == (1, 1)


async def _outcome(stage: Stage, run: Run) -> str | None:
    return (await stage.view(run)).outcome


async def before_the_decision(run: Run) -> int:
    """The last completed workflow task before the run heard of the decision."""
    last = 0
    async for event in run.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED:
            return last
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            last = event.event_id
    raise AssertionError("the run never waited")


async def reset(stage: Stage, run: Run, event: int) -> None:
    run_id = (await run.describe()).run_id
    await stage.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=stage.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=run.id, run_id=run_id),
            reason="drill",
            workflow_task_finish_event_id=event,
            request_id=f"reset-{run_id}",
        )
    )
