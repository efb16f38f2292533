"""A run from its start to its end: what it costs, what it shows, and how it ends."""

from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

from perdure import names
from perdure.messages import RunInput, RunMessage, RunResult
from tests.stage import ROUTE, Stage, run_id_of, until


async def test_a_run_waits_for_a_person_and_acts_once(stage: Stage) -> None:
    """The whole way: read, classify, wait, act; parked in at most 25 events and 25 KB."""
    async with stage.working():
        run = await stage.start()
        view = await stage.waiting(run)
        info = (await run.describe()).raw_description.workflow_execution_info
        assert info.history_length <= 25
        assert info.history_size_bytes <= 25_000
        assert view.state["amount"].set_by == "tool"
        assert [owed.kind for owed in view.obligations] == ["approval"]
        review = await stage.review(run)
        outcome = await run.execute_update(names.UPDATE_DECIDE, stage.decision(review))
        assert outcome["accepted"]
        assert await run.result() == RunResult(outcome="refunded", step="refunded")
        assert (await stage.view(run)).obligations[0].closed == "done"
    assert [refund["amount"] for refund in stage.provider.refunds.values()] == ["820.00"]
    row = await stage.runs.get(stage.principal, run_id_of(run))
    assert (row.status, row.outcome) == ("ended", "refunded")


async def test_a_decision_of_the_gateway_reaches_the_run(stage: Stage) -> None:
    """A decision committed in the database is told to the run by the relay."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        assert (await stage.ledger.decide(stage.approver, stage.decision(review, "reject"))).accepted
        assert (await run.result()).outcome == "declined"
    assert stage.provider.attempts == 0


async def test_a_run_waits_without_a_worker(stage: Stage) -> None:
    """A decision made while every worker is down counts when one comes back."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
    assert (await stage.ledger.decide(stage.approver, stage.decision(review))).accepted
    async with stage.working():
        assert (await run.result()).outcome == "refunded"
    assert len(stage.provider.refunds) == 1


async def test_raw_text_in_a_personal_field_is_refused(stage: Stage) -> None:
    """The run ends as refused, and its reason does not hold the text."""
    masked = await stage.masked("⟦PERSON_1⟧ was charged twice")
    foreign = masked.model_copy(update={"masked": "another text"})
    async with stage.working():
        for complaint in ("Анна Петрова, +7 912 000-00-00", foreign.model_dump(mode="json")):
            result = await (await stage.start(complaint=complaint)).result()
            assert result.outcome == "refused"
            assert result.reason is not None
            assert result.reason.startswith("UnmaskedText")
            assert "Анна" not in result.reason
        run = await stage.start(complaint=masked.model_dump(mode="json"))
        assert (await stage.waiting(run)).state["complaint"].set_by == "input"


@pytest.mark.parametrize("given", [{"order": 7}, {"surprise": "x"}, {"order": None}])
async def test_a_wrong_input_is_refused(stage: Stage, given: dict[str, Any]) -> None:
    """Wrong type, unknown field, nothing in a field that is needed."""
    async with stage.working():
        result = await (await stage.start(**given)).result()
    assert result.outcome == "refused"
    assert result.reason is not None
    assert result.reason.startswith("InvalidInput")


async def test_an_unknown_route_is_refused(stage: Stage) -> None:
    """No run hangs because its route is not there."""
    async with stage.working():
        result = await (await stage.start("no_such_route")).result()
    assert (result.outcome, result.reason and result.reason.split(":")[0]) == ("refused", "NotFound")


async def test_a_start_that_cannot_be_read_fails(stage: Stage) -> None:
    """A hand-written start with a wrong shape fails at once instead of hanging, and quotes nothing."""
    async with stage.working():
        run = await stage.client.start_workflow(
            names.WORKFLOW_AGENT_RUN,
            {"tenant": stage.principal.tenant, "name": "Анна Петрова"},
            id=names.workflow_id(stage.principal.tenant, "odd"),
            task_queue=stage.parts.settings.task_queue,
        )
        with pytest.raises(WorkflowFailureError) as failure:
            await run.result()
    assert "Анна" not in str(failure.value.cause)


async def test_a_held_run_goes_on_only_when_it_is_released(stage: Stage) -> None:
    """A run on hold may be decided and still does nothing."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        await stage.send(run, "hold")
        await until(lambda: _is(stage, run, "held"))
        assert (await stage.ledger.decide(stage.approver, stage.decision(review))).accepted
        await stage.waiting(run, "resume")
        assert stage.provider.attempts == 0
        await stage.send(run, "resume")
        assert (await run.result()).outcome == "refunded"


async def _is(stage: Stage, run: object, status: str) -> bool:
    return (await stage.view(run)).status == status  # type: ignore[arg-type]


async def test_a_run_is_cancelled_by_a_message(stage: Stage) -> None:
    """It completes as cancelled, its review is withdrawn and its obligation closed."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        await stage.send(run, "cancel")
        assert (await run.result()).outcome == "cancelled"
        assert (await stage.view(run)).obligations[0].closed == "cancelled"
    assert (await stage.ledger.read_review(stage.principal, review.review_id)).status == "cancelled"
    late = await stage.ledger.decide(stage.approver, stage.decision(review))
    assert (late.accepted, late.refusal) == (False, "RunEnded")


