"""How a run ends: what is still owed is closed or handed to somebody, and the end is written down."""

from memory import reducer
from memory.process import Closing
from perdure.calls import EndRun
from perdure.errors import PerdureError
from perdure.messages import RunResult
from workflows import errands
from workflows.journey import Journey


def arrived(run: Journey, outcome: str) -> RunResult:
    """At an end step."""
    _close_all(run, "done")
    return _result(run, outcome, None)


def handed_off(run: Journey, refusal: PerdureError) -> RunResult:
    """At the hand-off point: somebody owes what the run could not finish."""
    reason = _reason(refusal)
    _close_all(run, "handed_off")
    if not _open(run):
        run.owe("handoff", f"{run.step}.handoff", run.route.handoff.owner, reason=reason)
    return _result(run, "handed_off", reason)


def cancelled(run: Journey) -> RunResult:
    """Somebody stopped it; what nobody knows stays owed."""
    _close_all(run, "cancelled")
    return _result(run, "cancelled", None)


def refused(run: Journey, refusal: PerdureError) -> RunResult:
    """It could not begin."""
    return _result(run, "refused", _reason(refusal))


async def end(run: Journey, result: RunResult) -> RunResult:
    """Write the end down, answer everybody who waits for an answer, and be seen to have ended.

    The first end that was written down is the result: a task that is taken again, or a reset, makes no second one.
    """
    result = await errands.end_run(
        EndRun(
            principal=run.principal,
            run_id=run.start.run_id,
            route=run.start.route,
            opened=run.is_open,
            result=result,
            obligations=run.process.obligations,
        )
    )
    await run.answered()
    run.ended(result)
    return result


def _close_all(run: Journey, how: Closing) -> None:
    """An effect of which nobody knows stays open: only a person can close it."""
    for owed in reducer.owed_now(run.process):
        if owed.kind != "unknown_effect":
            run.close(owed.id, how)


def _open(run: Journey) -> tuple[str, ...]:
    return tuple(owed.id for owed in reducer.owed_now(run.process))


def _result(run: Journey, outcome: str, reason: str | None) -> RunResult:
    return RunResult(outcome=outcome, step=run.step, reason=reason, obligations_open=_open(run))


def _reason(refusal: PerdureError) -> str:
    return f"{type(refusal).__name__}: {refusal.message}"
