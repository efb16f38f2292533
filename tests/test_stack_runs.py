"""Runs on a whole stack: they outlive its servers, can be started and decided by hand, and read in the Temporal UI."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from embedded import executable
from examples.refund.app import COMPLAINT, HERE, Stack, end_of, next_review
from examples.refund.demo import leaks
from examples.refund.demo.machine import Machine
from examples.refund.demo.story import PERSONAL
from perdure.api import RunStarted
from perdure.client import Client
from tests.screen import CHROMIUM, Screen

pytestmark = pytest.mark.slow


class Desk:
    """The three people of the example on one stack."""

    def __init__(self, machine: Machine, developer: Client, app: Client, approver: Client) -> None:
        self.machine = machine
        self.developer = developer
        self.app = app
        self.approver = approver

    async def charged_twice(self, order: str) -> str:
        for _ in range(2):
            charge = {"order_id": order, "amount": "990.00", "currency": "RUB"}
            await self.machine.sandbox("POST", "/admin/charges", charge)
        return order

    async def report(self, order: str) -> RunStarted:
        fields = {"customer_id": "cust-77", "order_id": await self.charged_twice(order), "complaint": COMPLAINT}
        return await self.app.start("refund", fields, key=order, personal=PERSONAL)

    async def refunds_of(self, charge_id: str) -> list[dict[str, Any]]:
        refunds = (await self.machine.sandbox("GET", "/refunds"))["refunds"]
        return [refund for refund in refunds if refund["charge_id"] == charge_id]

    def command(self, *argv: str, role: str = "operator") -> str:
        """A command line as somebody would type it."""
        told = {"PERDURE_URL": self.machine.urls["gateway"], "PERDURE_TOKEN": self.token(role)}
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, env=os.environ | told)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def token(self, role: str) -> str:
        return Stack.read(self.machine.home.state_file).tokens[role]


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    machine = Machine(tmp_path_factory.mktemp("machine") / "demo")
    try:
        await machine.start()
        stack = Stack.read(machine.home.state_file)
        roles = [stack.client(role) for role in ("developer", "app", "approver")]
        async with roles[0] as developer, roles[1] as app, roles[2] as approver:
            await developer.install_route((HERE / "route.yaml").read_text())
            yield Desk(machine, developer, app, approver)
    finally:
        machine.stop()


async def test_a_waiting_run_outlives_temporal_and_postgresql(desk: Desk) -> None:
    run = await desk.report("order-outlives")
    before = await next_review(desk.app, desk.approver, run.run_id)
    for name, number in (("temporal", signal.SIGTERM), ("postgres", signal.SIGINT), ("postgres", signal.SIGKILL)):
        await desk.machine.kill(name, number)
    after = await next_review(desk.app, desk.approver, run.run_id)
    assert before is not None
    assert after is not None
    assert after.state == before.state
    await desk.approver.decide(after.state, "approve")
    assert (await end_of(desk.app, run.run_id)).outcome == "refunded"
    assert len(await desk.refunds_of(after.state.object_id)) == 1


async def test_a_run_started_and_decided_by_hand_with_the_temporal_command_line(desk: Desk, tmp_path: Path) -> None:
    given = {"tenant": "demo", "run_id": "by-hand", "route": "refund", "actor": "somebody"}
    given["input"] = {"customer_id": "cust-78", "order_id": await desk.charged_twice("order-by-hand")}  # type: ignore[assignment]
    sealed = (
        "--codec-endpoint",
        f"{desk.machine.urls['gateway']}/codec",
        "--codec-auth",
        f"Bearer {desk.token('operator')}",
    )
    at = ("--address", desk.machine.environment["TEMPORAL_ADDRESS"], "--workflow-id", "run:demo:by-hand", *sealed)
    start = ("workflow", "start", "--type", "AgentRun", "--task-queue", "perdure", "--input", json.dumps(given))
    desk.command(executable("temporal"), *start, *at)
    review = await next_review(desk.app, desk.approver, "by-hand")
    assert review is not None
    key = desk.machine.environment["PERDURE_SIGNING_KEY_FILE"]
    who = ("--tenant", "demo", "--actor", "somebody", "--role", "approver", "--signing-key", key)
    decision = desk.command(executable("perdure"), "proof", review.state.review_id, *who)
    desk.command(executable("temporal"), "workflow", "signal", "--name", "decide", "--input", decision.strip(), *at)
    assert (await end_of(desk.app, "by-hand")).outcome == "refunded"
    decided = (await desk.approver.approval(review.state.review_id)).state
    assert (decided.identity, decided.decided_by) == ("proof", "somebody")


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
async def test_a_run_can_be_read_in_the_temporal_ui_and_shows_nothing_personal(desk: Desk, tmp_path: Path) -> None:
    run = await desk.report("order-on-screen")
    await next_review(desk.app, desk.approver, run.run_id)
    url = f"{desk.machine.urls['ui']}/namespaces/default/workflows/{run.workflow_id}"
    page = await asyncio.to_thread(look, url, tmp_path)
    (tmp_path / "page.txt").write_text(page)
    assert "⟦PERSONAL_1⟧" in page
    assert "PerdureWaitingFor" in page
    assert "Current Details" in page
    assert leaks.scan([tmp_path / "page.txt"], PERSONAL) == []
    assert (tmp_path / "page.png").stat().st_size > 20_000


def look(url: str, folder: Path) -> str:
    """Three pages: what the run was given, opened by the codec endpoint; where it stands; how to find it."""
    with Screen(folder / "profile") as screen:
        screen.open(url)
        pages = [screen.wait(lambda text: "complaint" in text)]
        screen.picture(folder / "page.png")
        for link, word in (("User Metadata", "Current Details"), ("Search Attributes", "PerdureTenant")):
            screen.follow(link)
            pages.append(screen.wait(lambda text, word=word: word in text))  # type: ignore[misc]
            screen.picture(folder / f"{link}.png")
    return "\n".join(pages)
