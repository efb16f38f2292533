"""An effect: reserve, execute, settle; carried out once, or known to be unknown."""

import asyncio
from datetime import datetime, timedelta
from typing import Literal

from temporalio import workflow

from perdure.calls import Approved, Reservation, ReserveRequest, SettleRequest, ToolBinding
from perdure.errors import AnswerLost, GrantExpired, LeaseLost, PerdureError, SubjectHeld, ToolUnavailable
from perdure.messages import EffectResult, ToolCall
from workflows import errands
from workflows.journey import Journey

LONGEST_PAUSE = timedelta(minutes=15)
SHORTEST_PAUSE = timedelta(seconds=1)


class Effect:
    """One approved intent on its way to the world. Whatever ends the run meanwhile, what was begun is settled."""

    def __init__(self, run: Journey, step: str, approved: Approved, binding: ToolBinding, sets: dict[str, str]) -> None:
        self._run = run
        self._step = step
        self._approved = approved
        self._binding = binding
        self._sets = sets
        self._lease = 3 * errands.one_attempt(binding) + errands.MARGIN
        self._begun = False
        self._maybe_executed = False
        self._pause = SHORTEST_PAUSE

    async def carry_out(self) -> EffectResult:
        """The one final result. Raises the refusal of the ledger, when it refuses."""
        while True:
            await self._run.while_held(idle=not self._begun)
            try:
                reservation = await errands.reserve(self._reserve_request())
            except SubjectHeld:
                await self._rest("resume", None)
                continue
            if reservation.status == "final" and reservation.result is not None:
                return self._known(reservation.key, reservation.result)
            if reservation.status == "in_flight":
                await self._sleep(f"effect:{self._step}", max(reservation.leased_until, _soon()))
                continue
            self._begun = True
            result = await errands.uninterrupted(self._act(reservation))
            if result is not None:
                return result
            await self._rest(f"tool:{self._binding.name}", reservation)

    async def _act(self, reservation: Reservation) -> EffectResult | None:
        """Execute and settle; None when another try may bring more."""
        self._maybe_executed |= reservation.status == "resumed"
        late = workflow.now() >= reservation.not_after
        result: EffectResult | None = None
        try:
            result = await self._execute(reservation) if self._maybe_executed or not late else _too_late(False)
        except (ToolUnavailable, GrantExpired):
            result = _too_late(self._maybe_executed) if late else None
        except AnswerLost:
            self._maybe_executed = True
            result = _too_late(True) if late else None
        except PerdureError as refusal:
            outcome: Literal["unknown", "not_executed"] = "unknown" if self._maybe_executed else "not_executed"
            result = EffectResult(outcome=outcome, reason=f"{type(refusal).__name__}: {refusal.message}")
        return None if result is None else await self._settle(reservation, result)

    async def _execute(self, reservation: Reservation) -> EffectResult:
        call = ToolCall(
            tenant=self._run.start.tenant,
            run_id=self._run.start.run_id,
            tool=self._approved.tool,
            arguments=self._approved.arguments,
            sets=self._sets,
            personal=self._run.personal(self._sets),
            timeout=self._binding.timeout,
            key=reservation.key,
            not_after=min(reservation.not_after, reservation.leased_until),
            resumed=self._maybe_executed,
        )
        return await errands.execute(self._binding, call, self._lease)

    async def _settle(self, reservation: Reservation, result: EffectResult) -> EffectResult | None:
        request = SettleRequest(
            principal=self._run.principal,
            run_id=self._run.start.run_id,
            key=reservation.key,
            fence=reservation.fence,
            result=result,
        )
        try:
            settled = await errands.settle(request)
        except LeaseLost:
            return None
        return self._known(reservation.key, settled)

    def _known(self, key: str, result: EffectResult) -> EffectResult:
        """That nobody knows is owed to somebody, even when the run is being cancelled."""
        if result.outcome == "unknown":
            self._run.owe("unknown_effect", key, self._run.route.handoff.owner, reason=result.reason or "")
        return result

    async def _rest(self, what: str, reservation: Reservation | None) -> None:
        """Wait a while; when the run is cancelled now, say first what is known of the effect."""
        due = workflow.now() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        if reservation is not None:
            due = max(min(due, reservation.not_after), _soon())
        try:
            await self._sleep(what, due)
        except asyncio.CancelledError:
            if reservation is not None:
                await errands.uninterrupted(self._settle(reservation, _given_up(self._maybe_executed)))
            raise

    async def _sleep(self, what: str, due: datetime) -> None:
        """Only before anything was begun may the run start afresh: its next execution is another holder."""
        await self._run.wait(what, lambda: False, due, idle=not self._begun)

    def _reserve_request(self) -> ReserveRequest:
        approved, run = self._approved, self._run
        return ReserveRequest(
            principal=run.principal,
            run_id=run.start.run_id,
            route=run.route.route,
            grant_id=approved.grant_id,
            intent_id=approved.intent_id,
            intent_version=approved.version,
            action=approved.action,
            tool=approved.tool,
            object_type=approved.object_type,
            object_id=approved.object_id,
            arguments=approved.arguments,
            amount=approved.amount,
            currency=approved.currency,
            holder=f"{workflow.info().run_id}/{self._step}.{run.visit(self._step)}",
            lease_for=self._lease,
        )


def _soon() -> datetime:
    return workflow.now() + SHORTEST_PAUSE


def _too_late(maybe_executed: bool) -> EffectResult:
    if maybe_executed:
        return EffectResult(outcome="unknown", reason="the target did not answer before the grant expired")
    return EffectResult(outcome="not_executed", reason="GrantExpired: the grant expired before the effect was executed")


def _given_up(maybe_executed: bool) -> EffectResult:
    if maybe_executed:
        return EffectResult(outcome="unknown", reason="the run was cancelled before the target told what became of it")
    return EffectResult(outcome="not_executed", reason="the run was cancelled before the effect was executed")
