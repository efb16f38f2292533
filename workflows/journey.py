"""Where one run stands: its process memory, what it waits for, and the one way to wait."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Literal, Never

from pydantic import ValidationError
from temporalio import workflow

from memory import reducer
from memory.process import (
    Entered,
    Process,
    Received,
)
from perdure.calls import Carried, CheckSeals, OpenRun
from perdure.errors import InvalidInput, PerdureError, StepRefused
from perdure.messages import (
    Decision,
    DecisionOutcome,
    FieldView,
    Principal,
    ProcessView,
    ReviewState,
    RunInput,
    RunMessage,
    RunResult,
)
from perdure.route import Step as RouteStep
from workflows import errands, panel
from workflows.attributes import show_run, show_waiting
from workflows.mail import Mail
from workflows.recollection import Recollection

MESSAGES_PER_EXECUTION = 200
"""An execution that took in so many messages starts afresh at the next idle moment."""
KEPT_REVIEWS = 100
NEXT_TASK = timedelta(milliseconds=1)


class Journey(Recollection):
    """The state of one run. What comes from outside changes it here alone, and only while the run waits or between
    steps."""

    def __init__(self, start: RunInput) -> None:
        carried = _carried(start) if workflow.info().continued_run_id else None
        self._fresh = carried is None
        super().__init__(Process.model_validate(carried.process) if carried else Process(run_id=start.run_id))
        self.start = start
        self.principal = Principal(tenant=start.tenant, actor=start.actor)
        self.mail = Mail() if carried is None else Mail(carried.decisions, carried.refused)
        self.began = carried.began if carried else workflow.now()
        self.step = carried.step if carried else ""
        self.entered = carried is not None and carried.entered
        self.since = carried.since if carried else self.began
        self.waiting_for = carried.waiting_for if carried else None
        self.openings = dict(carried.openings) if carried else {}
        self.warned = list(carried.warned) if carried else []
        self.approved = dict(carried.approved) if carried else {}
        self.waited = dict(carried.waited) if carried else {}
        self.reviews = list(carried.reviews) if carried else []
        self.review: ReviewState | None = None
        self.result: RunResult | None = None
        self._touches: dict[str, int] = {}
        self._answered_at: int | None = None

    # ------------------------------------------------------------ the route

    @property
    def memory_ends(self) -> datetime:
        """Working memory belongs to this run and does not outlive this moment."""
        return self.began + self.route.compliance.working_memory

    async def open(self) -> None:
        """Pin the route; begin, or go on where the execution before stopped.

        Only an execution that continues another carries anything: nobody else hands a run its memory.
        """
        if self._fresh and self.start.carried is not None:
            raise InvalidInput("a run is not started with carried state")
        self.opened = await errands.open_run(OpenRun(start=self.start, execution=workflow.info().run_id))
        self.is_open = True
        if self._fresh:
            self.process = reducer.begin(self.route, self.start.run_id, self.opened.input, workflow.now())
            self.step = self.route.start
        show_run(self.start.tenant, self.route.route, self.opened.subject_token)

    def enter(self) -> RouteStep:
        """The step to take; going on in it after a fresh start is no second visit."""
        if not self.entered:
            self.happens(Entered(step=self.step))
            self.openings.pop(self.step, None)
            self.entered = True
            self.waits_for(None)
        return self.route.steps[self.step]

    def go(self, step: str) -> None:
        self.step, self.entered = step, False

    def opened_review(self, review_id: str) -> None:
        """Remember it as one of this run's own, the newest few."""
        self.reviews = [*self.reviews, review_id][-KEPT_REVIEWS:]
        self.warned = [warned for warned in self.warned if warned in self.reviews]

    def touched(self, fields: Iterable[str]) -> int:
        """How often messages have set any of these fields."""
        return sum(self._touches.get(field, 0) for field in fields)

    # ------------------------------------------------------------ what comes in

    async def work_in(self) -> None:
        """Take in what has arrived: messages in their order, then decisions on reviews that are known."""
        news = self._has_mail()
        while self.mail.messages:
            await self._take(self.mail.messages.pop(0))
        while (decision := self.mail.due(self.reviews)) is not None:
            self.mail.decisions.remove(decision)
            with contextlib.suppress(PerdureError):
                await self.decide(decision)
        if news:
            self._show()

    async def decide(self, decision: Decision) -> DecisionOutcome:
        """Put a decision to the ledger; a refused one stays in sight."""
        try:
            outcome = await errands.decide(self.start.tenant, self.start.run_id, decision)
        except PerdureError as refusal:
            self.mail.refuse(f"decision {decision.decision_id}: {type(refusal).__name__}")
            raise
        if outcome.accepted:
            self.mail.decided.add(decision.review_id)
        else:
            self.mail.refuse(f"decision {decision.decision_id}: {outcome.refusal}")
        return outcome

    async def _take(self, message: RunMessage) -> None:
        """Take a message in once. Also a refused one makes us look again at what rests on its fields: the database
        withdrew that when the message was committed."""
        if message.id in self.process.seen:
            return
        try:
            await self._check_seals(message)
            self.happens(Received(message=message, step=self.step, at=workflow.now()))
        except PerdureError as refusal:
            self.mail.refuse(f"message {message.id}: {type(refusal).__name__}")
        for field in message.fields:
            self._touches[field] = self._touches.get(field, 0) + 1
        for name, approved in self.approved.items():
            if set(approved.rests_on) & set(message.fields):
                self.approved[name] = approved.model_copy(update={"fingerprint": None})

    async def _check_seals(self, message: RunMessage) -> None:
        """Whether masking made the personal texts; what is no masked text at all the reducer refuses."""
        texts = {field: message.fields[field] for field in self.personal(message.fields)}
        if texts and all(isinstance(text, dict) for text in texts.values()):
            await errands.check_seals(CheckSeals(principal=self.principal, texts=texts))

    # ------------------------------------------------------------ waiting

    async def wait(self, what: str, until: Callable[[], bool], due: datetime, *, idle: bool = True) -> bool:
        """Wait for ``until``, taking in what arrives; False when ``due`` comes first. An idle run may start afresh.

        Raises ``StepRefused`` when the run's working memory ends meanwhile.
        """
        self.waits_for(what)
        due = min(due, self.memory_ends)
        timer = asyncio.ensure_future(workflow.sleep(max(due - workflow.now(), timedelta(milliseconds=1))))
        try:
            while True:
                await self.work_in()
                if until():
                    return True
                if timer.done():
                    self._refuse_past_memory()
                    return False
                if idle and self._is_full():
                    await self.answered()
                    await self.work_in()
                    if not until() and not self._has_mail():
                        self._start_afresh()
                    continue
                await workflow.wait_condition(
                    lambda: timer.done() or until() or self._has_mail() or (idle and self._is_full())
                )
        finally:
            timer.cancel()

    async def while_held(self, *, idle: bool = True) -> None:
        """Go on only when nobody holds the run, and while its working memory lives."""
        await self.work_in()
        if self.process.held:
            await self.wait("resume", lambda: not self.process.held, self.memory_ends, idle=idle)
        self._refuse_past_memory()

    def _refuse_past_memory(self) -> None:
        if workflow.now() >= self.memory_ends:
            raise StepRefused("the run's working memory has reached its end")

    async def answer(self, decision: Decision) -> DecisionOutcome:
        """Put the decision of an update to the ledger."""
        try:
            return await self.decide(decision)
        finally:
            self._answered_at = workflow.info().get_current_history_length()
            self._show()

    async def answered(self) -> None:
        """Let every update have its answer. A task that answers one does not also close the execution: the signal that
        follows an accepted decision makes the server refuse such a task, and the answer is lost with it."""
        await workflow.wait_condition(workflow.all_handlers_finished)
        while self._answered_at == workflow.info().get_current_history_length():
            await workflow.sleep(NEXT_TASK)
            await workflow.wait_condition(workflow.all_handlers_finished)

    def _has_mail(self) -> bool:
        return bool(self.mail.messages) or self.mail.due(self.reviews) is not None

    def _is_full(self) -> bool:
        return self.mail.received >= MESSAGES_PER_EXECUTION or workflow.info().is_continue_as_new_suggested()

    def _start_afresh(self) -> Never:
        """Continue as new, with every handler ended and all mail worked in."""
        carried = self._carry().model_dump(mode="json")
        workflow.continue_as_new(self.start.model_copy(update={"version": self.opened.version, "carried": carried}))

    def _carry(self) -> Carried:
        return Carried(
            process=self.process.model_dump(mode="json"),
            began=self.began,
            step=self.step,
            entered=self.entered,
            waiting_for=self.waiting_for,
            since=self.since,
            openings=self.openings,
            warned=tuple(self.warned),
            approved=self.approved,
            waited=self.waited,
            reviews=tuple(self.reviews),
            decisions=tuple(self.mail.decisions),
            refused=tuple(self.mail.refused),
        )

    # ------------------------------------------------------------ what is shown

    def waits_for(self, what: str | None) -> None:
        """Show it, where it is new."""
        if what != self.waiting_for:
            self.waiting_for, self.since = what, workflow.now()
            show_waiting(what)
        self._show()

    def _show(self) -> None:
        workflow.set_current_details(panel.render(self.view(), self.review))

    def view(self) -> ProcessView:
        """Where the run stands, for a query and for the panel."""
        return ProcessView(
            run_id=self.start.run_id,
            route=self.start.route,
            version=self.opened.version if self.is_open else self.start.version or 0,
            step=self.step,
            status=self._status(),
            waiting_for=self.waiting_for,
            since=self.since,
            state={
                field: FieldView(value=held.value, event_id=held.event_id, set_by=held.set_by)
                for field, held in self.process.state.items()
            },
            obligations=self.process.obligations,
            refused_messages=(*self.process.refused_messages, *self.mail.refused),
            events=self.process.count,
            outcome=None if self.result is None else self.result.outcome,
        )

    def _status(self) -> Literal["running", "waiting", "held", "ended"]:
        if self.result is not None:
            return "ended"
        if self.process.held:
            return "held"
        return "running" if self.waiting_for is None else "waiting"

    def ended(self, result: RunResult) -> None:
        self.result, self.review = result, None
        self.waits_for(None)


def _carried(start: RunInput) -> Carried | None:
    try:
        return None if start.carried is None else Carried.model_validate(start.carried)
    except ValidationError:
        raise RuntimeError("the run's carried state has a shape that this version does not read") from None
