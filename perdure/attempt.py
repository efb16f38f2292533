"""One attempt at a tool call: the rules that keep an effect single, whoever hosts the tool."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from pydantic import ValidationError

from perdure.errors import AnswerLost, GrantExpired, ResultTooLarge, StepRefused, ToolRefused, UnmaskedText
from perdure.ids import canonical
from perdure.masked import MaskedText
from perdure.messages import EffectResult, ObjectRef, ToolCall

FIELD_LIMIT_BYTES = 16_000
"""What one declared value may take of a run's memory."""


@dataclass(frozen=True)
class Answer:
    """A target's whole answer: the parsed ``value`` and the bytes it came in."""

    value: Any
    raw: bytes


class Target(Protocol):
    """What a tool call goes to.

    ``execute`` raises ``ToolRefused`` (nothing was done, and never will be), ``ToolUnavailable`` (nothing was done, a
    later try may pass) or ``AnswerLost`` (nobody knows). ``lookup`` returns the answer of an effect that happened, None
    for one that did not, and raises ``AnswerLost`` when the target cannot be asked.
    """

    @property
    def can_lookup(self) -> bool: ...

    @property
    def required(self) -> frozenset[str]:
        """Dotted paths that an answer must have."""
        ...

    async def execute(self, call: ToolCall, within: timedelta) -> Answer: ...

    async def lookup(self, call: ToolCall) -> Answer | None: ...


Problem = StepRefused | UnmaskedText
Keep = Callable[[Answer], Awaitable[ObjectRef | None]]
"""Puts a large answer somewhere else; returns None for one that is small enough."""


async def keep_nothing(answer: Answer) -> ObjectRef | None:
    """For a worker that has no object store: only the declared values survive."""
    return None


async def attempt(target: Target, call: ToolCall, number: int, keep: Keep = keep_nothing) -> EffectResult:
    """Carry out a call; ``number`` counts the attempts of the activity from 1.

    An effect is sent at most once by anyone who cannot ask the target what became of it. Raises ``GrantExpired`` when
    it is too late to begin, and what ``Target`` raises.
    """
    if call.key is None:
        return await _read(target, call, keep)
    if call.resumed or number > 1:
        if not target.can_lookup:
            return _unknown("an earlier attempt may have reached the target, and the target cannot be asked")
        found = await target.lookup(call)
        if found is not None:
            return await _done(target, call, found, keep)
    try:
        answer = await target.execute(call, _time_left(call))
    except ToolRefused as refusal:
        return EffectResult(outcome="not_executed", reason=f"ToolRefused: {refusal.message}")
    except AnswerLost as lost:
        if target.can_lookup:
            raise
        return _unknown(f"{lost.message}, and the target cannot be asked")
    if target.can_lookup and await target.lookup(call) is None:
        return _unknown("the target accepted the call, but its lookup does not know the effect")
    return await _done(target, call, answer, keep)


def _time_left(call: ToolCall) -> timedelta:
    if call.not_after is None:
        return call.timeout
    left = call.not_after - datetime.now(UTC)
    if left <= timedelta(0):
        raise GrantExpired(f"too late for {call.tool}: nothing was executed", key=call.key)
    return min(call.timeout, left)


def _unknown(reason: str) -> EffectResult:
    return EffectResult(outcome="unknown", reason=reason)


async def _read(target: Target, call: ToolCall, keep: Keep) -> EffectResult:
    answer = await target.execute(call, call.timeout)
    fields, problem = _declared(target, call, answer)
    if problem is not None:
        raise problem
    return EffectResult(outcome="done", fields=fields, digest=_digest(answer), object=await keep(answer))


async def _done(target: Target, call: ToolCall, answer: Answer, keep: Keep) -> EffectResult:
    """What was executed stays executed, so a problem with its answer is a reason and not an error."""
    fields, problem = _declared(target, call, answer)
    reason = None if problem is None else f"{type(problem).__name__}: {problem.message}"
    stored = await keep(answer)
    return EffectResult(outcome="done", fields=fields, digest=_digest(answer), object=stored, reason=reason)


def _digest(answer: Answer) -> str:
    return hashlib.sha256(answer.raw).hexdigest()


def _declared(target: Target, call: ToolCall, answer: Answer) -> tuple[dict[str, Any], Problem | None]:
    """The values asked for, and the first problem with one of them."""
    fields: dict[str, Any] = {}
    problem: Problem | None = None
    for field, path in call.sets.items():
        found, value = select(answer.value, path)
        if found and value is not None:
            wrong = _wrong(field, value, field in call.personal)
        else:
            wrong = StepRefused(f"the answer of {call.tool} has no {path!r}") if path in target.required else None
        if wrong is None and found and value is not None:
            fields[field] = value
        problem = problem or wrong
    return fields, problem


def _wrong(field: str, value: Any, personal: bool) -> Problem | None:
    if personal:
        try:
            MaskedText.model_validate(value)
        except ValidationError:
            return UnmaskedText(f"field {field!r} came from a tool without having been masked")
    try:
        size = len(canonical(value))
    except (TypeError, ValueError):
        return StepRefused(f"field {field!r} has a value without a canonical form")
    if size > FIELD_LIMIT_BYTES:
        return ResultTooLarge(f"field {field!r} has {size} bytes, {FIELD_LIMIT_BYTES} are allowed")
    return None


def select(value: Any, path: str) -> tuple[bool, Any]:
    """Follow a dotted path through objects and, by index, lists; ``(False, None)`` when it leads nowhere."""
    for part in path.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return False, None
    return True, value
