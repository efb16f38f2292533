"""The command line ``perdure``: routes, runs and approvals by the gateway, and checks that need none.

Exit codes: 0 done, 1 refused, 2 wrong usage, 3 somebody was first (look again), 4 try later, 5 call a person.
"""

import sys
from typing import Annotated

import typer
from rich.console import Console

from perdure import cli_approvals, cli_routes, cli_runs
from perdure.cli_screen import Screen
from perdure.errors import Conflict, Corruption, PerdureError, Refusal, Unavailable

DEFAULT_URL = "http://127.0.0.1:8080"
_EXITS: dict[type[PerdureError], int] = {Refusal: 1, Conflict: 3, Unavailable: 4, Corruption: 5, PerdureError: 5}

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Durable agent runs that wait for people and act once.",
)
app.command()(cli_routes.routes)
app.add_typer(cli_routes.app, name="route")
app.command()(cli_runs.runs)
app.add_typer(cli_runs.app, name="run")
app.command()(cli_approvals.approvals)
app.command()(cli_approvals.approve)
app.command()(cli_approvals.reject)
app.command()(cli_approvals.proof)


@app.callback()
def begin(
    context: typer.Context,
    url: Annotated[str, typer.Option(envvar="PERDURE_URL", help="The gateway.")] = DEFAULT_URL,
    token: Annotated[str | None, typer.Option(envvar="PERDURE_TOKEN", help="A bearer token.", show_envvar=True)] = None,
    json: Annotated[bool, typer.Option("--json", help="Answers as JSON.")] = False,
) -> None:
    """Durable agent runs that wait for people and act once."""
    context.obj = Screen(url, token, json, Console(), Console(stderr=True))


def main() -> None:
    """Run one command; an error is one line on standard error and an exit code."""
    try:
        app()
    except PerdureError as error:
        print(f"{type(error).__name__}: {error.message}", file=sys.stderr)
        sys.exit(next(code for family, code in _EXITS.items() if isinstance(error, family)))


if __name__ == "__main__":
    main()
