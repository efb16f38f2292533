"""Child processes under one parent: started in order, watched, restarted when they die, stopped in reverse order."""

import asyncio
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from embedded import Launch

READY_SECONDS = 60.0
STOP_SECONDS = 15.0
FAST_DEATH_SECONDS = 20.0
FAST_DEATHS_ALLOWED = 5
LOG_LINES = 20
LOG_BYTES_KEPT = 5_000_000
POLL_SECONDS = 0.1

Probe = Callable[[], Awaitable[bool]]


class ChildFailed(Exception):
    """A child does not start, or dies again and again; the message ends with the last lines of its log."""


@dataclass
class Child:
    """One child: ``ready`` tells whether it serves; it is started again when it dies."""

    name: str
    launch: Launch
    log: Path
    ready: Probe
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    restarts: int = 0
    fast_deaths: int = 0
    serves: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pid(self) -> int | None:
        """Of the running process."""
        return self.process.pid if self.alive() and self.process else None

    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def last_lines(self) -> str:
        """The end of its log."""
        if not self.log.exists():
            return "(no log)"
        lines = self.log.read_bytes()[-20_000:].decode(errors="replace").splitlines()
        return "\n".join(f"    {self.name} | {line}" for line in lines[-LOG_LINES:]) or "(empty log)"


class Supervisor:
    """Starts children one after the other, keeps them alive while the caller waits in ``watch``, stops them all."""

    def __init__(self, report: Callable[[str], None], changed: Callable[[], None]) -> None:
        self.children: list[Child] = []
        self._report = report
        self._changed = changed

    async def start(self, child: Child) -> None:
        """Start it and return when it serves. Raises ``ChildFailed``."""
        _rotate(child.log)
        self.children.append(child)
        await self._launch(child)

    async def watch(self) -> None:
        """Keep all children alive for ever. Raises ``ChildFailed`` when one dies again and again."""
        async with asyncio.TaskGroup() as group:
            for child in self.children:
                group.create_task(self._keep(child))

    async def stop(self) -> None:
        """Stop in reverse order of start, each gently first."""
        for child in reversed(self.children):
            await self._end(child)

    async def _keep(self, child: Child) -> None:
        while True:
            while child.alive():
                await asyncio.sleep(POLL_SECONDS)
            self._note_death(child)
            await asyncio.sleep(min(0.25 * 2**child.fast_deaths, 10))
            await self._earlier_serve(child)
            child.restarts += 1
            try:
                await self._launch(child)
            except ChildFailed:
                await self._end(child)
            else:
                self._report(f"{child.name} is back (pid {child.pid})")

    def _note_death(self, child: Child) -> None:
        child.serves.clear()
        fast = time.monotonic() - child.started_at < FAST_DEATH_SECONDS
        child.fast_deaths = child.fast_deaths + 1 if fast else 0
        code = None if child.process is None else child.process.returncode
        if child.fast_deaths > FAST_DEATHS_ALLOWED:
            raise ChildFailed(f"{child.name} keeps dying ({_cause(code)}); its log ends:\n{child.last_lines()}")
        self._report(f"{child.name} died ({_cause(code)}) and is started again; its log ends:\n{child.last_lines()}")
        self._changed()

    async def _earlier_serve(self, child: Child) -> None:
        for earlier in self.children[: self.children.index(child)]:
            await earlier.serves.wait()

    async def _launch(self, child: Child) -> None:
        child.started_at = time.monotonic()
        child.process = child.launch.start(child.log)
        while not await child.ready():
            if not child.alive():
                raise ChildFailed(f"{child.name} ended at its start; its log ends:\n{child.last_lines()}")
            if time.monotonic() - child.started_at > READY_SECONDS:
                raise ChildFailed(f"{child.name} does not answer; its log ends:\n{child.last_lines()}")
            await asyncio.sleep(POLL_SECONDS)
        child.serves.set()
        self._changed()

    async def _end(self, child: Child) -> None:
        if child.process is None or not child.alive():
            return
        child.process.send_signal(child.launch.stop_signal)
        until = time.monotonic() + STOP_SECONDS
        while child.alive() and time.monotonic() < until:
            await asyncio.sleep(POLL_SECONDS / 2)
        if child.alive():
            self._report(f"{child.name} does not stop; it is killed")
            child.process.kill()
            child.process.wait()


def cancel_on_signals() -> None:
    """Cancel the current task at the first Ctrl-C, SIGTERM or SIGHUP; later ones change nothing while it stops."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def once() -> None:
        for number in asked:
            loop.add_signal_handler(number, lambda: None)
        task.cancel()

    for number in asked:
        loop.add_signal_handler(number, once)


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"


def _rotate(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_BYTES_KEPT:
        log.replace(log.with_name(log.name + ".1"))