async def test_a_run_is_cancelled_by_temporal(stage: Stage) -> None:
    """Temporal's own cancellation is Temporal's own status; what is ours is written down all the same."""
    async with stage.working():
        run = await stage.start()
        await stage.review(run)
        await run.cancel()
        with pytest.raises(WorkflowFailureError):
            await run.result()
    assert (await run.describe()).status == WorkflowExecutionStatus.CANCELED
    assert (await stage.runs.get(stage.principal, run_id_of(run))).outcome == "cancelled"


async def test_a_terminated_run_is_abandoned(stage: Stage) -> None:
    """A message to a workflow that is gone closes what it left open."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        await run.terminate()
        await stage.send(run, amount="1.00")

        async def abandoned() -> bool:
            return (await stage.runs.get(stage.principal, run_id_of(run))).status == "terminated"

        await until(abandoned)
    late = await stage.ledger.decide(stage.approver, stage.decision(review))
    assert (late.accepted, late.refusal) == (False, "RunEnded")


async def test_a_refused_tool_hands_the_run_off(stage: Stage) -> None:
    """The reason is kept, and somebody owns what is left to do."""
    stage.provider.statuses = [422]
    async with stage.working():
        run = await stage.start()
        await run.execute_update(names.UPDATE_DECIDE, stage.decision(await stage.review(run)))
        result = await run.result()
        assert (result.outcome, result.step) == ("handed_off", "refund")
        assert result.reason is not None
        assert result.reason.startswith("ToolRefused")
        [owed] = [o for o in (await stage.view(run)).obligations if o.closed is None]
        assert (owed.kind, owed.owner, result.obligations_open) == ("handoff", "support", (owed.id,))


async def test_a_model_sets_only_what_it_may(stage: Stage) -> None:
    """A scripted answer that sets an amount goes to the hand-off point and changes nothing."""
    script = stage.parts.settings.model.script
    assert script is not None
    script.write_text("- {route: refund, step: classify, fields: {kind: double, amount: '9.00'}}\n")
    async with stage.working():
        run = await stage.start()
        result = await run.result()
        assert result.outcome == "handed_off"
        assert result.reason is not None
        assert result.reason.startswith("NotAuthorized")
        assert (await stage.view(run)).state["amount"].value == "820.00"


async def test_a_run_can_be_read_in_the_ui(stage: Stage) -> None:
    """Search attributes and the panel say where it stands, without a value of a personal field."""
    masked = await stage.masked("secret words of ⟦PERSON_1⟧")
    async with stage.working():
        run = await stage.start(complaint=masked.model_dump(mode="json"))
        review = await stage.review(run)
        await stage.waiting(run)
        found = {pair.key.name: pair.value for pair in (await run.describe()).typed_search_attributes}
        assert found[names.SEARCH_TENANT] == stage.principal.tenant
        assert found[names.SEARCH_ROUTE] == "refund"
        assert found[names.SEARCH_WAITING_FOR] == "approval:approve"
        assert "cus_1" not in str(found[names.SEARCH_SUBJECT])
        panel = (await run.query("__temporal_workflow_metadata")).current_details
        assert review.digest[:12] in panel
        assert "approval:approve" in panel
        assert "secret words" not in panel


async def test_a_message_that_is_refused_is_shown(stage: Stage) -> None:
    """Users may not set what tools set; the run goes on and shows the refusal."""
    async with stage.working():
        run = await stage.start()
        await stage.waiting(run)
        for number, fields in enumerate(({"refund_id": "re_0"}, {"note": "raw"}, {"nothing": "x"})):
            await run.signal(
                names.SIGNAL_MESSAGE, RunMessage(id=f"odd{number}", kind="message", actor="user", fields=fields)
            )

        async def shown() -> tuple[str, ...] | None:
            refused = (await stage.view(run)).refused_messages
            return refused if len(refused) == 3 else None

        refused = await until(shown)
        assert [entry.split(": ")[1] for entry in refused] == ["NotAuthorized", "UnmaskedText", "InvalidInput"]


async def test_a_message_counts_once(stage: Stage) -> None:
    """The same id again changes nothing, whatever it says."""
    async with stage.working():
        run = await stage.start()
        await stage.waiting(run)
        for amount in ("10.00", "11.00"):
            message = RunMessage(id="same", kind="message", actor="user", fields={"amount": amount})
            await run.signal(names.SIGNAL_MESSAGE, message)
        await stage.review(run, version=2)
        assert (await stage.view(run)).state["amount"].value == "10.00"


async def test_a_route_version_is_pinned(stage: Stage) -> None:
    """A newer version changes nothing for a run that is under way, also when its first execution is long over."""
    async with stage.working():
        run = await stage.start()
        await stage.waiting(run)
        await stage.install(ROUTE.replace("outcome: refunded", "outcome: paid"))
        assert (await stage.view(run)).version == 1
        await run.execute_update(names.UPDATE_DECIDE, stage.decision(await stage.review(run)))
        assert (await run.result()).outcome == "refunded"


async def test_the_same_run_id_with_another_input_is_refused(stage: Stage) -> None:
    """A run id belongs to one input."""
    async with stage.working():
        first = await stage.start()
        await stage.waiting(first)
        await first.terminate()
        given = RunInput(
            tenant=stage.principal.tenant,
            run_id=run_id_of(first),
            route="refund",
            actor="app",
            input={"customer": "cus_2", "order": "A-1"},
        )
        again = await stage.client.start_workflow(
            names.WORKFLOW_AGENT_RUN,
            given,
            id=first.id,
            task_queue=stage.parts.settings.task_queue,
            result_type=RunResult,
        )
        result = await again.result()
    assert result.outcome == "refused"
    assert result.reason is not None
    assert result.reason.startswith("IdempotencyMismatch")
