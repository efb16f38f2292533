"""The whole system on one machine: embedded PostgreSQL and Temporal with its UI, the worker and the gateway."""

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import httpx
import psutil
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from credentials import ROLES, Credentials, prepare_credentials, read_tokens
from embedded import (
    Launch,
    Postgres,
    prepare_postgres,
    temporal_answers,
    temporal_launch,
    unmade_search_attributes,
)
from memory.database import migrate
from premises import (
    ROOT,
    Addresses,
    Home,
    StackRefused,
    StackSettings,
    choose_ports,
    client_environment,
    service_environment,
)
from supervisor import Child, ChildFailed, Probe, Supervisor, cancel_on_signals

LEFTOVER_SECONDS = 15.0
STOP_SECONDS = 60.0

cli = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
out = Console(highlight=False, soft_wrap=True)


class Stack:
    """One stack in one directory, from its first child to its last."""

    def __init__(self, settings: StackSettings) -> None:
        self.home = Home(settings.home.resolve())
        self._last = self.home.read()
        self._ports = choose_ports(settings, self._last.get("ports", {}))
        self._made: Credentials = prepare_credentials(self.home.path, settings.tenant)
        self._at: Addresses | None = None
        self._supervisor = Supervisor(report=self._report, changed=self._note)

    async def run(self) -> None:
        """Bring everything up and keep it up until cancelled; then stop everything."""
        cancel_on_signals()
        try:
            await self._bring_up()
            self._greet()
            await self._supervisor.watch()
        except asyncio.CancelledError:
            self._report("stopping")
        finally:
            await self._supervisor.stop()
            self.home.write(self.home.read() | {"pid": None, "children": {}})

    async def _bring_up(self) -> None:
        await _wait_for_leftovers(self._last)
        at = self._at = self._addresses(self._embedded_postgres())
        await self._start_database(at)
        await self._start_temporal(at)
        told = service_environment(self.home, self._made, self._ports, at)
        await self._start("worker", _python(str(ROOT / "worker.py"), environment=told), _at_once)
        await self._start("gateway", _python("-m", "gateway", environment=told), _http_ready(f"{at.gateway}/readyz"))

    def _embedded_postgres(self) -> Postgres | None:
        return None if "PERDURE_DATABASE__URL" in os.environ else prepare_postgres(self.home.postgres)

    def _addresses(self, postgres: Postgres | None) -> Addresses:
        self._postgres = postgres
        outside = {
            role: os.environ.get(f"PERDURE_DATABASE__{name}", "")
            for role, name in (("service", "URL"), ("relay", "RELAY_URL"), ("owner", "OWNER_URL"))
        }
        inside = postgres and {
            "service": postgres.url("perdure_service"),
            "relay": postgres.url("perdure_relay"),
            "owner": postgres.url("postgres"),
        }
        ui = os.environ.get("PERDURE_GATEWAY__TEMPORAL_UI_URL")
        return Addresses(
            database=inside or outside,
            temporal=os.environ.get("TEMPORAL_ADDRESS", f"127.0.0.1:{self._ports.temporal}"),
            gateway=f"http://127.0.0.1:{self._ports.gateway}",
            ui=ui if "TEMPORAL_ADDRESS" in os.environ else f"http://127.0.0.1:{self._ports.ui}",
        )

    async def _start_database(self, at: Addresses) -> None:
        postgres = self._postgres
        if postgres is not None:

            async def answers() -> bool:
                return postgres.answers()

            await self._start("postgres", postgres.launch(), answers)
        if at.database["owner"]:
            await asyncio.to_thread(migrate, at.database["owner"])
        else:
            self._report("PERDURE_DATABASE__OWNER_URL is not set: the database is taken as migrated")

    async def _start_temporal(self, at: Addresses) -> None:
        if "TEMPORAL_ADDRESS" in os.environ:
            for name in await unmade_search_attributes():
                self._report(f"search attribute {name} was not made: it is there already, or you have to make it")
            return
        codec = f"{at.gateway}/codec/t/{read_tokens(self._made.tokens)['inspector']}"
        launch = temporal_launch(self.home.temporal, self._ports.temporal, self._ports.ui, codec)

        async def answers() -> bool:
            return await temporal_answers(self._ports.temporal)

        await self._start("temporal", launch, answers)

    async def _start(self, name: str, launch: Launch, ready: Probe) -> None:
        self._report(f"starting {name}")
        await self._supervisor.start(Child(name, launch, self.home.log(name), ready))

    def _note(self) -> None:
        if self._at is None:
            return
        self.home.write(
            {
                "pid": os.getpid(),
                "children": {
                    child.name: {"pid": child.pid, "restarts": child.restarts, "log": str(child.log)}
                    for child in self._supervisor.children
                },
                "ports": asdict(self._ports),
                "urls": {"gateway": self._at.gateway, "openapi": f"{self._at.gateway}/docs", "ui": self._at.ui},
                "environment": client_environment(self._made, self._at),
            }
        )

    def _report(self, text: str) -> None:
        out.print(f"[dim]{time.strftime('%H:%M:%S')}[/] {escape(text)}")

    def _greet(self) -> None:
        assert self._at is not None
        out.print(f"\n[bold]perdure is up[/]; state in {self.home.path}, logs in {self.home.path / 'logs'}\n")
        rows = {"gateway": self._at.gateway, "OpenAPI": f"{self._at.gateway}/docs", "Temporal UI": self._at.ui or "-"}
        for name, url in rows.items():
            out.print(f"  {name:12} {url}")
        out.print(
            f"  {'Temporal':12} {self._at.temporal}\n\nTokens, one per role (also `python stack.py tokens ROLE`):\n"
        )
        for role, token in read_tokens(self._made.tokens).items():
            out.print(f"  [bold]{role:10}[/] {token}")
        out.print("\nCtrl-C stops everything.\n")


