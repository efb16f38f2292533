"""What may go wrong between a run and a payments provider: there is one effect, or somebody owes the answer."""

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

from memory.objects import Objects
from perdure import names
from perdure.messages import EffectResult, ProcessView
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


async def unknown(stage: Stage, run: Run) -> ProcessView:
    """The run ended because nobody knows, and somebody owes it."""
    result = await run.result()
    view = await stage.view(run)
    assert result.outcome == "handed_off"
    [owed] = [o for o in view.obligations if o.closed is None]
    assert (owed.kind, owed.owner) == ("unknown_effect", "support")
    [effect] = await stage.ledger.effects(stage.principal, run_id_of(run))
    assert effect.status == "unknown"
    return view


async def test_a_lost_answer_is_one_refund(stage: Stage) -> None:
    """The provider refunded and its answer was lost, twice over: the lookup finds it."""
    stage.provider.drop_answers, stage.provider.drop_lookups = 1, 1
    async with stage.working():
        run = await approved(stage)
        assert (await run.result()).outcome == "refunded"
    assert stage.provider.attempts == 1
    assert len(stage.provider.refunds) == 1


async def test_a_lost_answer_without_a_lookup_is_unknown(stage: Stage) -> None:
    """One call and no other."""
    stage.provider.drop_answers = 1
    async with stage.working(stage.tools(tool_file(stage.provider.url, lookup=False))):
        await unknown(stage, await approved(stage))
    assert stage.provider.attempts == 1


async def test_a_provider_that_answers_and_does_nothing(stage: Stage) -> None:
    """200 without an effect: the lookup disagrees, and a person gets the obligation."""
    stage.provider.do_nothing = True
    async with stage.working():
        view = await unknown(stage, await approved(stage))
    assert "refund_id" not in view.state
    assert stage.provider.refunds == {}


async def test_a_busy_provider_is_asked_again(stage: Stage) -> None:
    """429 and 503 promise that nothing was done, with a lookup or without."""
    async with stage.working(stage.tools(tool_file(stage.provider.url, lookup=False))):
        stage.provider.statuses = [429, 503]
        run = await approved(stage)
        assert (await run.result()).outcome == "refunded"
    assert (stage.provider.attempts, len(stage.provider.refunds)) == (3, 1)


async def test_a_slow_provider_is_one_refund(stage: Stage) -> None:
    """It answers after the time-out; the lookup waits for it."""
    stage.provider.delay = 1.0
    async with stage.working(stage.tools(tool_file(stage.provider.url, timeout="PT0.4S"))):
        run = await approved(stage)
        assert (await run.result()).outcome == "refunded"
    assert (stage.provider.attempts, len(stage.provider.refunds)) == (1, 1)


async def test_nothing_is_executed_after_the_grant_expired(stage: Stage) -> None:
    """The provider is busy for longer than the approval lives: expiry during a retry stops the effect."""
    await stage.install(ROUTE.replace("expires_after: 72h", "expires_after: 3s"))
    stage.provider.statuses = [503] * 50
    async with stage.working():
        run = await approved(stage)
        result = await run.result()
    assert result.outcome == "handed_off"
    assert result.reason is not None
    assert result.reason.startswith("GrantExpired")
    assert stage.provider.refunds == {}
    [effect] = await stage.ledger.effects(stage.principal, run_id_of(run))
    assert effect.status == "not_executed"


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


async def test_a_cancellation_during_the_call_waits_for_its_result(stage: Stage) -> None:
    """The effect is under way: it is settled first, then the run is cancelled."""
    stage.provider.delay = 1.0
    async with stage.working():
        run = await approved(stage)

        async def called() -> bool:
            return stage.provider.attempts > 0

        await until(called)
        await run.cancel()
        await stage.send(run, "cancel")

        async def over() -> bool:
            return (await stage.runs.get(stage.principal, run_id_of(run))).status == "ended"

        await until(over)
    [effect] = await stage.ledger.effects(stage.principal, run_id_of(run))
    assert effect.status == "done"
    assert len(stage.provider.refunds) == 1


async def test_two_approved_equal_refunds_are_two_effects(stage: Stage) -> None:
    """Two intents, each approved, on one charge and of one amount."""
    await stage.install(TWICE)
    async with stage.working():
        run = await approved(stage)
        second = await stage.review(run)
        await run.execute_update(names.UPDATE_DECIDE, stage.decision(second))
        assert (await run.result()).outcome == "refunded"
    assert len(stage.provider.refunds) == 2


async def test_a_large_answer_is_kept_as_an_object(stage: Stage) -> None:
    """3 MB: the run goes on with what it asked for, and the history carries a reference."""
    stage.provider.padding = 3_000_000
    async with stage.working():
        run = await approved(stage)
        assert (await run.result()).outcome == "refunded"
        info = (await run.describe()).raw_description.workflow_execution_info
    assert info.history_size_bytes < 60_000
    refs = [r.object for r in await tool_results(stage, run) if r.object is not None]
    assert len(refs) == 2
    settings = stage.parts.settings.objects
    objects = Objects(stage.parts.database, stage.parts.keys, settings.url)
    assert len(await objects.get(stage.principal, refs[1].object_id)) == refs[1].size > 3_000_000


async def tool_results(stage: Stage, run: Run) -> list[EffectResult]:
    results = []
    async for event in run.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            payloads = event.activity_task_completed_event_attributes.result.payloads
            [value] = await stage.client.data_converter.decode(payloads)
            if "outcome" in value:
                results.append(EffectResult.model_validate(value))
    return results


async def test_a_workflow_that_is_reset_to_before_the_effect_acts_once(stage: Stage) -> None:
    """The same key finds the final result; the provider hears nothing."""
    async with stage.working():
        run = await approved(stage)
        assert (await run.result()).outcome == "refunded"
        await reset(stage, run, await before_the_decision(run))
        assert (await stage.latest(run).result()).outcome == "refunded"
    assert (stage.provider.attempts, len(stage.provider.refunds)) == (1, 1)


async def test_a_workflow_that_is_reset_during_the_effect_acts_once(stage: Stage) -> None:
    """Another holder has it: the new execution waits for the lease, then asks the provider before anything else."""
    stage.provider.drop_answers, stage.provider.drop_lookups = 1, 10_000
    short = stage.tools(tool_file(stage.provider.url, timeout="PT0.3S"))
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
