"""What a run refuses to be handed, and what it waits out."""

import uuid

import pytest
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from perdure import names
from perdure.messages import DecisionOutcome, RunInput, RunResult
from perdure.toolfile import ToolFile
from tests.stage import Stage


async def test_nobody_hands_a_run_its_memory(stage: Stage) -> None:
    """Carried state belongs to an execution that continues another; a start could smuggle in raw text with it."""
    run_id = uuid.uuid4().hex
    carried = {"process": {"run_id": run_id, "summary": "raw words of Anna"}}
    start = RunInput(
        tenant=stage.principal.tenant,
        run_id=run_id,
        route="refund",
        actor="app",
        input={"customer": "cus_1", "order": "A-1"},
        carried=carried,
    )
    async with stage.working():
        result: RunResult = await stage.client.execute_workflow(
            names.WORKFLOW_AGENT_RUN,
            start,
            id=names.workflow_id(start.tenant, run_id),
            task_queue=stage.parts.settings.task_queue,
            result_type=RunResult,
        )
    assert (result.outcome, "InvalidInput" in (result.reason or "")) == ("refused", True)
    assert stage.provider.calls == []


async def test_a_run_decides_its_own_reviews_alone(stage: Stage) -> None:
    """An update to one run names the review of another: there is no such review there."""
    async with stage.working():
        one, other = await stage.start(), await stage.start()
        review = await stage.review(one)
        await stage.review(other)
        decision = stage.decision(review)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await other.execute_update(names.UPDATE_DECIDE, decision, result_type=DecisionOutcome)
        assert isinstance(refused.value.cause, ApplicationError)
        assert refused.value.cause.type == "NotFound"
        assert (await stage.ledger.read_review(stage.approver, review.review_id)).status == "pending"


async def test_a_tool_that_began_to_act_is_not_called_as_one_that_reads(stage: Stage) -> None:
    """The tools file changed after the route was checked: the run does not begin."""
    tools = stage.parts.tools.tools
    acting = tools["payments.find_charge"].model_copy(update={"effect": True})
    changed = ToolFile(servers=stage.parts.tools.servers, tools=tools | {"payments.find_charge": acting})
    async with stage.working(stage.tools(changed)):
        result = await (await stage.start()).result()
    assert (result.outcome, (result.reason or "").split(":")[0]) == ("refused", "RouteInvalid")
    assert stage.provider.calls == []


async def test_a_run_is_of_the_tenant_in_its_workflow_id(stage: Stage) -> None:
    """Another tenant in the input than in the id: nothing is opened, called or written for either."""
    run_id = uuid.uuid4().hex
    victim = stage.principal.tenant
    start = RunInput(tenant=victim, run_id=run_id, route="refund", actor="app", input={"customer": "c", "order": "A-1"})
    async with stage.working():
        for workflow_id in (names.workflow_id("somebody", run_id), names.workflow_id(victim, "other"), "plain"):
            with pytest.raises(WorkflowFailureError):
                await stage.client.execute_workflow(
                    names.WORKFLOW_AGENT_RUN, start, id=workflow_id, task_queue=stage.parts.settings.task_queue
                )
    assert stage.provider.calls == []
    assert await stage.runs.list(stage.principal) == []
