"""The only thing that changes process memory: pure functions of a route, a process and what happened."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, assert_never

from memory.admission import kept
from memory.conditions import holds
from memory.process import (
    Closed,
    Closing,
    Entered,
    Happening,
    ObligationKind,
    Owed,
    Process,
    ProcessEvent,
    Received,
    Recorded,
    Source,
    StateValue,
    Summarised,
)
from perdure.errors import InvalidInput, NotAuthorized, Refusal, StepRefused
from perdure.ids import canonical, digest
from perdure.messages import Obligation, RunMessage
from perdure.route import (
    ApprovalStep,
    Argument,
    Arguments,
    InputField,
    ModelStep,
    Route,
    Setter,
    StateField,
    Step,
    ToolStep,
)

KEPT_EVENTS = 200
STATE_LIMIT_BYTES = 1_000_000
"""A run travels with its state, and Temporal carries two megabytes."""
KEPT_SEEN = 500
KEPT_REFUSED = 20
KEPT_CLOSED = 100


# ---------------------------------------------------------------- what may come in


def validate_input(route: Route, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The input of a run as it is kept. Raises ``InvalidInput`` (missing, unknown, wrong type) and ``UnmaskedText``."""
    missing = sorted(name for name, field in route.input.items() if field.required and name not in raw)
    if missing:
        raise InvalidInput(f"input lacks {', '.join(missing)}", fields=missing)
    _refuse_unknown(raw, route.input)
    return {name: kept(name, route.input[name], raw[name]) for name in sorted(raw)}


