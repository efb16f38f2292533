"""The story of the demo: one refund, with everything between its start and its end killed once."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from rich.console import Console

from examples.refund.app import COMPLAINT, CUSTOMER, HERE, Stack
from examples.refund.demo.machine import Machine
from perdure.api import RunDetail, RunStarted
from perdure.client import Client
from perdure.errors import ReviewStale
from perdure.messages import ReviewDetail

PHONE = "+7 921 555-01-42"
EMAIL = "anna.v@example.com"
PERSONAL = (CUSTOMER, *CUSTOMER.split(), PHONE, EMAIL)
AMENDED = "61500.00"
PATIENCE_SECONDS = 60.0

Found = TypeVar("Found")


@dataclass
class Facts:
    """What was seen, as it goes into the report."""

    seconds: dict[str, float] = field(default_factory=dict)
    accepted: int = 0
    stale: int = 0
    run_id: str = ""
    workflow_id: str = ""
    outcome: str | None = None
    amounts: list[str] = field(default_factory=list)
    restarts: dict[str, int] = field(default_factory=dict)


class Story:
    """Tells what it does while it does it."""

    def __init__(self, machine: Machine, out: Console) -> None:
        self._machine = machine
        self._out = out
        self.facts = Facts()

    async def tell(self) -> Facts:
        """All stages, in order."""
        with self._stage("start the stack", "embedded PostgreSQL, Temporal, worker, gateway; and a payments sandbox"):
            await self._machine.start()
        stack = Stack.read(self._machine.home.state_file)
        clients = [stack.client(role) for role in ("developer", "app", "approver")]
        async with clients[0] as developer, clients[1] as app, clients[2] as approver:
            await self._tell(developer, app, approver)
        self.facts.restarts = self._machine.restarts()
        return self.facts

    async def _tell(self, developer: Client, app: Client, approver: Client) -> None:
        with self._stage("report", "a customer says that an order was charged twice"):
            run = await self._report(developer, app)
            first = await self._review(approver, run.run_id, version=1)
            self._say(f"the run asks for approval: refund {first.state.amount} {first.state.currency}, version 1")
        with self._stage("kill the worker", "SIGKILL while the run waits; nothing of it is in the worker"):
            self._say(f"back after {await self._machine.kill('worker'):.1f} s")
        with self._stage("restart Temporal and PostgreSQL", "both stop while the run waits"):
            for name, number in (("temporal", signal.SIGTERM), ("postgres", signal.SIGINT)):
                self._say(f"{name} is back after {await self._machine.kill(name, number):.1f} s")
            self._say(f"the run still waits for {(await app.run(run.run_id)).waiting_for}")
        with self._stage("amend", f"the customer agrees to {AMENDED}: another intent, another version"):
            second = await self._amend(app, approver, run.run_id, first)
        with self._stage("approve", "the sandbox will execute and close the socket without an answer"):
            await self._machine.sandbox("POST", "/admin/faults", {"fault": "drop"})
            decided = await approver.decide(
                second.state, "approve", comment=f"Checked with {CUSTOMER}", personal=PERSONAL
            )
            self.facts.accepted += 1
            self._say(f"version 2 is approved: grant {decided.grant_id}")
            ended = await self._eventually(lambda: self._ended(app, run.run_id), "the run does not end")
            self.facts.outcome = ended.outcome
            self._say(f"the run ended: {ended.outcome}")

    async def _report(self, developer: Client, app: Client) -> RunStarted:
        await developer.install_route((HERE / "route.yaml").read_text())
        fields = {"customer_id": "cust-77", "order_id": "order-1001", "complaint": COMPLAINT}
        run = await app.start("refund", fields, key="demo-complaint", personal=PERSONAL)
        again = await app.start("refund", fields, key="demo-complaint", personal=PERSONAL)
        self._say(f"run {run.run_id}; the same request again finds {'the same run' if again == run else 'ANOTHER RUN'}")
        self.facts.run_id, self.facts.workflow_id = run.run_id, run.workflow_id
        return run

    async def _amend(self, app: Client, approver: Client, run_id: str, first: ReviewDetail) -> ReviewDetail:
        await app.message(run_id, {"amount": AMENDED}, key="demo-amend")
        second = await self._review(approver, run_id, version=2)
        for change in second.changes:
            self._say(f"{change.field}: {change.previous} -> {change.proposed}")
        try:
            await approver.decide(first.state, "approve")
            self.facts.accepted += 1
            self._say("[red]the decision on version 1 was accepted[/]")
        except ReviewStale as refused:
            self.facts.stale += 1
            self._say(f"an approval of version 1 is refused: ReviewStale, {refused.message}")
        return second

    async def _review(self, approver: Client, run_id: str, version: int) -> ReviewDetail:
        async def pending() -> ReviewDetail | None:
            for review in (await approver.approvals()).items:
                if (review.run_id, review.version) == (run_id, version):
                    return await approver.approval(review.review_id)
            return None

        found = await self._eventually(pending, f"version {version} is not up for approval")
        self.facts.amounts.append(found.state.amount or "")
        return found

    async def _ended(self, app: Client, run_id: str) -> RunDetail | None:
        run = await app.run(run_id)
        return run if run.status in ("ended", "terminated") else None

    async def _eventually(self, look: Callable[[], Awaitable[Found | None]], otherwise: str) -> Found:
        until = time.monotonic() + PATIENCE_SECONDS
        while (found := await look()) is None:
            if time.monotonic() > until:
                raise TimeoutError(otherwise)
            await asyncio.sleep(0.2)
        return found

    @contextmanager
    def _stage(self, name: str, why: str) -> Iterator[None]:
        self._out.print(f"[bold]{len(self.facts.seconds) + 1}. {name}[/]  [dim]{why}[/]")
        began = time.monotonic()
        yield
        self.facts.seconds[name.replace(" ", "_")] = round(time.monotonic() - began, 2)

    def _say(self, text: str) -> None:
        self._out.print(f"     {text}")
