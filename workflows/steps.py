"""The steps that are not approvals: ask a model, use a tool, wait for a message."""

from datetime import timedelta
from typing import Any

from temporalio import workflow

from memory import reducer
from perdure.calls import ModelRequest
from perdure.errors import GrantExceeded, StepRefused
from perdure.messages import EffectResult, ToolCall
from perdure.route import ApprovalStep, ModelStep, ToolStep, WaitStep
from workflows import approval, errands
from workflows.effect import Effect
from workflows.journey import Journey

MESSAGE_ON_ITS_WAY = timedelta(seconds=30)
"""How long to wait for the message that took a grant back, before its refusal counts."""


async def ask(run: Journey, name: str, step: ModelStep) -> str:
    """Let a model set what a model may set."""
    answer = await errands.ask_model(
        ModelRequest(
            tenant=run.start.tenant,
            run_id=run.start.run_id,
            route=run.route.route,
            step=name,
            prompt=step.prompt,
            reads={field: _shown(run.process.state[field].value) for field in step.reads if field in run.process.state},
            sets={field: run.route.state[field].type for field in step.sets},
        )
    )
    run.record("model", name, answer.fields)
    return reducer.choose_next(step, run.process)


def _shown(value: Any) -> Any:
    """A model sees masked text as text."""
    return value["masked"] if isinstance(value, dict) and set(value) == {"masked", "detector", "seal"} else value


async def use(run: Journey, name: str, step: ToolStep) -> str:
    """Read the world, or act on it by an approved intent."""
    if step.intent is not None:
        return await _act(run, name, step, step.intent)
    tool = step.tool or ""
    binding = run.opened.tools[tool]
    result = await errands.read(
        binding,
        ToolCall(
            tenant=run.start.tenant,
            run_id=run.start.run_id,
            tool=tool,
            arguments=reducer.arguments_of(step.arguments, run.process),
            sets=step.sets,
            personal=run.personal(step.sets),
            timeout=binding.timeout,
        ),
    )
    run.record("tool", name, result.fields)
    return reducer.choose_next(step, run.process)


async def _act(run: Journey, name: str, step: ToolStep, approval_step: str) -> str:
    asked = run.route.steps[approval_step]
    if not isinstance(asked, ApprovalStep):
        raise StepRefused(f"step {name}: {approval_step} is no approval")
    while True:
        if _no_longer_fits(run, approval_step):
            chosen = await approval.seek(run, approval_step, asked)
            if chosen != asked.approved:
                return chosen
        approved = run.approved[approval_step]
        try:
            result = await Effect(run, name, approved, run.opened.tools[approved.tool], step.sets).carry_out()
        except GrantExceeded:
            if await _taken_back(run, approval_step):
                continue
            raise
        _refuse_unless_done(result)
        run.record("tool", name, result.fields)
        return reducer.choose_next(step, run.process)


def _no_longer_fits(run: Journey, approval_step: str) -> bool:
    """Whether what was approved has changed since, so that it has to be asked again."""
    approved = run.approved.get(approval_step)
    if approved is None:
        raise StepRefused(f"nothing was approved in step {approval_step}")
    return approved.fingerprint != approval.fingerprint(run, approved.rests_on)


async def _taken_back(run: Journey, approval_step: str) -> bool:
    due = workflow.now() + MESSAGE_ON_ITS_WAY
    return await run.wait("message", lambda: run.approved[approval_step].fingerprint is None, due, idle=False)


def _refuse_unless_done(result: EffectResult) -> None:
    if result.outcome != "done" or result.reason is not None:
        raise errands.refusal(result.reason or f"the effect is {result.outcome}")


async def await_message(run: Journey, name: str, step: WaitStep) -> str:
    """Wait until messages have set every field that is asked for, since this step was left last."""
    task = f"{name}.{run.visit(name)}"
    due = run.owe("wait", task, "user", workflow.now() + step.timeout).due_at or workflow.now()

    def answered() -> bool:
        found = [(field, run.answers(field)) for field in step.sets]
        return all(event is not None and event != run.waited.get(f"{name}.{field}") for field, event in found)

    if await run.wait(f"message:{name}", answered, due):
        run.waited.update({f"{name}.{field}": run.event_of(field) for field in step.sets})
        run.close(task, "done")
        return step.next
    run.close(task, "expired")
    if step.on_timeout is None:
        raise StepRefused(f"nobody answered step {name} in time")
    return step.on_timeout
