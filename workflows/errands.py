"""What a run has others do: activities by name, how each is tried again, and what their failures mean."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import ValidationError
from temporalio import exceptions, workflow
from temporalio.common import RetryPolicy

from perdure import names
from perdure.calls import (
    CheckSeals,
    CloseReview,
    DecideReview,
    EndRun,
    ModelAnswer,
    ModelRequest,
    Note,
    OpenedRun,
    OpenRun,
    ReadReview,
    Reservation,
    ReserveRequest,
    ReviewRequest,
    SettleRequest,
    ToolBinding,
)
from perdure.errors import (
    NOT_RETRIED,
    AnswerLost,
    PerdureError,
    StepRefused,
    ToolUnavailable,
    VersionConflict,
    leaves,
)
from perdure.messages import Decision, DecisionOutcome, EffectResult, Principal, ReviewState, RunResult, ToolCall

T = TypeVar("T")

DATABASE = timedelta(seconds=15)
MODEL = timedelta(minutes=2)
MARGIN = timedelta(seconds=5)
PATIENCE = timedelta(minutes=5)
"""How long a step that only reads goes on asking before the run is handed off."""

_BY_NAME = {error.__name__: error for error in leaves(PerdureError)}


def _retries(initial: timedelta, *but: type[PerdureError]) -> RetryPolicy:
    return RetryPolicy(
        initial_interval=initial,
        maximum_interval=timedelta(seconds=30),
        non_retryable_error_types=[name for name in NOT_RETRIED if name not in {kind.__name__ for kind in but}],
    )


async def open_run(request: OpenRun) -> OpenedRun:
    return await _local(names.ACTIVITY_OPEN_RUN, request, OpenedRun)


async def end_run(request: EndRun) -> RunResult:
    return await _local(names.ACTIVITY_END_RUN, request, RunResult)


async def open_review(request: ReviewRequest) -> ReviewState:
    return await _local(names.ACTIVITY_OPEN_REVIEW, request, ReviewState)


async def read_review(principal: Principal, review_id: str) -> ReviewState:
    return await _local(names.ACTIVITY_READ_REVIEW, ReadReview(principal=principal, review_id=review_id), ReviewState)


async def close_review(request: CloseReview) -> ReviewState:
    return await _local(names.ACTIVITY_CLOSE_REVIEW, request, ReviewState)


async def warn(principal: Principal, review_id: str) -> ReviewState:
    return await _local(names.ACTIVITY_NOTE, Note(principal=principal, review_id=review_id), ReviewState)


async def decide(tenant: str, run_id: str, decision: Decision) -> DecisionOutcome:
    request = DecideReview(tenant=tenant, run_id=run_id, decision=decision)
    return await _local(names.ACTIVITY_DECIDE, request, DecisionOutcome)


async def check_seals(request: CheckSeals) -> None:
    await _local(names.ACTIVITY_CHECK_SEALS, request, type(None))


async def reserve(request: ReserveRequest) -> Reservation:
    return await _local(names.ACTIVITY_RESERVE, request, Reservation)


async def settle(request: SettleRequest) -> EffectResult:
    return await _local(names.ACTIVITY_SETTLE, request, EffectResult)


async def ask_model(request: ModelRequest) -> ModelAnswer:
    return await _remote(
        names.ACTIVITY_ASK_MODEL,
        request,
        ModelAnswer,
        start_to_close_timeout=MODEL,
        schedule_to_close_timeout=PATIENCE,
        retry_policy=_retries(timedelta(seconds=1)),
        summary=request.step,
    )


async def read(binding: ToolBinding, call: ToolCall) -> EffectResult:
    """Call a tool that changes nothing."""
    return await _remote(
        binding.activity,
        call,
        EffectResult,
        task_queue=binding.task_queue,
        start_to_close_timeout=binding.timeout + MARGIN,
        schedule_to_close_timeout=max(PATIENCE, 3 * (binding.timeout + MARGIN)),
        retry_policy=_retries(timedelta(seconds=1)),
        summary=call.tool,
    )


def one_attempt(binding: ToolBinding) -> timedelta:
    """An attempt at an effect may ask, call, and ask again."""
    return 3 * binding.timeout + MARGIN


async def execute(binding: ToolBinding, call: ToolCall, within: timedelta) -> EffectResult:
    """Call a tool that acts, once: whether to try again is the run's decision. Raises ``ToolUnavailable`` when nothing
    was done and ``AnswerLost`` when nobody knows."""
    return await _remote(
        binding.activity,
        call,
        EffectResult,
        task_queue=binding.task_queue,
        schedule_to_start_timeout=within - one_attempt(binding),
        start_to_close_timeout=one_attempt(binding),
        retry_policy=RetryPolicy(maximum_attempts=1),
        summary=call.tool,
    )


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Finish ``work`` even when the run is cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await workflow.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        await asyncio.gather(task, return_exceptions=True)
        raise cancelled
    return task.result()


async def _local(name: str, request: object, result: type[T]) -> T:
    """A piece of database work: short, and never left half known."""

    async def run() -> T:
        answer: T = await workflow.execute_local_activity(
            name,
            request,
            result_type=result,
            start_to_close_timeout=DATABASE,
            retry_policy=_retries(timedelta(milliseconds=200), VersionConflict),  # somebody wrote at the same time
        )
        return answer

    return await uninterrupted(_translated(run()))


async def _remote(name: str, request: object, result: type[T], **options: Any) -> T:
    return await _translated(workflow.execute_activity(name, request, result_type=result, **options))


async def _translated(work: Coroutine[Any, Any, T]) -> T:
    """An activity's failure as the error it began as. What is not ours is an answer that was lost; its message may hold
    values and is left behind. A local activity's failure comes as it is, any other wrapped."""
    try:
        return await work
    except (exceptions.ActivityError, exceptions.ApplicationError) as error:
        if exceptions.is_cancelled_exception(error):
            raise asyncio.CancelledError from None
        raise _meaning(error) from None
    except ValidationError:
        raise RuntimeError("an activity's result has a shape that this version does not read") from None


def refusal(reason: str) -> PerdureError:
    """The error that a reason such as ``ToolRefused: ...`` began as."""
    name, _, message = reason.partition(": ")
    return _BY_NAME[name](message) if name in _BY_NAME else StepRefused(reason)


def _meaning(error: exceptions.ActivityError | exceptions.ApplicationError) -> PerdureError:
    cause = error.cause if isinstance(error, exceptions.ActivityError) else error
    name = error.activity_type if isinstance(error, exceptions.ActivityError) else "an activity"
    if isinstance(cause, exceptions.ApplicationError):
        known = _BY_NAME.get(cause.type or "")
        return known(cause.message) if known else AnswerLost(f"{name} did not answer: {cause.type or 'failure'}")
    if isinstance(cause, exceptions.TimeoutError) and cause.type == exceptions.TimeoutType.SCHEDULE_TO_START:
        return ToolUnavailable(f"no worker took {name} in time")
    return AnswerLost(f"{name} did not answer: {type(cause).__name__}")
