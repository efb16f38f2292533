"""What the stack promises about its children, tried on small real processes."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import pytest

import supervisor
from embedded import Launch
from supervisor import Child, ChildFailed, Supervisor

SLEEPS = "import time; print('here', flush=True); time.sleep(60)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); time.sleep(60)"
)
DIES = "import sys; print('no reason to live', flush=True); sys.exit(3)"


def says_here(log: Path) -> Callable[[], Awaitable[bool]]:
    async def ready() -> bool:
        return log.exists() and "here" in log.read_text()

    return ready


def child(folder: Path, name: str, program: str) -> Child:
    log = folder / f"{name}.log"
    return Child(name, Launch([sys.executable, "-c", program]), log, says_here(log))


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
async def parent(reports: list[str]) -> AsyncIterator[Supervisor]:
    made = Supervisor(report=reports.append, changed=lambda: None)
    yield made
    await made.stop()


async def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.02)


async def test_a_killed_child_is_reported_with_its_log_and_started_again(
    parent: Supervisor, reports: list[str], tmp_path: Path
) -> None:
    one = child(tmp_path, "one", SLEEPS)
    await parent.start(one)
    first = one.pid
    watching = asyncio.create_task(parent.watch())
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: one.pid not in (None, first) and one.serves.is_set())
    watching.cancel()
    assert "SIGKILL" in reports[0]
    assert "one | here" in reports[0]
    assert one.restarts == 1


async def test_a_child_that_ends_at_its_start_is_a_failure_that_shows_its_log(
    parent: Supervisor, tmp_path: Path
) -> None:
    with pytest.raises(ChildFailed, match="no reason to live"):
        await parent.start(child(tmp_path, "one", DIES))


async def test_a_child_that_keeps_dying_ends_the_watch(
    parent: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FAST_DEATHS_ALLOWED", 1)
    one = Child("one", Launch([sys.executable, "-c", DIES]), tmp_path / "one.log", _always)
    await parent.start(one)
    with pytest.raises(ExceptionGroup) as ended:
        await asyncio.wait_for(parent.watch(), 20)
    assert ended.group_contains(ChildFailed, match="keeps dying")


async def test_a_child_waits_for_those_it_needs(parent: Supervisor, tmp_path: Path) -> None:
    first, second = child(tmp_path, "first", SLEEPS), child(tmp_path, "second", SLEEPS)
    for each in (first, second):
        await parent.start(each)
    watching = asyncio.create_task(parent.watch())
    for each in (second, first):
        assert each.process is not None
        each.process.kill()
    await until(lambda: first.restarts == 1 and second.restarts == 1 and second.serves.is_set())
    watching.cancel()
    assert second.started_at > first.started_at


async def test_stop_ends_all_in_reverse_order_and_kills_who_does_not_listen(
    parent: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: list[str]
) -> None:
    monkeypatch.setattr(supervisor, "STOP_SECONDS", 0.3)
    children = [child(tmp_path, "first", SLEEPS), child(tmp_path, "second", STUBBORN)]
    for each in children:
        await parent.start(each)
    await parent.stop()
    assert not any(each.alive() for each in children)
    assert reports == ["second does not stop; it is killed"]


def test_children_do_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from embedded import Launch\n"
        f"made = Launch([sys.executable, '-c', {SLEEPS!r}]).start(Path({str(tmp_path / 'log')!r}))\n"
        "print(made.pid, flush=True); time.sleep(60)"
    )
    parent = psutil.Popen([sys.executable, "-c", program], stdout=-1, cwd=Path(__file__).parents[1])
    orphan = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    orphan.wait(10)
    assert not orphan.is_running()


async def _always() -> bool:
    return True


def test_no_child_is_told_who_owns_the_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_DATABASE__OWNER_URL", "postgresql+psycopg://owner@/x")
    log = tmp_path / "child.log"
    Launch([sys.executable, "-c", "import os; print(sorted(os.environ))"], environment={"OURS": "1"}).start(log).wait(
        10
    )
    assert "OURS" in log.read_text()
    assert "OWNER_URL" not in log.read_text()
