"""A run of the refund route beside a hand-written workflow, and what a parked run costs."""

import asyncio
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pytest
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHandle

from examples.refund.demo.machine import Machine
from perdure import names
from perdure.client import Client
from perdure.messages import RunInput, RunResult
from tests.benchmarks.conftest import Figures, median, percentile

pytestmark = pytest.mark.bench

PAIRS = 15
PARKED = 300
CLIENTS = 8
START_TOGETHER = 20
PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Cost:
    """What one run took."""

    seconds: float
    events: int
    size: int


async def cost(handle: WorkflowHandle[Any, Any], seconds: float = 0) -> Cost:
    info = (await handle.describe()).raw_description.workflow_execution_info
    return Cost(seconds, info.history_length, info.history_size_bytes)


async def pending(approver: Client, run_id: str) -> Any:
    """The open review of a run. ``TimeoutError`` when there is none."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            for review in (await approver.approvals(limit=200)).items:
                if review.run_id == run_id:
                    return review
            await asyncio.sleep(0.005)


async def charge_twice(machine: Machine, order_id: str) -> None:
    """Something to refund."""
    for _ in range(2):
        charge = {"order_id": order_id, "amount": "82000.00", "currency": "RUB"}
        await machine.sandbox("POST", "/admin/charges", charge)


async def test_a_run_costs_little_more_than_a_hand_written_workflow(
    machine: Machine,
    temporal: TemporalClient,
    refund_route: str,
    handwritten: str,
    as_role: Callable[[str], Client],
    figures: Figures,
) -> None:
    ours: list[Cost] = []
    theirs: list[Cost] = []
    async with as_role("app") as app, as_role("approver") as approver:
        masked = await _masked(app, temporal)
        for number in range(PAIRS + 2):
            pair = [(ours, names.WORKFLOW_AGENT_RUN, names.TASK_QUEUE), (theirs, "HandWrittenRefund", handwritten)]
            for costs, workflow, queue in pair if number % 2 else reversed(pair):
                taken = await _one(machine, temporal, approver, masked, workflow, queue)
                if number >= 2:  # the first ones warm both workers
                    costs.append(taken)
    for name, target, of in (
        ("run_wall_ratio", 1.25, attrgetter("seconds")),
        ("run_events_ratio", 1.3, attrgetter("events")),
        ("run_bytes_ratio", 1.5, attrgetter("size")),
    ):
        ratio = median([of(c) for c in ours]) / median([of(c) for c in theirs])
        figures.note(name, ratio, "ratio", f"<= {target}", PAIRS)


async def _masked(app: Client, temporal: TemporalClient) -> dict[str, Any]:
    """Input with a masked complaint, made by the gateway once and used by both."""
    started = await app.start(
        "refund", {"customer_id": "cus_0", "order_id": "order-1001", "complaint": "Списали дважды"}
    )
    handle = temporal.get_workflow_handle(names.workflow_id("demo", started.run_id))
    async for event in handle.fetch_history_events():
        payloads = event.workflow_execution_started_event_attributes.input.payloads
        [given] = await temporal.data_converter.decode(payloads, [RunInput])
        return dict(given.input)
    raise AssertionError("no history")


async def _one(
    machine: Machine, temporal: TemporalClient, approver: Client, masked: dict[str, Any], workflow: str, queue: str
) -> Cost:
    run_id = uuid.uuid4().hex
    order_id = f"ord_{run_id[:8]}"
    await charge_twice(machine, order_id)
    given = RunInput(
        tenant="demo", run_id=run_id, route="refund", version=1, actor="bench",
        input=masked | {"order_id": order_id},
    )  # fmt: skip
    began = time.perf_counter()
    handle = await temporal.start_workflow(
        workflow, given, id=names.workflow_id("demo", run_id), task_queue=queue, result_type=RunResult
    )
    review = await pending(approver, run_id)
    await approver.decide(review, "approve")
    result = await handle.result()
    assert result.outcome == "refunded"
    return await cost(handle, time.perf_counter() - began)


async def test_parked_runs_are_small_and_all_resume_once(
    machine: Machine,
    temporal: TemporalClient,
    refund_route: str,
    as_role: Callable[[str], Client],
    figures: Figures,
) -> None:
    before = len((await machine.sandbox("GET", "/refunds"))["refunds"])
    async with as_role("app") as app, as_role("approver") as approver:
        for number in range(PARKED):
            await charge_twice(machine, f"ord_p{number}")
        runs = await _park(app, PARKED)
        reviews = await _all_pending(approver, set(runs))
        costs = [await cost(temporal.get_workflow_handle(names.workflow_id("demo", run))) for run in runs[:50]]
        figures.note("parked_events", max(c.events for c in costs), "events", "<= 25", len(costs))
        figures.note("parked_bytes", max(c.size for c in costs), "bytes", "<= 25000", len(costs))
        half = [list(reviews.values())[n::2] for n in (0, 1)]
        with _paused(machine, "worker", "temporal"):  # a decision waits for neither
            seconds = await _decide(as_role, half[0])
        figures.note("decision_p95_ms", percentile(seconds, 0.95) * 1000, "ms", "<= 40", len(seconds))
        seconds = await _decide(as_role, half[1])  # while the first half goes on, on the same cores
        figures.note("decision_busy_p95_ms", percentile(seconds, 0.95) * 1000, "ms", "none", len(seconds))
        for run in runs:
            handle = temporal.get_workflow_handle(names.workflow_id("demo", run), result_type=RunResult)
            assert (await handle.result()).outcome == "refunded"
    made = (await machine.sandbox("GET", "/refunds"))["refunds"][before:]
    exact = len(made) == PARKED and len({refund["key"] for refund in made}) == PARKED
    figures.note("parked_effects_exact", float(exact), "bool", "== 1", PARKED)
    assert exact


@contextmanager
def _paused(machine: Machine, *names: str) -> Iterator[None]:
    children = machine.home.read()["children"]
    pids = [children[name]["pid"] for name in names]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def _park(app: Client, count: int) -> list[str]:
    started: list[str] = []
    for first in range(0, count, START_TOGETHER):
        made = await asyncio.gather(
            *(
                app.start("refund", {"customer_id": f"cus_{n}", "order_id": f"ord_p{n}", "complaint": "Списали дважды"})
                for n in range(first, min(first + START_TOGETHER, count))
            )
        )
        started += [run.run_id for run in made]
    return started


async def _all_pending(approver: Client, runs: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    until = time.monotonic() + 5 * PATIENCE_SECONDS
    while len(found) < len(runs):
        assert time.monotonic() < until, f"{len(found)} of {len(runs)} runs wait for a decision"
        after = None
        while True:
            page = await approver.approvals(limit=200, after=after)
            found |= {review.run_id: review for review in page.items if review.run_id in runs}
            after = page.next
            if after is None:
                break
        await asyncio.sleep(0.5)
    return found


async def _decide(as_role: Callable[[str], Client], reviews: list[Any]) -> list[float]:
    """The seconds that each decision took until it was committed, with some clients at once."""
    seconds: list[float] = []
    waiting = iter(reviews)

    async def one(approver: Client) -> None:
        for review in waiting:
            began = time.perf_counter()
            await approver.decide(review, "approve")
            seconds.append(time.perf_counter() - began)

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(as_role("approver")) for _ in range(CLIENTS)]
        await asyncio.gather(*(client.approvals(limit=1) for client in clients))  # connect first
        await asyncio.gather(*(one(client) for client in clients))
    return seconds
