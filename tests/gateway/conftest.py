"""The edge on a real database and a real Temporal server, called without a socket in between."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from temporalio.client import Client as Temporal

import embedded
from gateway.app import create_app
from gateway.idempotency import Requests
from gateway.services import Services
from memory.database import Database
from memory.keys import Keys
from memory.ledger import Ledger
from memory.routes import Routes
from memory.runs import Runs
from memory.settings import GatewaySettings
from perdure.calls import ReviewRequest
from perdure.ids import digest
from perdure.keyring import KeyRing
from perdure.messages import EvidenceRef, Principal, ReviewState, RunInput
from perdure.routefile import parse
from perdure.temporal import data_converter
from perdure.tokens import StaticKey, Tokens, sign
from perdure.toolfile import ToolFile
from pii.seal import Seals, tenant_secrets
from pii.standin import StandinMasker

UI = "http://127.0.0.1:8233"
SIGNING = Ed25519PrivateKey.generate()
PRIVATE = SIGNING.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
PUBLIC = SIGNING.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
ROUTE = """\
route: refund
subject: {type: customer, id: customer_id}
input:
  customer_id: {type: identifier}
  complaint: {type: text, personal: true}
  urgent: {type: boolean, required: false}
state:
  amount: {type: decimal, set_by: [tool, user]}
  note: {type: text, personal: true, set_by: [user]}
  order: {type: string, set_by: [user]}
start: ask
steps:
  ask: {kind: wait, sets: [amount], timeout: 1h, next: done}
  done: {kind: end, outcome: paid}
handoff: {owner: operator}
"""


@pytest.fixture(scope="session")
def temporal_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A development server that has our search attributes."""
    port, home = embedded.free_port(), tmp_path_factory.mktemp("temporal")
    process = embedded.temporal_launch(home / "temporal.db", port, None).start(home / "temporal.log")
    try:
        yield port
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="session")
def codec_ring() -> KeyRing:
    return KeyRing.generate("codec1")


@pytest.fixture
async def temporal(temporal_port: int, codec_ring: KeyRing) -> Temporal:
    until = time.monotonic() + 30
    while True:
        try:
            return await Temporal.connect(f"127.0.0.1:{temporal_port}", data_converter=data_converter(codec_ring))
        except RuntimeError:
            if time.monotonic() > until:
                raise


@pytest.fixture
def services(database: Database, keys: Keys, temporal: Temporal, codec_ring: KeyRing) -> Services:
    secrets = tenant_secrets(database, keys)
    seals = Seals(secrets)
    return Services(
        tokens=Tokens(StaticKey(PUBLIC), "perdure", "perdure"),
        database=database,
        routes=Routes(database, keys),
        runs=Runs(database, keys),
        ledger=Ledger(database, keys),
        requests=Requests(database, secrets),
        masker=StandinMasker(seals),
        seals=seals,
        temporal=temporal,
        codec_ring=codec_ring,
        tools=ToolFile(),
        settings=GatewaySettings(temporal_ui_url=UI),
        task_queue="perdure-edge-test",
    )


def token(tenant: str, *roles: str, **claims: Any) -> str:
    """A good token; ``claims`` change it."""
    known = {"iss": "perdure", "aud": "perdure", "tenant": tenant, "sub": f"{roles[0]}-person", "roles": list(roles)}
    return sign({**known, "exp": int(time.time()) + 600, **claims}, PRIVATE)


@dataclass(frozen=True)
class Edge:
    """The application, as any caller."""

    http: httpx.AsyncClient
    tenant: str

    async def get(self, path: str, role: str, **claims: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token(self.tenant, role, **claims)}"}
        return await self.http.get(path, headers=headers)

    async def post(self, path: str, role: str, body: Any, key: str | None = "k1", **claims: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token(self.tenant, role, **claims)}"}
        headers |= {} if key is None else {"Idempotency-Key": key}
        kind = "application/yaml" if path == "/v1/routes" else "application/json"
        if isinstance(body, bytes):
            return await self.http.post(path, headers=headers | {"Content-Type": kind}, content=body)
        return await self.http.post(path, headers=headers, json=body)


@pytest.fixture
async def http(services: Services) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(services))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        yield client


@pytest.fixture
def edge(http: httpx.AsyncClient, principal: Principal) -> Edge:
    return Edge(http, principal.tenant)


@pytest.fixture
def other(http: httpx.AsyncClient) -> Callable[[str], Edge]:
    return lambda tenant: Edge(http, tenant)


async def opened_run(services: Services, principal: Principal, run_id: str) -> None:
    """A run that a worker has opened, without the worker."""
    route = parse(ROUTE, "test")
    developer = principal.model_copy(update={"roles": ("developer",)})
    await services.routes.install(developer, route, digest(route.model_dump(mode="json")))
    stored = await services.routes.get(principal, "refund", None)
    text = (await services.masker.mask(principal, "charged twice")).model_dump(mode="json")
    given = RunInput(
        tenant=principal.tenant,
        run_id=run_id,
        route="refund",
        version=stored.version,
        actor=principal.actor,
        input={"customer_id": "c1", "complaint": text},
    )
    await services.runs.open(principal, given, stored, "execution", ("customer", "c1"))


async def opened_review(
    services: Services,
    principal: Principal,
    run_id: str,
    amount: str = "820.00",
    seconds: float = 600,
    opening: int = 1,
) -> ReviewState:
    """A review of one intent version; the same intent with another amount is the next version."""
    evidence = EvidenceRef(field="amount", event_id="ev_2", digest=digest(amount), value=amount)
    return await services.ledger.open_review(
        ReviewRequest(
            principal=principal,
            run_id=run_id,
            route="refund",
            route_version=1,
            step="approve",
            opening=f"approve.1.{opening}",
            intent_id=f"int_{run_id}_approve_1",
            action="refund",
            tool="payments.refund",
            object_type="charge",
            object_id="ch1",
            arguments={"amount": amount},
            amount=amount,
            currency="EUR",
            evidence=(evidence,),
            rests_on=("amount",),
            approvers=("approver",),
            expires_after=timedelta(seconds=seconds),
        )
    )
