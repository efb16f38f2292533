"""A tenant sees and writes its own rows alone, even when a statement forgets to say whose they are."""

import asyncio
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from embedded import Postgres
from memory.database import Database, change, many, migrate, one
from memory.keys import Keys
from memory.leases import Leases
from memory.ledger import Ledger
from memory.objects import Objects
from memory.outbox import Outbox
from memory.requests import remember
from memory.routes import Routes
from memory.runs import Runs
from perdure.errors import Corruption, StoreUnavailable, UnsafeRole
from perdure.messages import Principal, RunMessage
from tests.memory.scene import open_scene, rolled_back

LOOK_ALIKES = ("acme", "acme-corp", "acme.", "acme_", "ac%", "a%", "ACME", "acme2")
NEVER_CHANGED = ("journal", "intents", "routes", "objects")


def superuser(postgres: Postgres, database: str = "postgres") -> psycopg.Connection[Any]:
    url = postgres.url("postgres", database).replace("postgresql+psycopg", "postgresql")
    return psycopg.connect(url, autocommit=True)


@pytest.fixture(scope="module")
def tables(postgres: Postgres) -> list[str]:
    with superuser(postgres) as connection:
        rows = connection.execute(
            "SELECT table_name FROM information_schema.columns"
            " WHERE table_schema = 'perdure' AND column_name = 'tenant'"
        ).fetchall()
    assert len(rows) == 13
    return sorted(row[0] for row in rows)