def admit(route: Route, source: Source | Setter, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as they are kept, when ``source`` may set every one of them.

    Raises ``InvalidInput`` (unknown, wrong type, not one of the choices, a float), ``NotAuthorized`` (``set_by``) and
    ``UnmaskedText``.
    """
    given = sorted(name for name in fields if name in route.input and name not in route.state)
    if given:
        raise NotAuthorized(f"{', '.join(given)}: input is set once, at the start", fields=given)
    _refuse_unknown(fields, route.state)
    barred = sorted(name for name in fields if source not in route.state[name].set_by)
    if barred:
        raise NotAuthorized(f"{str(source)!r} may not set {', '.join(barred)}", fields=barred)
    return {name: kept(name, route.state[name], fields[name]) for name in sorted(fields)}


def _refuse_unknown(given: Mapping[str, Any], declared: Mapping[str, object]) -> None:
    """Names that the route does not know are counted, not quoted: they are whatever the caller wrote."""
    unknown = sum(name not in declared for name in given)
    if unknown:
        raise InvalidInput(f"{unknown} of the fields given are not in the route", known=sorted(declared))


# ---------------------------------------------------------------- what happens


def begin(route: Route, run_id: str, raw: Mapping[str, Any], at: datetime) -> Process:
    """The memory of a run that starts. It has nothing of any other run."""
    return _set(Process(run_id=run_id), "input", "", validate_input(route, raw), at, _fields_of(route))


def apply(route: Route, process: Process, event: Happening) -> Process:
    """The memory after ``event``. The same events in the same order always give the same memory.

    Raises what ``admit`` raises for ``Recorded``, ``StepRefused`` for a visit too many and ``InvalidInput`` for an
    obligation that is not open; a ``Received`` message never raises, a bad one is remembered as refused.
    """
    match event:
        case Entered(step=step):
            return enter(route, process, step)
        case Recorded(source=source, step=step, fields=fields, at=at):
            return record(route, process, source, step, fields, at)
        case Received(message=message, at=at, step=step):
            return receive(route, process, message, at, step)
        case Owed(kind=kind, id=task, owner=owner, at=at, due=due, reason=reason):
            return open_obligation(process, kind, task, owner, at, due, reason)
        case Closed(id=task, how=how, at=at):
            return close_obligation(process, task, how, at)
        case Summarised(summary=summary):
            return process.model_copy(update={"summary": summary})
        case _:
            assert_never(event)


def enter(route: Route, process: Process, step: str) -> Process:
    """Come to a step. Raises ``StepRefused`` when it was visited ``max_visits`` times before."""
    if step not in route.steps:
        raise StepRefused("the route has no such step", step=step)
    visits, most = process.visits.get(step, 0) + 1, route.steps[step].max_visits
    if most is not None and visits > most:
        raise StepRefused(f"step {step} was visited {most} times and may not be visited again", step=step)
    return process.model_copy(update={"step": step, "visits": {**process.visits, step: visits}})


def record(
    route: Route, process: Process, source: Source, step: str, fields: Mapping[str, Any], at: datetime
) -> Process:
    """Set fields on the authority of ``source``, all or none. Raises as ``admit`` does."""
    return _set(process, source, step, admit(route, source, fields), at, _fields_of(route))


def receive(route: Route, process: Process, message: RunMessage, at: datetime, step: str = "") -> Process:
    """Take in a message once. One that the route does not allow changes nothing but ``refused_messages``."""
    if message.id in process.seen:
        return process
    seen = process.model_copy(update={"seen": (*process.seen, message.id)[-KEPT_SEEN:]})
    source: Source = "user" if message.kind == "message" else "tool" if message.kind == "evidence" else "system"
    held = {"hold": True, "resume": False}.get(message.kind, process.held)
    cancel = process.cancel_requested or message.kind == "cancel"
    taken = seen.model_copy(update={"held": held, "cancel_requested": cancel})
    event_id = f"message:{message.id}"
    try:
        admitted = _fields_of_message(route, message, source)
        return _set(taken, source, step, admitted, at, _fields_of(route), event_id=event_id, kind=message.kind)
    except Refusal as refusal:
        refused = (*process.refused_messages, f"{message.id}: {type(refusal).__name__}")[-KEPT_REFUSED:]
        return seen.model_copy(update={"refused_messages": refused})


def _fields_of_message(route: Route, message: RunMessage, source: Source) -> dict[str, Any]:
    if message.kind in ("message", "evidence"):
        return admit(route, source, message.fields)
    if message.fields:
        raise InvalidInput(f"{message.kind} carries no fields")
    return {}


def _set(
    process: Process,
    source: Source,
    step: str,
    fields: dict[str, Any],
    at: datetime,
    declared: Mapping[str, InputField | StateField],
    *,
    event_id: str | None = None,
    kind: str = "recorded",
) -> Process:
    event = ProcessEvent(
        id=event_id or f"ev_{process.count + 1}",
        type=kind,
        at=at,
        source=source,
        step=step,
        fields=tuple(fields),
        digest=digest(fields) if fields else None,
    )
    changed = {
        name: StateValue(value=value, type=declared[name].type, event_id=event.id, set_by=source)
        for name, value in fields.items()
    }
    state = {**process.state, **changed}
    if sum(len(canonical(held.value)) for held in state.values()) > STATE_LIMIT_BYTES:
        raise InvalidInput(f"the run's memory is full: its fields may take {STATE_LIMIT_BYTES} bytes together")
    return _with(process.model_copy(update={"state": state}), event)


def _with(process: Process, event: ProcessEvent) -> Process:
    events = (*process.events, event)
    if len(events) > KEPT_EVENTS:
        rested_on = {found.event_id for found in process.state.values()}
        older, newest = events[:-KEPT_EVENTS], events[-KEPT_EVENTS:]
        events = (*(one for one in older if one.id in rested_on), *newest)
    return process.model_copy(update={"events": events, "count": process.count + 1})


def _fields_of(route: Route) -> dict[str, InputField | StateField]:
    return {**route.input, **route.state}


# ---------------------------------------------------------------- what is owed


def open_obligation(
    process: Process,
    kind: ObligationKind,
    task: str,
    owner: str,
    at: datetime,
    due: datetime | None = None,
    reason: str = "",
) -> Process:
    """Owe something. A task that is open already stays as it is; one that was closed may be opened again."""
    if any(owed.id == task for owed in owed_now(process)):
        return process
    owed = Obligation(id=task, kind=kind, owner=owner, opened_at=at, due_at=due, reason=reason)
    kept = _forget_oldest_closed(process.obligations)
    event = ProcessEvent(id=f"ev_{process.count + 1}", type="owed", at=at, source="system", step=process.step)
    return _with(process.model_copy(update={"obligations": (*kept, owed)}), event)


def close_obligation(process: Process, task: str, how: Closing, at: datetime) -> Process:
    """Close what is owed. Raises ``InvalidInput`` when no such task is open: nothing is closed twice or by guess."""
    if all(owed.id != task for owed in owed_now(process)):
        raise InvalidInput("no such obligation is open", obligation=task)
    obligations = tuple(
        owed.model_copy(update={"closed": how, "closed_at": at}) if owed.id == task and owed.closed is None else owed
        for owed in process.obligations
    )
    event = ProcessEvent(id=f"ev_{process.count + 1}", type="closed", at=at, source="system", step=process.step)
    return _with(process.model_copy(update={"obligations": obligations}), event)


def owed_now(process: Process) -> tuple[Obligation, ...]:
    """What is open."""
    return tuple(owed for owed in process.obligations if owed.closed is None)


def _forget_oldest_closed(obligations: tuple[Obligation, ...]) -> tuple[Obligation, ...]:
    """Open ones are never forgotten; of the closed ones the newest are kept, and the end lists them."""
    closed = [owed for owed in obligations if owed.closed is not None]
    gone = {id(owed) for owed in closed[: max(0, len(closed) - KEPT_CLOSED)]}
    return tuple(owed for owed in obligations if id(owed) not in gone)


# ---------------------------------------------------------------- what follows


def choose_next(step: Step, process: Process) -> str:
    """The step after a model or tool step. Raises ``StepRefused`` when no branch holds or the step has none."""
    if not isinstance(step, ModelStep | ToolStep):
        raise StepRefused(f"a step of kind {step.kind} has no branches")
    if isinstance(step.next, str):
        return step.next
    for branch in step.next:
        if branch.when is None or holds(branch.when, process):
            return branch.go
    raise StepRefused("no branch holds")


def arguments_of(arguments: Arguments, process: Process) -> dict[str, Any]:
    """The arguments with the values of the fields they name. Raises ``StepRefused`` for a field that is not set."""
    values: dict[str, Any] = {}
    for name, source in arguments.items():
        if isinstance(source, Argument):
            values[name] = source.value
        elif source in process.state:
            values[name] = process.state[source].value
        else:
            raise StepRefused(f"field {source} is not set", field=source)
    return values


def permitted_actions(route: Route, process: Process) -> tuple[str, ...]:
    """What may happen now, sorted: ``message:<field>``, ``evidence:<field>``, ``decide:<step>``, ``tool:<tool>``,
    ``effect:<action>``, ``model:<step>``, ``hold``, ``resume``, ``cancel``. The summary has no part in it."""
    if process.cancel_requested:
        return ()
    said = [f"message:{name}" for name, field in route.state.items() if Setter.USER in field.set_by]
    found = [f"evidence:{name}" for name, field in route.state.items() if Setter.TOOL in field.set_by]
    own = [] if process.held else _actions_of_step(route, process.step)
    return tuple(sorted([*said, *found, *own, "cancel", "resume" if process.held else "hold"]))


def _actions_of_step(route: Route, name: str) -> list[str]:
    match route.steps.get(name):
        case ApprovalStep():
            return [f"decide:{name}"]
        case ModelStep():
            return [f"model:{name}"]
        case ToolStep(intent=None, tool=tool):
            return [f"tool:{tool}"]
        case ToolStep(intent=intent):
            approval = route.steps.get(intent or "")
            return [f"effect:{approval.intent.action}"] if isinstance(approval, ApprovalStep) else []
        case _:
            return []
