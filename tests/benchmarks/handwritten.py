"""The refund as somebody would write it for Temporal alone: the same activities and waits, nothing else."""

import asyncio
import os
import signal
import sys
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.worker import Worker

from perdure import names
from perdure.calls import (
    Decided,
    EndRun,
    ModelAnswer,
    ModelRequest,
    OpenedRun,
    OpenRun,
    ReadReview,
    Reservation,
    ReserveRequest,
    ReviewRequest,
    SettleRequest,
)
from perdure.ids import digest
from perdure.messages import EffectResult, EvidenceRef, Principal, ReviewState, RunInput, RunResult, ToolCall

T = TypeVar("T")
RETRY = RetryPolicy(maximum_attempts=5)
EVIDENCE = ("charged_twice", "charge_id", "amount", "currency")


@workflow.defn(name="HandWrittenRefund")
class HandWrittenRefund:
    """Find the charge, ask for an approval, refund."""

    def __init__(self) -> None:
        self._decided = False

    @workflow.signal(name=names.SIGNAL_DECIDED)
    def decided(self, decided: Decided) -> None:
        self._decided = True

    @workflow.run
    async def run(self, start: RunInput) -> RunResult:
        principal = Principal(tenant=start.tenant, actor=start.actor)
        opened = await local(names.ACTIVITY_OPEN_RUN, OpenRun(start=start, execution=workflow.info().run_id), OpenedRun)
        charge = await self._call(start, "payments.find_charge", {"order_id": start.input["order_id"]}, {
            "charged_twice": "repeated", "charge_id": "last.id", "amount": "last.amount", "currency": "last.currency",
        })  # fmt: skip
        await remote(names.ACTIVITY_ASK_MODEL, self._question(start, charge.fields), ModelAnswer)
        request = self._review(principal, start, opened.version, charge.fields)
        state = await local(names.ACTIVITY_OPEN_REVIEW, request, ReviewState)
        await workflow.wait_condition(lambda: self._decided, timeout=timedelta(hours=72))
        state = await local(
            names.ACTIVITY_READ_REVIEW, ReadReview(principal=principal, review_id=state.review_id), ReviewState
        )
        reservation = await local(names.ACTIVITY_RESERVE, self._reserve(request, state), Reservation)
        result = await self._call(
            start, "payments.refund", request.arguments, {"refund_id": "refund.id"},
            key=reservation.key, not_after=reservation.not_after,
        )  # fmt: skip
        settled = SettleRequest(
            principal=principal, run_id=start.run_id, key=reservation.key, fence=reservation.fence, result=result
        )
        await local(names.ACTIVITY_SETTLE, settled, EffectResult)
        end = RunResult(outcome="refunded", step="refunded")
        await local(
            names.ACTIVITY_END_RUN,
            EndRun(principal=principal, run_id=start.run_id, route="refund", opened=True, result=end, obligations=()),
            RunResult,
        )
        return end

    async def _call(
        self, start: RunInput, tool: str, arguments: dict[str, Any], sets: dict[str, str], **effect: Any
    ) -> EffectResult:
        call = ToolCall(
            tenant=start.tenant, run_id=start.run_id, tool=tool, arguments=arguments, sets=sets,
            timeout=timedelta(seconds=5), **effect,
        )  # fmt: skip
        return await remote(names.ACTIVITY_CALL_TOOL, call, EffectResult)

    def _question(self, start: RunInput, fields: dict[str, Any]) -> ModelRequest:
        return ModelRequest(
            tenant=start.tenant, run_id=start.run_id, route="refund", step="explain",
            prompt="Explain in two sentences to the reviewer what the customer reports and what the payments say.",
            reads={"complaint": start.input["complaint"]["masked"], **fields}, sets={"explanation": "text"},
        )  # fmt: skip

    def _review(self, principal: Principal, start: RunInput, version: int, fields: dict[str, Any]) -> ReviewRequest:
        return ReviewRequest(
            principal=principal, run_id=start.run_id, route="refund", route_version=version, step="approve",
            opening="approve.1.1", intent_id=f"int_{start.run_id}_approve_1", action="refund", tool="payments.refund",
            object_type="charge", object_id=fields["charge_id"],
            arguments={name: fields[name] for name in ("charge_id", "amount", "currency")},
            amount=fields["amount"], currency=fields["currency"],
            evidence=tuple(
                EvidenceRef(field=f, event_id="ev_2", digest=digest(fields[f]), value=fields[f]) for f in EVIDENCE
            ),
            rests_on=("charge_id", "amount", "currency", "charged_twice"), future_uses=("one refund of this charge",),
            approvers=("approver",), expires_after=timedelta(hours=72), warn_before=timedelta(hours=4),
        )  # fmt: skip

    def _reserve(self, request: ReviewRequest, state: ReviewState) -> ReserveRequest:
        return ReserveRequest(
            principal=request.principal, run_id=request.run_id, route="refund", grant_id=state.grant_id or "",
            intent_id=request.intent_id, intent_version=state.version, action=request.action, tool=request.tool,
            object_type=request.object_type, object_id=request.object_id, arguments=request.arguments,
            amount=request.amount, currency=request.currency, holder=workflow.info().run_id,
            lease_for=timedelta(minutes=1),
        )  # fmt: skip


async def local(name: str, request: object, result: type[T]) -> T:
    answer: T = await workflow.execute_local_activity(
        name, request, result_type=result, start_to_close_timeout=timedelta(seconds=15), retry_policy=RETRY
    )
    return answer


async def remote(name: str, request: object, result: type[T]) -> T:
    answer: T = await workflow.execute_activity(
        name, request, result_type=result, start_to_close_timeout=timedelta(seconds=15), retry_policy=RETRY
    )
    return answer


async def serve() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with AsyncExitStack() as stack:
        parts = await compose(Settings(), stack)
        activities = parts.worker().config()["activities"]
        async with Worker(
            parts.client,
            task_queue="handwritten",
            workflows=[HandWrittenRefund],
            workflow_runner=sandbox(),
            activities=activities,
        ):
            await stop.wait()


if __name__ == "__main__":
    from memory.settings import Settings
    from worker import compose, sandbox

    asyncio.run(serve())
    sys.stdout.flush()
    time.sleep(0.5)
    os._exit(0)
