"""``perdure runs`` and ``perdure run …``: start runs, look at them, tell them things."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from perdure.api import MessageAccepted, RunDetail
from perdure.cli_screen import Screen, assigned, facts, moment, object_of, plain, screen_of, table
from perdure.client import Client
from perdure.route import InputField, StateField

OVER = ("ended", "terminated")

RunId = Annotated[str, typer.Argument(help="The run's id.")]
Fields = Annotated[list[str] | None, typer.Option("--set", help="A field as name=value. Repeatable.")]
FieldsFile = Annotated[Path | None, typer.Option("--file", help="Fields as a JSON object.")]
Personal = Annotated[list[str] | None, typer.Option(help="A value to mask in the texts. Repeatable.")]
Key = Annotated[str | None, typer.Option(help="Idempotency key; a repeat with the same key finds the same thing.")]

app = typer.Typer(no_args_is_help=True, help="Start a run, look at it, tell it something.")


def runs(
    context: typer.Context,
    status: Annotated[str | None, typer.Option(help="running, waiting, held, ended or terminated")] = None,
    route: Annotated[str | None, typer.Option()] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 20,
) -> None:
    """List runs, newest first."""
    screen = screen_of(context)
    found = screen.call(lambda client: client.runs(status=status, route=route, limit=limit))

    def drawn() -> Iterable[Any]:
        rows = table("run", "route", "status", "step", "waits for", "since", "started", "outcome")
        for run in found.items:
            since, started = moment(run.waiting_since), moment(run.started_at)
            version = f"{run.route} v{run.version}"
            rows.add_row(
                run.run_id, version, run.status, run.step, plain(run.waiting_for or ""), since, started, run.outcome
            )
        yield rows if found.items else "no runs"

    screen.show(found, drawn)


@app.command()
def start(
    context: typer.Context,
    route: Annotated[str, typer.Argument(help="The route's name.")],
    fields: Fields = None,
    file: FieldsFile = None,
    version: Annotated[int | None, typer.Option(min=1, help="Default: the newest.")] = None,
    personal: Personal = None,
    key: Key = None,
) -> None:
    """Start a run of a route."""
    screen = screen_of(context)

    async def work(client: Client) -> Any:
        declared = (await client.route(route, version)).document.input
        values = _values(file, fields, declared)
        return await client.start(route, values, key=key, version=version, personal=personal or [])

    begun = screen.call(work, "starting")
    shown = {"run": begun.run_id, "route": f"{begun.route} v{begun.version}", "temporal": begun.links.temporal}
    screen.show(begun, lambda: [facts({**shown, "workflow": begun.workflow_id})])


@app.command()
def show(context: typer.Context, run: RunId) -> None:
    """Where a run stands, what it waits for, what it did."""
    screen = screen_of(context)
    found = screen.call(lambda client: client.run(run, process=True))
    screen.show(found, lambda: _drawn(found))


@app.command()
def watch(
    context: typer.Context,
    run: RunId,
    every: Annotated[float, typer.Option(min=0.2, max=60, help="Seconds between looks.")] = 1.0,
) -> None:
    """Follow a run until it is over; each change is a line."""
    screen = screen_of(context)
    last = screen.call(lambda client: _follow(client, screen, run, every), f"watching {run}")
    screen.show(last, lambda: _drawn(last))


@app.command()
def message(
    context: typer.Context,
    run: RunId,
    fields: Fields = None,
    file: FieldsFile = None,
    personal: Personal = None,
    key: Key = None,
) -> None:
    """Tell a run what its user said."""
    _tell(screen_of(context), "message", run, file, fields, personal, key)


@app.command()
def evidence(
    context: typer.Context,
    run: RunId,
    fields: Fields = None,
    file: FieldsFile = None,
    personal: Personal = None,
    key: Key = None,
) -> None:
    """Tell a run what a system found; a review that rests on it is withdrawn."""
    _tell(screen_of(context), "evidence", run, file, fields, personal, key)


@app.command()
def hold(context: typer.Context, run: RunId, key: Key = None) -> None:
    """Let nothing more happen in the world until it is resumed."""
    _steer(screen_of(context), run, "hold", key)


@app.command()
def resume(context: typer.Context, run: RunId, key: Key = None) -> None:
    """Go on after a hold."""
    _steer(screen_of(context), run, "resume", key)


@app.command()
def cancel(context: typer.Context, run: RunId, key: Key = None) -> None:
    """End a run as cancelled."""
    _steer(screen_of(context), run, "cancel", key)


def _tell(
    screen: Screen,
    kind: Literal["message", "evidence"],
    run: str,
    file: Path | None,
    fields: list[str] | None,
    personal: list[str] | None,
    key: str | None,
) -> None:
    async def work(client: Client) -> MessageAccepted:
        found = await client.run(run)
        declared = (await client.route(found.route, found.version)).document.state
        values = _values(file, fields, declared)
        send = client.message if kind == "message" else client.evidence
        return await send(run, values, key=key, personal=personal or [])

    accepted = screen.call(work)
    screen.show(accepted, lambda: [f"committed as {accepted.event_id}"])


def _steer(screen: Screen, run: str, what: Literal["hold", "resume", "cancel"], key: str | None) -> None:
    accepted = screen.call(lambda client: client.steer(run, what, key=key))
    screen.show(accepted, lambda: [f"{what} committed as {accepted.event_id}"])


def _values(
    file: Path | None, fields: list[str] | None, declared: Mapping[str, InputField] | Mapping[str, StateField]
) -> dict[str, Any]:
    given = {} if file is None else object_of(file)
    return given | assigned(fields or [], {name: field.type for name, field in declared.items()})


async def _follow(client: Client, screen: Screen, run: str, every: float) -> RunDetail:
    shown = None
    while True:
        found = await client.run(run)
        now = (found.status, found.step, found.waiting_for, len(found.effects))
        if now != shown and not screen.machine:
            waits = "" if found.waiting_for is None else f", waits for {found.waiting_for}"
            screen.console.print(plain(f"{found.status}: {found.step or 'start'}{waits}"))
        shown = now
        if found.status in OVER:
            return found
        await asyncio.sleep(every)


def _drawn(run: RunDetail) -> Iterable[Any]:
    yield facts(
        {
            "run": run.run_id,
            "route": f"{run.route} v{run.version}",
            "subject": run.subject,
            "status": run.status,
            "step": run.step,
            "waits for": run.waiting_for,
            "since": run.waiting_since,
            "started": run.started_at,
            "ended": run.ended_at,
            "outcome": run.outcome,
            "reason": run.reason,
            "temporal": run.links.temporal,
        }
    )
    if run.process is not None and run.process.state:
        state = table("field", "value", "set by", title="State")
        for name, field in run.process.state.items():
            state.add_row(name, plain(field.value), field.set_by)
        yield state
    if run.effects:
        effects = table("action", "object", "intent", "status", "settled", "key", title="Effects")
        for effect in run.effects:
            intent, settled = f"{effect.intent_id} v{effect.intent_version}", moment(effect.settled_at)
            what = plain(f"{effect.object_type}:{effect.object_id}")
            effects.add_row(effect.action, what, intent, effect.status, settled, effect.key)
        yield effects
