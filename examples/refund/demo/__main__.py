"""`make demo`: tells the story, looks at what it left behind, writes the report, and passes or fails."""

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path

from rich.console import Console

from examples.refund.demo import leaks
from examples.refund.demo.machine import Machine
from examples.refund.demo.report import checks_of, facts_of
from examples.refund.demo.story import PERSONAL, Story
from examples.refund.demo.traces import collect
from perdure.errors import PerdureError
from premises import ROOT, StackRefused

FOLDER = ROOT / ".perdure" / "demo"
TENANT = "demo"
SETTLE_SECONDS = 0.5

out = Console(highlight=False)


async def run(machine: Machine) -> bool:
    """The whole demo; whether every fact is right."""
    facts = await Story(machine, out).tell()
    out.print(f"[bold]{len(facts.seconds) + 1}. look at what was written down[/]")
    began = time.monotonic()
    books = (await machine.sandbox("GET", "/refunds"))["refunds"]
    calls = (await machine.sandbox("GET", "/admin/calls"))["calls"]
    history, files = await collect(machine, TENANT, facts.workflow_id)
    hits = leaks.scan(files, PERSONAL)
    facts.seconds["look"] = round(time.monotonic() - began, 2)
    out.print(f"     {len(files)} files: database dump, histories, logs, Temporal's own file")
    for hit in hits:
        out.print(f"     [red]word {hit['word']} in {hit['file']} at {hit['offset']}[/]")
    report = facts_of(facts, books, calls, history, hits)
    (machine.folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    return show(report, machine.folder / "report.json")


def show(report: dict[str, object], file: Path) -> bool:
    """Print each check; whether all hold."""
    checks = checks_of(report)
    out.print()
    for check in checks:
        out.print(f"  {'[green]yes[/]' if check.holds else '[red]NO [/]'}  {check.what}")
    out.print(f"\n{report['history_events']} events, {report['history_bytes']} bytes of history; report in {file}")
    return all(check.holds for check in checks)


def keep(machine: Machine, run_id: str) -> None:
    """Say where everything can be looked at."""
    out.print("\nThe stack stays up:")
    for name, url in machine.urls.items():
        out.print(f"  {name:8} {url}")
    out.print(f"  {'run':8} {machine.urls['ui']}/namespaces/default/workflows/run:{TENANT}:{run_id}")
    out.print(f"  {'sandbox':8} {machine.sandbox_url}/refunds")
    out.print(f"Stop it: PERDURE_STACK__HOME={machine.home.path} python stack.py stop; kill {machine.sandbox_pid}")


def main() -> int:
    """Exit code 0 only if every fact is right."""
    parser = argparse.ArgumentParser(description="The refund demo.")
    parser.add_argument("--keep", action="store_true", help="leave the stack up and print links")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    machine = Machine(arguments.folder.resolve())
    passed = False
    try:
        passed = asyncio.run(run(machine))
        if arguments.keep:
            keep(machine, json.loads((machine.folder / "report.json").read_text())["run"])
    except (PerdureError, StackRefused, RuntimeError, TimeoutError) as error:
        out.print(f"[red]{type(error).__name__}[/]: {error}", markup=True)
    finally:
        if not arguments.keep:
            machine.stop()
    return 0 if passed else 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    time.sleep(SETTLE_SECONDS)
    os._exit(code)
