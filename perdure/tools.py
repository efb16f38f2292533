"""Host your own tools: in your worker, on your task queue, with the guarantees of the built-in ones."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from temporalio import activity

from perdure.attempt import Answer, attempt
from perdure.errors import AnswerLost, ToolRefused, ToolUnavailable
from perdure.messages import EffectResult, ToolCall
from perdure.names import TOOL_ACTIVITY_PREFIX

P = TypeVar("P", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True)
class Call:
    """What a tool knows about one call. ``key`` (pass it on to the provider) and ``not_after`` are None for a tool that
    only reads."""

    tenant: str
    run_id: str
    key: str | None
    not_after: datetime | None


class Tool(Generic[P, R]):
    """One tool. Subclass it, name it as the tools file does, and give ``activities([...])`` to your worker.

    ``execute`` is called at most once per effect unless ``lookup`` says that it did not happen. In ``execute`` raise
    ``ToolRefused`` when nothing was done and never will be, ``ToolUnavailable`` when nothing was done and a later try
    may pass; any other exception means that nobody knows.

    Example::

        class Refund(Tool[RefundParams, Refunded]):
            name = "payments.refund"
            params = RefundParams
            result = Refunded

            async def execute(self, call, params): ...
            async def lookup(self, key): ...
    """

    name: ClassVar[str]
    params: ClassVar[type[BaseModel]]
    result: ClassVar[type[BaseModel]]

    async def execute(self, call: Call, params: P) -> R:
        """Do it."""
        raise NotImplementedError

    async def lookup(self, key: str) -> R | None:
        """The result of the effect with this key; None when it did not happen. Leave it out if nobody can tell."""
        raise NotImplementedError


def activities(tools: Sequence[Tool[Any, Any]]) -> list[Callable[[ToolCall], Any]]:
    """The activities for ``temporalio.worker.Worker(activities=...)``, one per tool: ``tool:<name>``."""
    return [_activity(tool) for tool in tools]


def _activity(tool: Tool[Any, Any]) -> Callable[[ToolCall], Any]:
    target = _Hosted(tool)

    @activity.defn(name=TOOL_ACTIVITY_PREFIX + tool.name)
    async def call_tool(call: ToolCall) -> EffectResult:
        return await attempt(target, call, activity.info().attempt)

    return call_tool


class _Hosted:
    """A tool as the target of an attempt."""

    def __init__(self, tool: Tool[Any, Any]) -> None:
        self._tool = tool
        self.can_lookup = type(tool).lookup is not Tool.lookup
        self.required = frozenset(name for name, field in tool.result.model_fields.items() if field.is_required())

    async def execute(self, call: ToolCall, within: timedelta) -> Answer:
        try:
            params = self._tool.params.model_validate(call.arguments)
        except ValidationError as error:
            wrong = ", ".join(sorted({".".join(map(str, e["loc"])) for e in error.errors(include_input=False)}))
            raise ToolRefused(f"{call.tool} does not take these arguments: {wrong}") from None
        known = Call(call.tenant, call.run_id, call.key, call.not_after)
        try:
            async with asyncio.timeout(within.total_seconds()):
                return _answer(await self._tool.execute(known, params))
        except (ToolRefused, ToolUnavailable, AnswerLost):
            raise
        except Exception as error:  # noqa: BLE001 - the app's own: its message may hold values, its type does not
            lost = AnswerLost if call.key is not None else ToolUnavailable
            raise lost(f"{call.tool} ended in {type(error).__name__}") from None

    async def lookup(self, call: ToolCall) -> Answer | None:
        try:
            async with asyncio.timeout(call.timeout.total_seconds()):
                found = await self._tool.lookup(call.key or "")
        except Exception as error:  # noqa: BLE001 - as above
            raise AnswerLost(f"the lookup of {call.tool} ended in {type(error).__name__}") from None
        return None if found is None else _answer(found)


def _answer(result: BaseModel) -> Answer:
    return Answer(result.model_dump(mode="json"), result.model_dump_json().encode())
