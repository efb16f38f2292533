"""A tool that an app hosts in its own worker: the same guarantees as the built-in one."""

import uuid
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel
from temporalio.worker import Worker

from perdure import names
from perdure.errors import ToolRefused, ToolUnavailable
from perdure.toolfile import ToolFile
from perdure.tools import Call, Tool, activities
from tests.provider import tool_file
from tests.stage import Stage
from worker import Parts


class RefundParams(BaseModel):
    charge: str
    amount: str
    currency: str


class Refunded(BaseModel):
    id: str
    note: str | None = None


class Blind(Tool[RefundParams, Refunded]):
    """A provider that cannot be asked what it did."""

    name = "payments.refund"
    params: ClassVar[type[BaseModel]] = RefundParams
    result = Refunded

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.done: dict[str, Refunded] = {}
        self.calls: list[Call] = []

    async def execute(self, call: Call, params: RefundParams) -> Refunded:
        self.calls.append(call)
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None and not isinstance(failure, ConnectionResetError):
            raise failure
        refund = self.done.setdefault(call.key or "", Refunded(id=f"re_{len(self.done) + 1}"))
        if failure is not None:
            raise failure
        return refund


class Askable(Blind):
    """The same with a lookup."""

    async def lookup(self, key: str) -> Refunded | None:
        return self.done.get(key)


class Forgetful(Askable):
    """It says that all is well and did nothing."""

    async def lookup(self, key: str) -> Refunded | None:
        return None


def hosting(stage: Stage, tool: Blind) -> tuple[Parts, Worker]:
    """The service's parts that know the tool, and the app's own worker."""
    queue = f"app-{uuid.uuid4().hex[:8]}"
    hosted: dict[str, Any] = {
        "kind": "hosted",
        "effect": True,
        "task_queue": queue,
        "lookup": isinstance(tool, Askable),
        "timeout": timedelta(seconds=2),
        "parameters": {name: {"type": "string"} for name in RefundParams.model_fields},
        "result": {"id": {"type": "identifier"}},
    }
    tools = ToolFile.model_validate({"tools": {**tool_file(stage.provider.url).tools, "payments.refund": hosted}})
    parts = stage.tools(tools.model_copy(update={"servers": {"payments": stage.provider.url}}))
    return parts, Worker(stage.client, task_queue=queue, activities=activities([tool]))


async def outcome(stage: Stage, tool: Blind) -> tuple[str, str]:
    """Approve one refund through the tool; outcome and reason's error."""
    parts, app = hosting(stage, tool)
    async with stage.working(parts), app:
        run = await stage.start()
        await run.execute_update(names.UPDATE_DECIDE, stage.decision(await stage.review(run)))
        result = await run.result()
    return result.outcome, (result.reason or "").split(":")[0]


async def test_a_hosted_tool_is_called_once_with_its_key(stage: Stage) -> None:
    """It gets the key, the limit of time and its typed parameters."""
    tool = Askable()
    assert await outcome(stage, tool) == ("refunded", "")
    [call] = tool.calls
    assert call.key is not None
    assert call.key.startswith("pk_")
    assert call.not_after is not None
    assert list(tool.done) == [call.key]


@pytest.mark.parametrize("tool", [Blind, Askable])
async def test_a_tool_that_says_nothing_was_done(stage: Stage, tool: type[Blind]) -> None:
    """Refused for good hands the run off; unavailable is tried again, also without a lookup."""
    refused = tool(ToolRefused("no"))
    assert await outcome(stage, refused) == ("handed_off", "ToolRefused")
    busy = tool(ToolUnavailable("busy"), ToolUnavailable("busy"))
    assert await outcome(stage, busy) == ("refunded", "")
    assert len(busy.calls) == 3
    assert len(busy.done) == 1


async def test_an_unexpected_error_is_looked_up(stage: Stage) -> None:
    """It was done before the error; the lookup finds it, and nothing is sent twice."""
    tool = Askable(ConnectionResetError())
    assert await outcome(stage, tool) == ("refunded", "")
    assert len(tool.calls) == 1


async def test_an_unexpected_error_without_a_lookup_is_unknown(stage: Stage) -> None:
    """One call, and a person gets the obligation. The error's own words go nowhere."""
    tool = Blind(ConnectionResetError("Анна Петрова"))
    parts, app = hosting(stage, tool)
    async with stage.working(parts), app:
        run = await stage.start()
        await run.execute_update(names.UPDATE_DECIDE, stage.decision(await stage.review(run)))
        result = await run.result()
        [owed] = [o for o in (await stage.view(run)).obligations if o.closed is None]
    assert result.outcome == "handed_off"
    assert (owed.kind, owed.owner) == ("unknown_effect", "support")
    assert "Анна" not in f"{result.reason}{owed.reason}"
    assert len(tool.calls) == 1


async def test_a_tool_that_claims_more_than_its_lookup_knows(stage: Stage) -> None:
    """The lookup disagrees with the result: unknown."""
    tool = Forgetful()
    result = await outcome(stage, tool)
    assert result[0] == "handed_off"
    assert len(tool.calls) == 1


async def test_arguments_that_the_tool_does_not_take(stage: Stage) -> None:
    """Nothing is executed, and the reason names parameters, not values."""

    class MoreParams(RefundParams):
        cause: str

    class Stricter(Blind):
        params = MoreParams

    tool = Stricter()
    assert await outcome(stage, tool) == ("handed_off", "ToolRefused")
    assert tool.calls == []
