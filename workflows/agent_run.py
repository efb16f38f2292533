"""AgentRun: one execution of a route, from its start to an end that is written down."""

import asyncio
from typing import assert_never

from pydantic import ValidationError
from temporalio import workflow

from perdure import names
from perdure.calls import Decided
from perdure.errors import InvalidInput, PerdureError
from perdure.messages import Decision, DecisionOutcome, ProcessView, RunInput, RunMessage, RunResult
from perdure.route import ApprovalStep, EndStep, ModelStep, ToolStep, WaitStep
from workflows import approval, ending, steps
from workflows.journey import Journey


@workflow.defn(name=names.WORKFLOW_AGENT_RUN, failure_exception_types=[PerdureError, ValidationError])
class AgentRun:
    """Takes the steps of its route one by one. Whatever stops it, it ends with a result and owes nothing in silence."""

    @workflow.init
    def __init__(self, start: RunInput) -> None:
        self._run = Journey(start)
        self._travelling: asyncio.Task[RunResult] | None = None
        self._cancelled_by_message = False

    @workflow.run
    async def run(self, start: RunInput) -> RunResult:
        if workflow.info().workflow_id != names.workflow_id(start.tenant, start.run_id):
            raise InvalidInput("the workflow's id is not run:<tenant>:<run id> of its input; nothing was done")
        self._travelling = asyncio.ensure_future(self._travel())
        if self._cancelled_by_message:
            self._travelling.cancel()
        try:
            result = await self._travelling
        except asyncio.CancelledError:
            result = await ending.end(self._run, ending.cancelled(self._run))
            if self._cancelled_by_message:
                return result
            raise
        return await ending.end(self._run, result)

    async def _travel(self) -> RunResult:
        run = self._run
        try:
            await run.open()
        except PerdureError as refusal:
            return ending.refused(run, refusal)
        try:
            while True:
                await run.while_held()
                step = run.enter()
                if isinstance(step, EndStep):
                    return ending.arrived(run, step.outcome)
                run.go(await self._take(step))
        except PerdureError as refusal:
            return ending.handed_off(run, refusal)

    async def _take(self, step: ModelStep | ToolStep | ApprovalStep | WaitStep) -> str:
        name = self._run.step
        match step:
            case ModelStep():
                return await steps.ask(self._run, name, step)
            case ToolStep():
                return await steps.use(self._run, name, step)
            case ApprovalStep():
                return await approval.seek(self._run, name, step)
            case WaitStep():
                return await steps.await_message(self._run, name, step)
            case _:
                assert_never(step)

    @workflow.signal(name=names.SIGNAL_MESSAGE)
    def message(self, message: RunMessage) -> None:
        if message.kind != "cancel":
            self._run.mail.message(message)
            return
        self._cancelled_by_message = True
        if self._travelling is not None:
            self._travelling.cancel()

    @workflow.signal(name=names.SIGNAL_DECIDE)
    def decide_by_signal(self, decision: Decision) -> None:
        self._run.mail.decision(decision)

    @workflow.signal(name=names.SIGNAL_DECIDED)
    def decided(self, decided: Decided) -> None:
        self._run.mail.decided_elsewhere(decided)

    @workflow.update(name=names.UPDATE_DECIDE)
    async def decide(self, decision: Decision) -> DecisionOutcome:
        return await self._run.answer(decision)

    @workflow.query(name=names.QUERY_PROCESS)
    def process(self) -> ProcessView:
        return self._run.view()