def _python(*argv: str, environment: dict[str, str]) -> Launch:
    return Launch([sys.executable, *argv], environment=environment, orphan_signal=signal.SIGKILL)


async def _wait_for_leftovers(last: dict[str, Any]) -> None:
    """Children of a stack that was killed stop by themselves; they hold ports and files until then."""
    pids = [child["pid"] for child in last.get("children", {}).values() if child["pid"] is not None]
    until = time.monotonic() + LEFTOVER_SECONDS
    while time.monotonic() < until and any(psutil.pid_exists(pid) for pid in pids):
        await asyncio.sleep(0.1)


async def _at_once() -> bool:
    return True


def _http_ready(url: str) -> Probe:
    async def ready() -> bool:
        async with httpx.AsyncClient(timeout=5, trust_env=False) as client:
            try:
                return (await client.get(url)).is_success
            except httpx.TransportError:
                return False

    return ready


def _failures(group: BaseException) -> list[str]:
    if isinstance(group, BaseExceptionGroup):
        return [text for inner in group.exceptions for text in _failures(inner)]
    return [str(group)]


@cli.command()
def up() -> None:
    """Start everything and stay in the foreground."""
    settings = StackSettings()
    os.umask(0o077)
    try:
        with Home(settings.home.resolve()).held():
            asyncio.run(Stack(settings).run())
    except* (StackRefused, ChildFailed) as failed:
        out.print("\n".join(_failures(failed)), markup=False)
        raise typer.Exit(1) from None


@cli.command()
def tokens(role: Annotated[str | None, typer.Argument(help="one of " + ", ".join(ROLES))] = None) -> None:
    """Print the token of a role, or all of them."""
    file = Home(StackSettings().home.resolve()).path / "tokens.json"
    if not file.exists():
        out.print("no tokens yet: start the stack once")
        raise typer.Exit(3)
    made = read_tokens(file)
    if role is not None and role not in made:
        out.print(f"there is no role {role}; there are {', '.join(made)}")
        raise typer.Exit(2)
    for name, token in made.items():
        if role in (None, name):
            typer.echo(token if role else f"{name}\t{token}")


@cli.command()
def env(role: Annotated[str, typer.Argument(help="one of " + ", ".join(ROLES))]) -> None:
    """Print what a shell needs to call the stack in a role: ``eval "$(python stack.py env app)"``."""
    home = Home(StackSettings().home.resolve())
    told = home.read().get("environment", {})
    if not told or role not in ROLES:
        out.print("start the stack once, and name a role: " + ", ".join(ROLES))
        raise typer.Exit(2)
    typer.echo(f"export PERDURE_URL={told['PERDURE_URL']}")
    typer.echo(f"export PERDURE_TEMPORAL={told['TEMPORAL_ADDRESS']}")
    typer.echo(f"export PERDURE_TOKEN={read_tokens(Path(told['PERDURE_TOKENS_FILE']))[role]}")


@cli.command()
def status() -> None:
    """Show what runs. Exit code 3 when nothing does."""
    home = Home(StackSettings().home.resolve())
    if not home.is_held():
        out.print(f"no stack is up in {home.path}")
        raise typer.Exit(3)
    state = home.read()
    table = Table("child", "pid", "restarts", "log", box=None)
    for name, child in state.get("children", {}).items():
        table.add_row(name, str(child["pid"] or "down"), str(child["restarts"]), child["log"])
    out.print(table)
    for name, url in state.get("urls", {}).items():
        out.print(f"{name:8} {url or '-'}")


@cli.command()
def stop() -> None:
    """Stop the stack of this directory and wait until it has stopped."""
    home = Home(StackSettings().home.resolve())
    pid = home.read().get("pid")
    if not home.is_held() or pid is None:
        out.print(f"no stack is up in {home.path}")
        raise typer.Exit(3)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + STOP_SECONDS
    while home.is_held():
        if time.monotonic() > until:
            out.print(f"the stack (pid {pid}) does not stop")
            raise typer.Exit(1)
        time.sleep(0.1)


if __name__ == "__main__":
    cli()
