"""What `python stack.py` promises, tried on whole stacks."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
CHILDREN = {"postgres", "temporal", "worker", "gateway"}


class RunningStack:
    """A stack in a directory of its own, as its user would start it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.log = home.parent / f"{home.name}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "stack.py"), "up"], stdout=output, stderr=output, env=self.environment
            )
        until(self.is_up, 120, self.said)

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"PERDURE_STACK__HOME": str(self.home)}

    def is_up(self) -> bool:
        assert self.process.poll() is None, self.said()
        return "Ctrl-C stops everything" in self.said()

    def said(self) -> str:
        return self.log.read_text()

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.home / "stack.json").read_text())
        return state

    def child(self, name: str) -> dict[str, Any]:
        child: dict[str, Any] = self.state()["children"][name]
        return child

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def ready(self) -> bool:
        try:
            return httpx.get(f"{self.state()['urls']['gateway']}/readyz", timeout=5).is_success
        except httpx.TransportError:
            return False

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        before = self.child(name)
        os.kill(before["pid"], number)
        until(lambda: self.child(name)["restarts"] > before["restarts"] and self.ready(), 60, self.said)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, str(ROOT / "stack.py"), *arguments]
        return subprocess.run(argv, capture_output=True, text=True, env=self.environment, check=False, timeout=90)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)


def until(holds: Callable[[], bool], seconds: float, story: Callable[[], str]) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, story()
        time.sleep(0.1)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    made = RunningStack(tmp_path_factory.mktemp("stack") / "home")
    yield made
    made.end()


@pytest.fixture
def short_lived(tmp_path: Path) -> Iterator[RunningStack]:
    made = RunningStack(tmp_path / "home")
    yield made
    made.end()


def test_it_names_its_addresses_and_a_token_for_each_role(running: RunningStack) -> None:
    said = running.said()
    assert all(url in said for url in running.state()["urls"].values())
    for role in ("developer", "app", "approver", "operator", "security", "analyst", "inspector"):
        token = running.command("tokens", role).stdout.strip()
        assert token.count(".") == 2
        assert token in said


def test_a_second_start_in_the_same_directory_is_refused(running: RunningStack) -> None:
    second = running.command("up")
    assert second.returncode == 1
    assert f"pid {running.process.pid}" in second.stdout
    assert "stop it with" in second.stdout
    assert running.ready()


def test_status_lists_all_children(running: RunningStack) -> None:
    shown = running.command("status")
    assert shown.returncode == 0
    assert set(running.state()["children"]) == CHILDREN
    assert all(name in shown.stdout for name in CHILDREN)


def test_secrets_are_private_and_stay_out_of_the_state_file(running: RunningStack) -> None:
    private = [*(running.home / "keys").iterdir(), running.home / "tokens.json", running.home / "temporal.db"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in private} == {0o600}
    state = json.dumps(running.state())
    secrets = [*json.loads((running.home / "tokens.json").read_text()).values()]
    for ring in ("root", "codec"):
        secrets += json.loads((running.home / "keys" / f"{ring}.json").read_text())["keys"].values()
    assert not any(secret in state for secret in secrets)


@pytest.mark.parametrize("name", sorted(CHILDREN))
def test_a_killed_child_is_reported_and_comes_back(running: RunningStack, name: str) -> None:
    running.kill(name)
    assert f"{name} died (SIGKILL) and is started again" in running.said()
    assert running.command("status").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_children(short_lived: RunningStack, number: signal.Signals) -> None:
    family = short_lived.family()
    assert len(family) >= len(CHILDREN)
    short_lived.process.send_signal(number)
    assert short_lived.process.wait(60) == 0
    assert not [process for process in family if process.is_running()]
    assert "does not stop" not in short_lived.said()
    assert short_lived.command("status").returncode == 3


def test_a_killed_stack_leaves_no_orphans_and_starts_again(short_lived: RunningStack) -> None:
    family = short_lived.family()
    tokens = (short_lived.home / "tokens.json").read_text()
    short_lived.process.kill()
    short_lived.process.wait()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    again = RunningStack(short_lived.home)
    try:
        assert again.ready()
        assert (again.home / "tokens.json").read_text() == tokens
    finally:
        assert again.command("stop").returncode == 0
        again.end()


def test_a_port_that_is_taken_is_refused_by_name(tmp_path: Path, running: RunningStack) -> None:
    told = {"PERDURE_STACK__HOME": str(tmp_path / "home")}
    told["PERDURE_STACK__GATEWAY_PORT"] = str(running.state()["ports"]["gateway"])
    argv = [sys.executable, str(ROOT / "stack.py"), "up"]
    refused = subprocess.run(argv, capture_output=True, text=True, env=os.environ | told, check=False, timeout=60)
    assert refused.returncode == 1
    assert "PERDURE_STACK__GATEWAY_PORT" in refused.stdout
