"""A stage for runs: real PostgreSQL, real Temporal, a real provider, and a worker in this process to stop at will."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from pydantic import SecretStr
from temporalio.client import Client, WorkflowHandle

from embedded import Postgres
from memory.database import Database
from memory.keys import Keys
from memory.ledger import Ledger
from memory.routes import Routes
from memory.runs import Runs
from memory.settings import AuthSettings, DatabaseSettings, ModelSettings, ObjectSettings, Settings
from perdure import names
from perdure.ids import digest
from perdure.masked import MaskedText
from perdure.messages import Decision, Principal, ProcessView, ReviewState, RunInput, RunMessage, RunResult
from perdure.proof import make_proof
from perdure.routefile import parse
from perdure.toolfile import ToolFile
from pii.seal import Seals, tenant_secrets
from tests.provider import Provider, tool_file
from worker import Parts

T = TypeVar("T")
Run = WorkflowHandle[Any, RunResult]

ROUTE = """
route: refund
subject: {type: customer, id: customer}
input:
  customer: {type: identifier}
  order: {type: identifier}
  complaint: {type: text, personal: true, required: false}
state:
  charge: {type: identifier, set_by: [tool]}
  amount: {type: decimal, set_by: [tool, user]}
  currency: {type: string, set_by: [tool]}
  kind: {type: string, set_by: [model], choices: [double, other]}
  note: {type: text, personal: true, set_by: [user]}
  comment: {type: text, personal: true, set_by: [approval]}
  refund_id: {type: identifier, set_by: [tool]}
start: find
steps:
  find:
    kind: tool
    tool: payments.find_charge
    arguments: {order: order}
    sets: {charge: charge.id, amount: charge.amount, currency: charge.currency}
    next: classify
  classify: {kind: model, prompt: What is it?, reads: [order], sets: [kind], next: approve}
  approve:
    kind: approval
    intent:
      action: refund
      tool: payments.refund
      object: {type: charge, id: charge}
      arguments: {charge: charge, amount: amount, currency: currency}
      amount: amount
      currency: currency
    approvers: [approver]
    evidence: [charge, amount]
    expires_after: 72h
    comment: comment
    approved: refund
    rejected: declined
  refund: {kind: tool, intent: approve, sets: {refund_id: id}, next: refunded}
  refunded: {kind: end, outcome: refunded}
  declined: {kind: end, outcome: declined}
