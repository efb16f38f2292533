"""A run that asks for a refund, as rows: what the tests of the ledger begin with."""

import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from memory.database import Database
from memory.ledger import Ledger
from memory.routes import Routes
from memory.runs import Runs
from perdure.calls import Reservation, ReserveRequest, ReviewRequest
from perdure.ids import digest
from perdure.messages import Decision, EvidenceRef, Principal, ReviewState, RunInput
from perdure.route import Route

ROUTE = Route.model_validate(
    {
        "route": "refund",
        "input": {"order_id": {"type": "identifier"}},
        "state": {"amount": {"type": "decimal", "set_by": ["tool", "user"]}},
        "start": "done",
        "steps": {"done": {"kind": "end", "outcome": "refunded"}},
        "handoff": {"owner": "operator"},
    }
)
FIELDS = ("order_id", "charge_id", "amount", "currency")


@dataclass(frozen=True)
class Scene:
    """One open run and what can be done with it."""

    ledger: Ledger
    runs: Runs
    routes: Routes
    principal: Principal
    run_id: str

    def request(
        self, opening: str = "ask.1.1", amount: str = "82000.00", visit: int = 1, **changed: Any
    ) -> ReviewRequest:
        values: dict[str, Any] = {
            "principal": self.principal,
            "run_id": self.run_id,
            "route": "refund",
            "route_version": 1,
            "step": "ask",
            "opening": opening,
            "intent_id": f"int_{self.run_id}_ask_{visit}",
            "action": "refund",
            "tool": "payments.refund",
            "object_type": "order",
            "object_id": "o1",
            "arguments": {"charge_id": "c1", "amount": amount, "currency": "RUB"},
            "amount": amount,
            "currency": "RUB",
            "evidence": (EvidenceRef(field="charge_id", event_id="ev_2", digest=digest("c1"), value="c1"),),
            "rests_on": FIELDS,
            "approvers": ("approver",),
            "expires_after": timedelta(hours=1),
            "warn_before": timedelta(minutes=10),
        }
        return ReviewRequest.model_validate(values | changed)

    async def opened(self, opening: str = "ask.1.1", amount: str = "82000.00", **changed: Any) -> ReviewState:
        return await self.ledger.open_review(self.request(opening, amount, **changed))

    async def approved(self, opening: str = "ask.1.1", amount: str = "82000.00", **changed: Any) -> ReviewState:
        state = await self.opened(opening, amount, **changed)
        boss = Principal(tenant=self.principal.tenant, actor="boss", roles=("approver",), identity="token")
        assert (await self.ledger.decide(boss, decision(state))).accepted
        return await self.ledger.read_review(self.principal, state.review_id)

    def reserving(self, state: ReviewState, amount: str = "82000.00", **changed: Any) -> ReserveRequest:
        values: dict[str, Any] = {
            "principal": self.principal,
            "run_id": self.run_id,
            "route": "refund",
            "grant_id": state.grant_id,
            "intent_id": state.intent_id,
            "intent_version": state.version,
            "action": "refund",
            "tool": "payments.refund",
            "object_type": "order",
            "object_id": "o1",
            "arguments": {"charge_id": "c1", "amount": amount, "currency": "RUB"},
            "amount": amount,
            "currency": "RUB",
            "holder": "execution/refund.1",
            "lease_for": timedelta(minutes=1),
        }
        return ReserveRequest.model_validate(values | changed)

    async def reserved(self, state: ReviewState, **changed: Any) -> Reservation:
        return await self.ledger.reserve(self.reserving(state, **changed))


def decision(state: ReviewState, verdict: str = "approve", **changed: Any) -> Decision:
    """A decision on exactly what the state shows."""
    values = {
        "review_id": state.review_id,
        "decision_id": f"dec_{uuid.uuid4().hex}",
        "verdict": verdict,
        "version": state.version,
        "digest": state.digest,
    }
    return Decision.model_validate(values | changed)


async def open_scene(
    ledger: Ledger, runs: Runs, routes: Routes, principal: Principal, run_id: str = "r1", *, subject: bool = True
) -> Scene:
    """Install the route and open a run of it."""
    developer = principal.model_copy(update={"roles": ("developer",)})
    await routes.install(developer, ROUTE, digest(ROUTE.model_dump(mode="json")))
    stored = await routes.get(principal, "refund")
    start = RunInput(tenant=principal.tenant, run_id=run_id, route="refund", actor="app", input={"order_id": "o1"})
    await runs.open(principal, start, stored, "execution", ("customer", "cus_1") if subject else None)
    return Scene(ledger, runs, routes, principal, run_id)


async def rolled_back(
    database: Database, principal: Principal, work: Callable[[AsyncConnection], Awaitable[object]]
) -> None:
    """Do the work in a transaction that fails after it."""
    with suppress(KeyError):
        async with database.transaction(principal) as connection:
            await work(connection)
            raise KeyError
