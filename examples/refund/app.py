"""An app on perdure: it starts a refund run, shows what waits for approval, approves, and reads what came of it.

It needs the `perdure` package alone, a running stack, and the payments sandbox (see README.md):

    python app.py --stack .perdure/stack.json

In life these are three programs: a deployment installs the route, a backend starts runs, a person approves.
"""

import argparse
import asyncio
import json
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from perdure.api import RunDetail
from perdure.client import Client
from perdure.errors import PerdureError
from perdure.messages import ReviewDetail

HERE = Path(__file__).parent
CUSTOMER = "Анна Верещагина"
COMPLAINT = (
    "Здравствуйте! Это Анна Верещагина. За заказ order-1001 деньги списали два раза. "
    "Позвоните мне, пожалуйста: +7 921 555-01-42, или напишите на anna.v@example.com."
)
PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Stack:
    """Where the gateway is, and a token for each role."""

    url: str
    tokens: dict[str, str]

    @staticmethod
    def read(file: Path) -> "Stack":
        """As `make up` wrote it down."""
        environment = json.loads(file.read_text())["environment"]
        return Stack(environment["PERDURE_URL"], json.loads(Path(environment["PERDURE_TOKENS_FILE"]).read_text()))

    def client(self, role: str) -> Client:
        """The HTTP API as that role."""
        return Client(self.url, self.tokens[role])


async def install(developer: Client) -> None:
    """Install the route; when it is there already nothing changes."""
    installed = await developer.install_route((HERE / "route.yaml").read_text())
    print(f"route {installed.route} version {installed.version}{'' if installed.created else ' (was there already)'}")


async def report(app: Client, order: str) -> str:
    """Start a run. The texts are masked at the gateway; a name has to be listed to be found."""
    fields = {"customer_id": "cust-77", "order_id": order, "complaint": COMPLAINT}
    started = await app.start("refund", fields, key=uuid.uuid4().hex, personal=[CUSTOMER, CUSTOMER.split()[1]])
    print(f"run {started.run_id} started; in the Temporal UI: {started.links.temporal}")
    return started.run_id


async def next_review(app: Client, approver: Client, run_id: str) -> ReviewDetail | None:
    """What this run wants approved, or None when it ended without asking."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        for review in (await approver.approvals()).items:
            if review.run_id == run_id:
                return await approver.approval(review.review_id)
        if (await app.run(run_id)).status == "ended":
            return None
        await asyncio.sleep(0.3)
    raise TimeoutError("the run does not ask for approval; is the worker up, and the sandbox?")


async def approve(approver: Client, detail: ReviewDetail) -> None:
    """Decide on exactly what was shown."""
    state = detail.state
    print(f"to approve: {state.action} {state.amount} {state.currency} on {state.object_type} {state.object_id}")
    for change in detail.changes:
        print(f"  {change.field}: {change.previous} -> {change.proposed}")
    decided = await approver.decide(state, "approve", comment=f"Checked, {CUSTOMER} is right", personal=[CUSTOMER])
    print(f"approved as {decided.decision_id}, grant {decided.grant_id}")


async def end_of(app: Client, run_id: str) -> RunDetail:
    """The run, once it has ended."""
    until = time.monotonic() + PATIENCE_SECONDS
    while (run := await app.run(run_id)).status != "ended":
        if time.monotonic() > until:
            raise TimeoutError("the run does not end")
        await asyncio.sleep(0.3)
    return run


async def main(stack: Stack, order: str) -> int:
    """Exit code 0 when the run ended as it should: refunded, or nothing left to refund."""
    async with stack.client("developer") as developer, stack.client("app") as app, stack.client("approver") as approver:
        await install(developer)
        run_id = await report(app, order)
        review = await next_review(app, approver, run_id)
        if review is not None:
            await approve(approver, review)
        run = await end_of(app, run_id)
    print(f"outcome: {run.outcome}" + (f" ({run.reason})" if run.reason else ""))
    for effect in run.effects:
        print(f"  {effect.action} on {effect.object_type} {effect.object_id}: {effect.status}, key {effect.key}")
    return 0 if run.outcome in ("refunded", "nothing_to_refund") else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stack", type=Path, default=Path(".perdure/stack.json"))
    parser.add_argument("--order", default="order-1001")
    arguments = parser.parse_args()
    try:
        sys.exit(asyncio.run(main(Stack.read(arguments.stack), arguments.order)))
    except (PerdureError, OSError, TimeoutError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
