"""``perdure routes`` and ``perdure route …``: check a route on this machine, install it, read it back."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from perdure.cli_screen import facts, moment, plain, screen_of, table, text_of
from perdure.errors import RouteInvalid
from perdure.routecheck import check_file

File = Annotated[Path, typer.Argument(help="The route, YAML or JSON.", dir_okay=False)]

app = typer.Typer(no_args_is_help=True, help="Check a route, install it, read it back.")


def routes(context: typer.Context) -> None:
    """List the newest version of each route."""
    screen = screen_of(context)
    found = screen.call(lambda client: client.routes())

    def drawn() -> Iterable[Any]:
        rows = table("route", "version", "installed", "by", "summary")
        for route in found.items:
            rows.add_row(
                route.route,
                str(route.version),
                moment(route.installed_at),
                plain(route.installed_by),
                plain(route.summary),
            )
        yield rows if found.items else "no routes"

    screen.show(found, drawn)


@app.command()
def check(
    context: typer.Context,
    file: File,
    tools: Annotated[Path | None, typer.Option(help="The tools file that the route's tools stand in.")] = None,
) -> None:
    """Check a route without asking anybody. Exit code 1 and a list when something is wrong."""
    screen = screen_of(context)
    try:
        route = check_file(file, tools)
    except RouteInvalid as invalid:
        _tell_problems(screen.errors, invalid)
        raise typer.Exit(1) from None
    screen.show(route, lambda: [f"{file}: route {route.route} is good, {len(route.steps)} steps"])


@app.command()
def install(
    context: typer.Context,
    file: File,
    key: Annotated[str | None, typer.Option(help="Idempotency key.")] = None,
) -> None:
    """Check a route at the gateway and install it as the next version."""
    screen = screen_of(context)
    text = text_of(file)
    try:
        installed = screen.call(lambda client: client.install_route(text, key=key), "installing")
    except RouteInvalid as invalid:
        _tell_problems(screen.errors, invalid)
        raise typer.Exit(1) from None
    known = "" if installed.created else " (was there already)"
    screen.show(installed, lambda: [f"route {installed.route} version {installed.version}{known}"])


@app.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The route's name.")],
    version: Annotated[int | None, typer.Option(min=1, help="Default: the newest.")] = None,
) -> None:
    """Show an installed route."""
    screen = screen_of(context)
    found = screen.call(lambda client: client.route(name, version))

    def drawn() -> Iterable[Any]:
        yield facts(
            {
                "route": f"{found.route} v{found.version}",
                "summary": found.summary,
                "installed": found.installed_at,
                "by": found.installed_by,
                "digest": found.digest,
                "owner of what is handed off": found.document.handoff.owner,
            }
        )
        steps = table("step", "kind", title="Steps")
        for step, body in found.document.steps.items():
            steps.add_row(step, body.kind)
        yield steps

    screen.show(found, drawn)


def _tell_problems(console: Console, invalid: RouteInvalid) -> None:
    if not invalid.problems:
        console.print(plain(f"{type(invalid).__name__}: {invalid.message}"))
        return
    rows = table("file", "line", "step", "field", "problem", "path on which it happens")
    for problem in invalid.problems:
        way = problem.get("path")
        path = " > ".join(map(str, way)) if isinstance(way, list) else ""
        cells = (problem.get(name) for name in ("file", "line", "step", "field", "message"))
        rows.add_row(*(plain("" if cell is None else str(cell)) for cell in cells), plain(path))
    console.print(rows)
    console.print(f"{len(invalid.problems)} to put right")
