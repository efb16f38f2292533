"""A tool that an app hosts in its own worker keeps the same promises."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.worker import Worker

from perdure.errors import ToolRefused
from perdure.toolfile import ToolFile
from perdure.tools import Call, Tool, activities
from tests.provider import tool_file
from tests.stage import Run, Stage, run_id_of


class Params(BaseModel):
    charge: str
    amount: str
    currency: str


class Refunded(BaseModel):
    id: str
    status: str = "succeeded"


class Refund(Tool[Params, Refunded]):
    """Keeps its own books; ``trouble`` is raised after it acted, ``refuse`` instead of acting."""

    name = "payments.refund"
    params = Params
    result = Refunded

    def __init__(self, trouble: Exception | None = None, *, refuse: bool = False) -> None:
        self.done: dict[str, Refunded] = {}
        self.calls = 0
        self._trouble = trouble
        self._refuse = refuse

    async def execute(self, call: Call, params: Params) -> Refunded:
        self.calls += 1
        if self._refuse:
            raise ToolRefused("the charge was refunded before")
        assert call.key is not None
        assert params.amount == "820.00"
        self.done[call.key] = Refunded(id=f"re_{self.calls}")
        if self._trouble is not None:
            raise self._trouble
        return self.done[call.key]


class Asked(Refund):
    """The same, and it can be asked."""

    async def lookup(self, key: str) -> Refunded | None:
        return self.done.get(key)


def hosted(stage: Stage, queue: str, *, lookup: bool) -> ToolFile:
    file = tool_file(stage.provider.url).model_dump(mode="json")
    declared = file["tools"]["payments.refund"]
    file["tools"]["payments.refund"] = {
        "kind": "hosted",
        "task_queue": queue,
        "lookup": lookup,
        **{name: declared[name] for name in ("effect", "parameters", "result")},
        "timeout": "PT2S",
    }
    return ToolFile.model_validate(file)


@asynccontextmanager
async def hosting(stage: Stage, tool: Refund) -> AsyncIterator[None]:
    """The service's worker, and the app's own on its own queue."""
    queue = f"app-{stage.principal.tenant}"
    parts = stage.tools(hosted(stage, queue, lookup=isinstance(tool, Asked)))
    async with stage.working(parts), Worker(stage.client, task_queue=queue, activities=activities([tool])):
        yield


async def refunded(stage: Stage, tool: Refund) -> Run:
    async with hosting(stage, tool):
        run = await stage.start()
        review = await stage.review(run)
        assert (await stage.ledger.decide(stage.approver, stage.decision(review))).accepted
        await run.result()
    return run


@pytest.mark.parametrize("kind", [Refund, Asked])
async def test_a_hosted_tool_acts_once(stage: Stage, kind: Any) -> None:
    """With or without a lookup; the key that it got is the one in the ledger."""
    tool = kind()
    run = await refunded(stage, tool)
    assert (await run.result()).outcome == "refunded"
    [effect] = await stage.ledger.effects(stage.principal, run_id_of(run))
    assert (list(tool.done), tool.calls, stage.provider.attempts) == ([effect.key], 1, 0)


async def test_a_hosted_tool_with_a_lookup_is_asked(stage: Stage) -> None:
    """It failed after it had acted: the lookup finds that, and it is not called again."""
    tool = Asked(RuntimeError("the connection of Анна Петрова broke"))
    run = await refunded(stage, tool)
    assert ((await run.result()).outcome, tool.calls) == ("refunded", 1)


async def test_a_hosted_tool_without_a_lookup_is_not_called_again(stage: Stage) -> None:
    """It failed somehow: nobody knows, a person has to find out, and its message stays with the app."""
    tool = Refund(RuntimeError("the connection of Анна Петрова broke"))
    run = await refunded(stage, tool)
    result = await run.result()
    [effect] = await stage.ledger.effects(stage.principal, run_id_of(run))
    assert (result.outcome, effect.status, tool.calls) == ("handed_off", "unknown", 1)
    assert result.obligations_open == (effect.key,)
    assert "Анна" not in (result.reason or "")


async def test_a_hosted_tool_may_refuse(stage: Stage) -> None:
    """Nothing was done, and that is final."""
    tool = Asked(refuse=True)
    run = await refunded(stage, tool)
    result = await run.result()
    assert (result.outcome, tool.calls) == ("handed_off", 1)
    assert (result.reason or "").startswith("ToolRefused")
