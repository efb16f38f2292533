"""A whole stack of its own to measure, and the list that the figures go to."""

import json
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import temporalio.client
from temporalio.client import Client as TemporalClient

from examples.refund.demo.machine import Machine
from perdure.client import Client
from perdure.keyring import KeyRing
from perdure.temporal import data_converter

COMMAND = "make bench"


@dataclass
class Figures:
    """What was measured, by name; a name that is measured again replaces the old figure."""

    file: Path
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def note(self, name: str, value: float, unit: str, target: str, n: int) -> None:
        """Write one figure down at once, and print it."""
        row = {"name": name, "value": round(value, 3), "unit": unit, "target": target, "n": n, "command": COMMAND}
        self.rows[name] = row
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(json.dumps(list(self.rows.values()), indent=2) + "\n")
        print(f"\n{name}: {row['value']} {unit} (target {target}, n={n})")


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of all is at most."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


@pytest.fixture(scope="session")
def figures(project: Path) -> Figures:
    file = project / ".perdure" / "bench.json"
    known = json.loads(file.read_text()) if file.exists() else []
    return Figures(file, {row["name"]: row for row in known})


@pytest.fixture(scope="session")
async def machine(project: Path) -> AsyncIterator[Machine]:
    """A stack with the refund example, and its payments sandbox."""
    running = Machine(project / ".perdure" / "bench")
    await running.start()
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def as_role(machine: Machine) -> Callable[[str], Client]:
    """A client of the gateway in a role."""
    tokens = json.loads(Path(machine.environment["PERDURE_TOKENS_FILE"]).read_text())
    return lambda role: Client(machine.environment["PERDURE_URL"], tokens[role])


@pytest.fixture(scope="session")
async def temporal(machine: Machine) -> TemporalClient:
    ring = KeyRing.read(Path(machine.environment["PERDURE_KEYS__CODEC_FILE"]))
    return await temporalio.client.Client.connect(
        machine.environment["TEMPORAL_ADDRESS"], data_converter=data_converter(ring)
    )


@pytest.fixture(scope="session")
async def refund_route(project: Path, as_role: Callable[[str], Client]) -> str:
    async with as_role("developer") as developer:
        await developer.install_route((project / "examples/refund/route.yaml").read_text())
    return "refund"


@pytest.fixture(scope="session")
def handwritten(machine: Machine, project: Path) -> Iterator[str]:
    """A second worker with the hand-written workflow and the same activities; its task queue."""
    worker = machine.home.read()["children"]["worker"]["pid"]
    environment = psutil.Process(worker).environ()
    with (machine.folder / "handwritten.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.handwritten"],
            cwd=project, env=environment, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield "handwritten"
    finally:
        process.terminate()
        process.wait(30)