@pytest.fixture(scope="module")
async def tenants(database: Database, keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> list[Principal]:
    """Look-alike tenants, each with a row in every table."""
    mark = uuid.uuid4().hex[:6]
    found = [Principal(tenant=f"{mark}{name}", actor="app") for name in LOOK_ALIKES]
    objects = Objects(database, keys, f"file://{tmp_path_factory.mktemp('objects')}")
    for principal in found:
        scene = await open_scene(Ledger(database, keys), Runs(database, keys), Routes(database, keys), principal)
        await scene.reserved(await scene.approved())
        await scene.runs.receive(principal, "r1", RunMessage(id="m", kind="hold", actor="app"))
        await Leases(database, keys).acquire(principal, "l", "read", "a", 60)
        await objects.put(principal, None, b"x", "text/plain")
        async with database.transaction(principal) as connection:
            await remember(connection, principal.tenant, "k", "start", "d")
    return found


async def test_without_any_predicate_a_tenant_sees_its_rows_alone(
    database: Database, tables: list[str], tenants: list[Principal]
) -> None:
    for principal in tenants:
        async with database.transaction(principal) as connection:
            for table in tables:
                rows = await many(connection, f"SELECT DISTINCT tenant FROM perdure.{table}")
                assert rows == [{"tenant": principal.tenant}], table


async def test_without_a_tenant_nothing_is_seen(
    database: Database, tables: list[str], tenants: list[Principal]
) -> None:
    async with database.across_tenants() as connection:
        for table in tables:
            assert await many(connection, f"SELECT tenant FROM perdure.{table} LIMIT 1") == [], table
    async with database.across_tenants() as connection:
        await connection.execute(text("SELECT set_config('perdure.tenant', '', true)"))
        for table in tables:
            assert await many(connection, f"SELECT tenant FROM perdure.{table} LIMIT 1") == [], table


async def test_nobody_writes_for_another_tenant(
    database: Database, tables: list[str], tenants: list[Principal]
) -> None:
    mine, other = tenants[0], tenants[1]
    for table in tables:
        given = "to_jsonb(r) || jsonb_build_object('tenant', CAST(:tenant AS text))"
        copied = f"""INSERT INTO perdure.{table} SELECT (p).* FROM (
            SELECT jsonb_populate_record(NULL::perdure.{table}, {given}) AS p FROM perdure.{table} r LIMIT 1) q"""
        with pytest.raises(Corruption):  # the policy refuses it before any constraint does
            async with database.transaction(mine) as connection:
                await change(connection, copied, tenant=other.tenant)
        async with database.transaction(mine) as connection:
            row = await one(
                connection, f"SELECT count(*) AS n FROM perdure.{table} WHERE tenant = :mine", mine=mine.tenant
            )
        assert row is not None and row["n"] > 0  # so there was a row to copy


async def test_an_update_or_delete_of_another_tenants_rows_finds_none(
    database: Database, tables: list[str], tenants: list[Principal]
) -> None:
    mine, other = tenants[0], tenants[1]
    for table in sorted(set(tables) - set(NEVER_CHANGED)):
        async with database.transaction(mine) as connection:
            sql = f"UPDATE perdure.{table} SET tenant = tenant WHERE tenant = :other"
            assert await change(connection, sql, other=other.tenant) == 0
        with pytest.raises(Corruption):  # nor are rows given away
            async with database.transaction(mine) as connection:
                await change(connection, f"UPDATE perdure.{table} SET tenant = :other", other=other.tenant)


@pytest.mark.parametrize("table", NEVER_CHANGED)
async def test_what_was_written_down_is_not_changed(database: Database, tenants: list[Principal], table: str) -> None:
    for sql in (f"UPDATE perdure.{table} SET tenant = tenant", f"TRUNCATE perdure.{table}"):
        with pytest.raises(Corruption):
            async with database.transaction(tenants[0]) as connection:
                await change(connection, sql)


async def test_nothing_is_deleted(database: Database, tables: list[str], tenants: list[Principal]) -> None:
    for table in tables:
        with pytest.raises(Corruption):
            async with database.transaction(tenants[0]) as connection:
                await change(connection, f"DELETE FROM perdure.{table}")


async def test_one_connection_shared_by_tenants_forgets_the_last_one(
    postgres: Postgres, tenants: list[Principal]
) -> None:
    single = Database(postgres.url("perdure_service"), pool_size=1)

    async def seen(principal: Principal) -> tuple[int, list[dict[str, Any]]]:
        async with single.transaction(principal) as connection:
            row = await one(connection, "SELECT pg_backend_pid() AS pid")
            assert row is not None
            return row["pid"], await many(connection, "SELECT DISTINCT tenant FROM perdure.runs")

    asked = [tenants[n % 2] for n in range(20)]
    answers = await asyncio.gather(*map(seen, asked))
    assert {pid for pid, _ in answers} == {answers[0][0]}
    assert [rows for _, rows in answers] == [[{"tenant": p.tenant}] for p in asked]
    await rolled_back(single, tenants[0], lambda c: many(c, "SELECT 1"))
    async with single.across_tenants() as connection:
        assert await many(connection, "SELECT 1 FROM perdure.runs") == []
    await single.close()


@pytest.fixture(scope="module")
def roles(postgres: Postgres) -> Iterator[dict[str, str]]:
    """Roles that must not serve, by what is wrong with them."""
    made = {
        "bypasses": "CREATE ROLE {} LOGIN BYPASSRLS",
        "becomes one that bypasses": "CREATE ROLE {} LOGIN; CREATE ROLE {}_up BYPASSRLS; GRANT {}_up TO {}",
        "becomes a superuser": "CREATE ROLE {} LOGIN NOINHERIT; CREATE ROLE {}_up SUPERUSER; GRANT {}_up TO {}",
        "becomes the owner": "CREATE ROLE {} LOGIN NOINHERIT; GRANT perdure_owner TO {}",
    }
    names = {what: f"unsafe_{number}" for number, what in enumerate(made)} | {"is a superuser": "postgres"}
    with superuser(postgres) as connection:
        for what, sql in made.items():
            for statement in sql.split(";"):
                connection.execute(statement.replace("{}", names[what]).encode())
        yield names
        for what in made:
            connection.execute(f"DROP ROLE {names[what]}".encode())
            connection.execute(f"DROP ROLE IF EXISTS {names[what]}_up".encode())


async def test_the_guard_lets_the_services_roles_in(database: Database, relay_database: Database) -> None:
    await database.guard()
    await relay_database.guard()


@pytest.mark.parametrize(
    "what",
    ["bypasses", "becomes one that bypasses", "becomes a superuser", "becomes the owner", "is a superuser"],
)
async def test_the_guard_refuses_a_role_that_could_see_everything(
    postgres: Postgres, roles: dict[str, str], what: str
) -> None:
    unsafe = Database(postgres.url(roles[what]), pool_size=1)
    with pytest.raises(UnsafeRole):
        await unsafe.guard()
    await unsafe.close()


async def test_the_guard_refuses_a_table_without_row_security(postgres: Postgres, database: Database) -> None:
    with superuser(postgres) as connection:
        connection.execute("ALTER TABLE perdure.leases NO FORCE ROW LEVEL SECURITY")
        try:
            with pytest.raises(UnsafeRole):
                await database.guard()
        finally:
            connection.execute("ALTER TABLE perdure.leases FORCE ROW LEVEL SECURITY")
    await database.guard()


async def test_the_tables_belong_to_a_role_that_nobody_logs_in_as(postgres: Postgres) -> None:
    with superuser(postgres) as connection:
        owners = connection.execute(
            "SELECT DISTINCT r.rolname, r.rolcanlogin FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner"
            " WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind IN ('r', 'p', 'i', 'S', 'v')"
        ).fetchall()
    assert owners == [("perdure_owner", False)]


async def test_an_owner_that_is_no_superuser_migrates_an_empty_database(postgres: Postgres) -> None:
    with superuser(postgres) as connection:
        connection.execute("CREATE ROLE deployer LOGIN CREATEROLE")
        connection.execute("CREATE DATABASE empty OWNER deployer")
        if connection.info.server_version >= 160_000:  # one may give only what one has the ADMIN option of
            connection.execute("GRANT perdure_owner TO deployer WITH ADMIN OPTION")
        else:
            connection.execute("GRANT perdure_owner TO deployer")
    service = Database(postgres.url("perdure_service", "empty"), pool_size=1)
    try:
        with pytest.raises(StoreUnavailable, match="migrate"):
            await service.guard()
        for _ in range(2):
            await asyncio.to_thread(migrate, postgres.url("deployer", "empty"))
        await service.guard()
        deployer = Database(postgres.url("deployer", "empty"), pool_size=1)
        with pytest.raises(UnsafeRole):
            await deployer.guard()
        await deployer.close()
    finally:
        await service.close()
        with superuser(postgres) as connection:
            connection.execute("DROP DATABASE empty")
            connection.execute("DROP OWNED BY deployer")
            connection.execute("DROP ROLE deployer")


async def test_the_relay_reads_ids_of_the_outbox_and_nothing_else(
    relay_database: Database, tables: list[str], tenants: list[Principal]
) -> None:
    assert (await Outbox(relay_database).lag())[0] >= len(tenants)
    for table in sorted(set(tables) - {"outbox"}):
        with pytest.raises(Corruption):
            async with relay_database.transaction(tenants[0]) as connection:
                await many(connection, f"SELECT tenant FROM perdure.{table}")
    for sql in (
        "UPDATE perdure.outbox SET reference = '{}'",
        "UPDATE perdure.outbox SET tenant = tenant",
        "DELETE FROM perdure.outbox",
        "INSERT INTO perdure.outbox (tenant, event_id, topic, reference) VALUES ('t', 'e', 'message', '{}')",
    ):
        with pytest.raises(Corruption):
            async with relay_database.across_tenants() as connection:
                await change(connection, sql)


async def test_the_clock_is_the_databases(database: Database, tenants: list[Principal]) -> None:
    async with database.transaction(tenants[0]) as connection:
        row = await one(connection, "SELECT now() AS now, current_setting('timezone') AS zone")
    assert row is not None and row["zone"] == "UTC"
    assert abs((datetime.now(UTC) - row["now"]).total_seconds()) < 60