handoff: {owner: support}
"""
SCRIPT = "- {route: refund, step: classify, fields: {kind: double}}\n"


@dataclass(frozen=True)
class Signer:
    """A key pair whose public half the service knows."""

    private: str
    public: str

    @staticmethod
    def generate() -> "Signer":
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return Signer(private.decode(), public.decode())


async def until(look: Callable[[], Awaitable[T | None]], seconds: float = 20) -> T:
    """The first answer that is one. ``TimeoutError`` when there is none in time."""
    end = time.monotonic() + seconds
    while True:
        found = await look()
        if found:
            return found
        if time.monotonic() > end:
            raise TimeoutError("it did not come about")
        await asyncio.sleep(0.02)


@dataclass
class Stage:
    """One tenant with the refund route, and whoever acts on it."""

    parts: Parts
    postgres: Postgres
    provider: Provider
    principal: Principal
    signer: Signer
    rogue: Signer = field(default_factory=Signer.generate)

    @property
    def client(self) -> Client:
        return self.parts.client

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.parts.database, self.parts.keys)

    @property
    def runs(self) -> Runs:
        return Runs(self.parts.database, self.parts.keys)

    @property
    def approver(self) -> Principal:
        return Principal(tenant=self.principal.tenant, actor="boss", roles=("approver",), identity="token")

    async def install(self, text: str = ROUTE) -> None:
        route = parse(text, "route.yaml")
        developer = Principal(tenant=self.principal.tenant, actor="dev", roles=("developer",))
        stored = Routes(self.parts.database, self.parts.keys)
        await stored.install(developer, route, digest(route.model_dump(mode="json")))

    @asynccontextmanager
    async def working(self, parts: Parts | None = None) -> AsyncIterator[None]:
        """A worker and a relay, for as long as this lasts."""
        parts = parts or self.parts
        async with parts.worker():
            relay = asyncio.create_task(parts.relay().run())
            try:
                yield
            finally:
                relay.cancel()
                with suppress(asyncio.CancelledError):
                    await relay

    def tools(self, tools: ToolFile) -> Parts:
        """The same parts with other tools."""
        return replace(self.parts, tools=tools)

    def with_settings(self, **changes: Any) -> Parts:
        """The same parts with other settings."""
        return replace(self.parts, settings=self.parts.settings.model_copy(update=changes))

    async def start(self, route: str = "refund", **given: Any) -> Run:
        run_id = uuid.uuid4().hex
        fields = {"customer": "cus_1", "order": "A-1"} | given if route == "refund" else given
        start = RunInput(
            tenant=self.principal.tenant, run_id=run_id, route=route, actor=self.principal.actor, input=fields
        )
        return await self.client.start_workflow(
            names.WORKFLOW_AGENT_RUN,
            start,
            id=names.workflow_id(start.tenant, run_id),
            task_queue=self.parts.settings.task_queue,
            result_type=RunResult,
        )

    async def view(self, run: Run) -> ProcessView:
        view: ProcessView = await self.latest(run).query(names.QUERY_PROCESS, result_type=ProcessView)
        return view

    def latest(self, run: Run) -> Run:
        """The newest execution of the run."""
        return self.client.get_workflow_handle(run.id, result_type=RunResult)

    async def waiting(self, run: Run, what: str = "approval:approve") -> ProcessView:
        """The run as it waits for this."""

        async def look() -> ProcessView | None:
            view = await self.view(run)
            return view if view.waiting_for == what else None

        return await until(look)

    async def review(self, run: Run, version: int | None = None) -> ReviewState:
        """The open review of a run, of this version."""

        async def look() -> ReviewState | None:
            pending = await self.ledger.list_reviews(self.principal, status="pending", limit=200)
            mine = [r for r in pending if r.run_id == run_id_of(run) and version in (None, r.version)]
            return mine[0] if mine else None

        return await until(look)

    def decision(
        self, review: ReviewState, verdict: str = "approve", *, roles: tuple[str, ...] = ("approver",), **changes: Any
    ) -> Decision:
        """A decision with a proof by the registered key; ``signer`` among the changes signs with another."""
        signer = changes.pop("signer", self.signer)
        values = {
            "review_id": review.review_id,
            "decision_id": f"dec_{uuid.uuid4().hex[:8]}",
            "verdict": verdict,
            "version": review.version,
            "digest": review.digest,
        }
        decision = Decision.model_validate(values | changes)
        who = self.approver.model_copy(update={"roles": roles})
        return decision.model_copy(update={"proof": make_proof(decision, who, signer.private)})

    async def send(self, run: Run, kind: str = "message", **fields: Any) -> str:
        """Commit a message to the run, as the gateway does; returns its id."""
        message = RunMessage.model_validate(
            {"id": f"m_{uuid.uuid4().hex[:8]}", "kind": kind, "actor": "user", "fields": fields}
        )
        await self.runs.receive(self.principal, run_id_of(run), message)
        return message.id

    async def masked(self, text: str) -> MaskedText:
        """Text as masking leaves it."""
        secrets = tenant_secrets(self.parts.database, self.parts.keys)
        return await Seals(secrets).seal(self.principal, text, "test-1")


def run_id_of(run: Run) -> str:
    return run.id.rsplit(":", 1)[1]


@asynccontextmanager
async def staged(
    client: Client, database: Database, relay_database: Database, keys: Keys, postgres: Postgres, folder: Path
) -> AsyncIterator[Stage]:
    """A stage with a tenant, a task queue and a provider of its own."""
    provider, signer = Provider(), Signer.generate()
    script = folder / "model.yaml"
    script.write_text(SCRIPT)
    settings = Settings(
        database=DatabaseSettings(url=SecretStr("unused")),
        auth=AuthSettings(public_key=SecretStr(signer.public)),
        objects=ObjectSettings(url=f"file://{folder}", threshold_bytes=100_000),
        model=ModelSettings(script=script),
        task_queue=f"perdure-{uuid.uuid4().hex[:8]}",
    )
    logging.getLogger("temporalio.activity").setLevel(logging.ERROR)
    async with httpx.AsyncClient(timeout=httpx.Timeout(None, connect=5)) as http:
        parts = Parts(settings, database, relay_database, keys, http, client, tool_file(provider.url))
        principal = Principal(tenant=f"t{uuid.uuid4().hex[:12]}", actor="app")
        stage = Stage(parts, postgres, provider, principal, signer)
        await stage.install()
        try:
            yield stage
        finally:
            provider.close()
