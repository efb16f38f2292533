"""A server that goes away is told as such and used again when it is back; no message holds a value."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

import embedded
from memory.database import Database, change, many, migrate, one
from memory.requests import remember
from perdure.errors import Corruption, InvalidInput, PerdureError, StoreUnavailable, VersionConflict
from perdure.messages import Principal

SECRET = "canary-4276-5500"


class Server:
    """A PostgreSQL of one's own, to be stopped."""

    def __init__(self, directory: Path) -> None:
        self.postgres = embedded.prepare_postgres(directory / "pg")
        self._log = directory / "pg.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = self.postgres.launch().start(self._log)
        self.postgres.wait()

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(self.postgres.launch().stop_signal)
            self._process.wait(30)
            self._process = None


@pytest.fixture
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    own = Server(tmp_path_factory.mktemp("own"))
    own.start()
    migrate(own.postgres.url("postgres"))
    yield own
    own.stop()


async def write(database: Database, principal: Principal, key: str) -> None:
    async with database.transaction(principal) as connection:
        await remember(connection, principal.tenant, key, "start", "d")


async def interrupted(database: Database, principal: Principal, server: Server) -> None:
    async with database.transaction(principal) as connection:
        await remember(connection, principal.tenant, "in the middle", "start", "d")
        server.stop()
        await many(connection, "SELECT 1")


async def test_a_server_that_was_stopped_and_started_is_used_again(server: Server, principal: Principal) -> None:
    database = Database(server.postgres.url("perdure_service"), pool_size=3)
    await write(database, principal, "before")
    with pytest.raises(StoreUnavailable):
        await interrupted(database, principal, server)
    for _ in range(4):  # more often than there are connections
        with pytest.raises(StoreUnavailable):
            await write(database, principal, "down")
    with pytest.raises(StoreUnavailable):
        await database.guard()
    server.start()
    for number in range(4):  # no connection that died before is given out
        await write(database, principal, f"after {number}")
    await database.guard()
    async with database.transaction(principal) as connection:
        rows = await many(connection, "SELECT key FROM perdure.requests ORDER BY key")
    assert [row["key"] for row in rows] == [*(f"after {n}" for n in range(4)), "before"]
    await database.close()


async def test_connections_that_died_while_nobody_used_them_are_replaced(server: Server, principal: Principal) -> None:
    database = Database(server.postgres.url("perdure_service"), pool_size=3)
    await asyncio.gather(*(write(database, principal, f"k{n}") for n in range(3)))
    server.stop()
    server.start()
    await asyncio.gather(*(write(database, principal, f"again{n}") for n in range(3)))
    await database.close()


async def test_who_listens_hears_that_the_server_is_gone(server: Server) -> None:
    database = Database(server.postgres.url("perdure_relay"), pool_size=1)

    async def listen() -> None:
        async with database.notifications("perdure_outbox") as notifications:
            server.stop()
            async for _ in notifications:
                pass

    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(listen(), 10)
    await database.close()


async def refused(
    database: Database, principal: Principal, error: type[PerdureError], sql: str, **values: object
) -> None:
    with pytest.raises(error) as caught:
        async with database.transaction(principal) as connection:
            await change(connection, sql, **values)
    shown: BaseException | None = caught.value
    while shown is not None:
        assert SECRET not in str(shown) + repr(shown) + repr(getattr(shown, "ids", None))
        shown = shown.__cause__
    assert caught.value.__suppress_context__


ADD = "INSERT INTO perdure.requests (tenant, key, operation, digest) VALUES (:tenant, :key, 'start', 'd')"


async def test_a_nul_byte_is_wrong_input_and_not_a_broken_server(database: Database, principal: Principal) -> None:
    values = {"tenant": principal.tenant, "key": f"{SECRET}\x00"}
    await refused(database, principal, InvalidInput, ADD, **values)


async def test_no_error_holds_a_value(database: Database, principal: Principal) -> None:
    tenant = principal.tenant
    await write(database, principal, SECRET)
    await refused(database, principal, VersionConflict, ADD, tenant=tenant, key=SECRET)
    await refused(database, principal, Corruption, ADD, tenant=SECRET, key="k")
    await refused(database, principal, Corruption, "SELECT :secret FROM nowhere", secret=SECRET)
    await refused(database, principal, InvalidInput, "SELECT CAST(:secret AS integer)", secret=SECRET)
    await refused(database, principal, InvalidInput, "SELECT CAST(:secret AS jsonb)", secret=SECRET)


async def test_a_failed_transaction_leaves_nothing_and_its_connection_goes_on(
    postgres: embedded.Postgres, principal: Principal
) -> None:
    database = Database(postgres.url("perdure_service"), pool_size=1)
    twice = f"WITH first AS ({ADD}) {ADD}"
    await refused(database, principal, VersionConflict, twice, tenant=principal.tenant, key="first")
    async with database.transaction(principal) as connection:
        assert await one(connection, "SELECT key FROM perdure.requests") is None
    await database.close()


async def test_the_connection_of_a_task_that_was_cancelled_is_free_again(
    postgres: embedded.Postgres, principal: Principal
) -> None:
    database = Database(postgres.url("perdure_service"), pool_size=1)

    async def sleeping() -> None:
        async with database.transaction(principal) as connection:
            await many(connection, "SELECT pg_sleep(30)::text")

    task = asyncio.create_task(sleeping())
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(write(database, principal, "k"), 5)
    await database.close()


async def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path, principal: Principal) -> None:
    database = Database(f"postgresql+psycopg://perdure_service@/postgres?host={tmp_path}")
    with pytest.raises(StoreUnavailable):
        await write(database, principal, "k")
    with pytest.raises(StoreUnavailable):
        async with database.notifications("perdure_outbox"):
            pass
    await database.close()


async def test_the_principal_is_known_to_the_database_for_one_transaction(
    database: Database, principal: Principal
) -> None:
    async def told(connection: AsyncConnection) -> list[str | None]:
        names = ("tenant", "actor", "purpose")
        columns = ", ".join(f"NULLIF(current_setting('perdure.{name}', true), '') AS {name}" for name in names)
        row = await one(connection, f"SELECT {columns}")
        assert row is not None
        return [row[name] for name in names]

    async with database.transaction(principal) as connection:
        assert await told(connection) == [principal.tenant, "app", "run"]
    async with database.across_tenants() as connection:
        assert await told(connection) == [None, None, None]
