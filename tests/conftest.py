"""One real PostgreSQL for all tests; each test has tenants of its own."""

import os
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.testing import WorkflowEnvironment

import embedded
from memory.database import Database, migrate
from memory.keys import Keys, RingKeys
from memory.ledger import Ledger
from memory.routes import Routes
from memory.runs import Runs
from perdure.keyring import KeyRing
from perdure.messages import Principal
from perdure.temporal import data_converter
from tests.stage import Stage, staged

SETTLE_SECONDS = 0.5


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Postgres]:
    """A migrated server."""
    directory = tmp_path_factory.mktemp("postgres")
    server = embedded.prepare_postgres(directory / "pg")
    process = server.launch().start(directory / "pg.log")
    try:
        server.wait()
        migrate(server.url("postgres"))
        yield server
    finally:
        process.send_signal(server.launch().stop_signal)
        process.wait(30)


@pytest.fixture(scope="session")
async def database(postgres: embedded.Postgres) -> AsyncIterator[Database]:
    """The service's own connections."""
    opened = Database(postgres.url("perdure_service"))
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
async def relay_database(postgres: embedded.Postgres) -> AsyncIterator[Database]:
    """The relay's connections."""
    opened = Database(postgres.url("perdure_relay"), pool_size=2)
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def root_ring() -> KeyRing:
    return KeyRing.generate("root1")


@pytest.fixture(scope="session")
def keys(root_ring: KeyRing) -> Keys:
    return Keys(RingKeys(root_ring))


@pytest.fixture
def principal() -> Principal:
    """An app of a tenant that no other test has."""
    return Principal(tenant=f"t{uuid.uuid4().hex[:12]}", actor="app")


@pytest.fixture
def approver(principal: Principal) -> Principal:
    """An approver of the same tenant."""
    return Principal(tenant=principal.tenant, actor="boss", roles=("approver",), identity="token")


@pytest.fixture
def ledger(database: Database, keys: Keys) -> Ledger:
    return Ledger(database, keys)


@pytest.fixture
def runs(database: Database, keys: Keys) -> Runs:
    return Runs(database, keys)


@pytest.fixture
def routes(database: Database, keys: Keys) -> Routes:
    return Routes(database, keys)


@pytest.fixture(scope="session")
async def temporal(codec_ring: KeyRing) -> AsyncIterator[Client]:
    """A client of a real Temporal server, with our converter."""
    attributes = [SearchAttributeKey.for_keyword(name) for name in embedded.SEARCH_ATTRIBUTES]
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=embedded.executable("temporal"),
        search_attributes=attributes,
        data_converter=data_converter(codec_ring),
        dev_server_log_level="error",
    ) as environment:
        yield environment.client


@pytest.fixture(scope="session")
def codec_ring() -> KeyRing:
    return KeyRing.generate("codec1")


@pytest.fixture
async def stage(
    temporal: Client,
    database: Database,
    relay_database: Database,
    keys: Keys,
    postgres: embedded.Postgres,
    tmp_path: Path,
) -> AsyncIterator[Stage]:
    """A tenant with the refund route."""
    async with staged(temporal, database, relay_database, keys, postgres, tmp_path) as stage:
        yield stage


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """A process that used Temporal's SDK may abort at interpreter exit, after everything passed."""
    code = getattr(config, "perdure_exit_code", None)
    if code is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(SETTLE_SECONDS)
        os._exit(code)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remember how it went until everything is printed."""
    session.config.perdure_exit_code = int(exitstatus)  # type: ignore[attr-defined]
