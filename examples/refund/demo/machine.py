"""The machine of the demo: a stack and the payments sandbox as child processes, and ways to hurt them."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from embedded import free_port
from premises import ROOT, Home, StackRefused

STACK_SECONDS = 90.0
CHILD_SECONDS = 60.0


class Machine:
    """Everything runs in ``folder``, which is made anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = Home(folder / "stack")
        self.sandbox_url = f"http://127.0.0.1:{free_port()}"
        self._stack: subprocess.Popen[bytes] | None = None
        self._sandbox: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start sandbox and stack; return when the stack serves."""
        if self.home.is_held():
            raise StackRefused(
                f"a demo is up in {self.folder}: PERDURE_STACK__HOME={self.home.path} python stack.py stop"
            )
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        self._sandbox = self._spawn(
            "sandbox",
            ["examples/refund/payments.py", "--port", self.sandbox_url.rpartition(":")[2], "--file", self.books],
        )
        servers = json.dumps({"payments": self.sandbox_url})
        told = {"PERDURE_STACK__HOME": str(self.home.path), "PERDURE_TOOLS__SERVERS": servers}
        self._stack = self._spawn("stack", ["stack.py", "up"], told)
        await until(self._serves, STACK_SECONDS, "the stack does not start; see stack.log")

    def stop(self) -> None:
        """Stop both."""
        for child, seconds in ((self._stack, 60), (self._sandbox, 5)):
            if child is not None and child.poll() is None:
                child.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    child.wait(seconds)

    @property
    def books(self) -> str:
        """The sandbox's file."""
        return str(self.folder / "payments.db")

    @property
    def sandbox_pid(self) -> int | None:
        """Of the running sandbox."""
        return None if self._sandbox is None else self._sandbox.pid

    @property
    def urls(self) -> dict[str, str]:
        """Where the stack's pages are."""
        urls: dict[str, str] = self.home.read()["urls"]
        return urls

    @property
    def environment(self) -> dict[str, str]:
        """What a client of the stack is told."""
        environment: dict[str, str] = self.home.read()["environment"]
        return environment

    async def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> float:
        """Kill a child of the stack and wait until it is back; the seconds that took."""
        before, began = self._child(name), time.monotonic()
        os.kill(before["pid"], number)

        def back() -> bool:
            now = self._child(name)
            return now["restarts"] > before["restarts"] and now["pid"] is not None and self._serves()

        await until(back, CHILD_SECONDS, f"{name} does not come back; see stack.log")
        return time.monotonic() - began

    def restarts(self) -> dict[str, int]:
        """How often each child was started again."""
        return {name: child["restarts"] for name, child in self.home.read()["children"].items()}

    async def sandbox(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the sandbox what it did, or tell it what to do wrong."""
        async with httpx.AsyncClient(base_url=self.sandbox_url, trust_env=False) as http:
            answer = await http.request(method, path, json=body)
            answer.raise_for_status()
            found: dict[str, Any] = answer.json()
            return found

    def _child(self, name: str) -> dict[str, Any]:
        child: dict[str, Any] = self.home.read()["children"][name]
        return child

    def _serves(self) -> bool:
        if self._stack is not None and self._stack.poll() is not None:
            raise RuntimeError(f"the stack has ended:\n{(self.folder / 'stack.log').read_text()[-4000:]}")
        children = self.home.read().get("children", {})
        if len(children) < 4 or any(child["pid"] is None for child in children.values()):
            return False
        try:
            return httpx.get(f"{self.urls['gateway']}/readyz", timeout=5, trust_env=False).is_success
        except httpx.TransportError:
            return False

    def _spawn(self, name: str, argv: list[str], told: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        ours = {key: value for key, value in os.environ.items() if not key.startswith(("PERDURE_", "TEMPORAL_"))}
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *argv],
                cwd=ROOT,
                env=ours | (told or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


async def until(holds: Callable[[], bool], seconds: float, otherwise: str) -> None:
    """Return when it holds; ``TimeoutError`` when it does not in time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(otherwise)
        await asyncio.sleep(0.1)
