"""The one door to PostgreSQL: a transaction in which the tenant, the actor and the purpose are set."""

import select
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import psycopg
from alembic import command
from alembic.config import Config
from sqlalchemy import CursorResult, PoolProxiedConnection, RowMapping, TextClause, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DataError, DisconnectionError, IntegrityError, ProgrammingError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from perdure.errors import Corruption, InvalidInput, StoreUnavailable, UnsafeRole, VersionConflict
from perdure.messages import Principal

MIGRATIONS = Path(__file__).resolve().parent.parent / "migrations"
_SET = text(
    "SELECT set_config('perdure.tenant', :tenant, true), set_config('perdure.actor', :actor, true),"
    " set_config('perdure.purpose', :purpose, true)"
)
_POWERS = text(
    "SELECT EXISTS (SELECT FROM pg_class WHERE relname = 'journal' AND relnamespace = to_regnamespace('perdure')),"
    " EXISTS (SELECT FROM pg_roles r WHERE (r.rolsuper OR r.rolbypassrls)"
    " AND pg_has_role(session_user, r.oid, 'MEMBER')) OR EXISTS (SELECT FROM pg_class c WHERE c.relkind IN ('r', 'p')"
    " AND c.relnamespace = to_regnamespace('perdure') AND (pg_has_role(session_user, c.relowner, 'MEMBER')"
    " OR NOT (c.relrowsecurity AND c.relforcerowsecurity)))"
)
CONNECT_SECONDS = 5
SESSION = "-c timezone=UTC -c statement_timeout=15s -c lock_timeout=10s -c idle_in_transaction_session_timeout=60s"


class Database:
    """Connections of one role. ``url`` is a SQLAlchemy URL for psycopg 3."""

    def __init__(self, url: str, pool_size: int = 10) -> None:
        self._url = url
        self._engine = create_async_engine(
            url,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=10,
            hide_parameters=True,
            connect_args={"options": SESSION, "connect_timeout": CONNECT_SECONDS},
        )
        event.listen(self._engine.sync_engine, "checkout", _refuse_dead)

    @asynccontextmanager
    async def transaction(self, principal: Principal) -> AsyncIterator[AsyncConnection]:
        """A transaction for one principal; it sees and writes rows of that tenant alone.

        Raises ``StoreUnavailable`` when the server does not answer, ``VersionConflict`` when a constraint says that
        somebody else was first, and ``InvalidInput`` for a value that cannot be stored, such as a NUL.
        """
        async with self._begin() as connection:
            await connection.execute(
                _SET, {"tenant": principal.tenant, "actor": principal.actor, "purpose": principal.purpose}
            )
            yield connection

    @asynccontextmanager
    async def across_tenants(self) -> AsyncIterator[AsyncConnection]:
        """A transaction without a tenant: the relay's role sees outbox ids, every other role sees nothing."""
        async with self._begin() as connection:
            yield connection

    @asynccontextmanager
    async def _begin(self) -> AsyncIterator[AsyncConnection]:
        try:
            async with self._engine.begin() as connection:
                yield connection
        except IntegrityError:
            raise VersionConflict("somebody else wrote first; read again") from None
        except DataError:
            raise InvalidInput("a value is not one that the database can hold") from None
        except ProgrammingError as error:
            raise Corruption(f"the database refused a statement ({type(error.orig).__name__})") from None
        except (SQLAlchemyError, OSError) as error:
            raise StoreUnavailable(f"the database did not carry out the work ({type(error).__name__})") from None

    @asynccontextmanager
    async def notifications(self, channel: str) -> AsyncIterator[AsyncIterator[psycopg.Notify]]:
        """What is notified on a channel, heard on a connection of its own. Raises ``StoreUnavailable``."""
        url = make_url(self._url).set(drivername="postgresql").render_as_string(hide_password=False)
        try:
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
                await connection.execute(f"LISTEN {channel}")
                async with aclosing(connection.notifies()) as heard:  # which holds the connection's lock until closed
                    yield heard
        except psycopg.OperationalError:
            raise StoreUnavailable("the database does not notify any more") from None

    async def guard(self) -> None:
        """Raises ``UnsafeRole`` when this role, or one it can become, could read across tenants, or a table is open."""
        async with self._begin() as connection:
            migrated, unsafe = (await connection.execute(_POWERS)).one()
        if not migrated:
            raise StoreUnavailable("the database has no schema yet; migrate it first")
        if unsafe:
            raise UnsafeRole(
                "this role is or can become one that bypasses row security, or a table has none; use perdure_service"
            )

    async def close(self) -> None:
        await self._engine.dispose()


def _refuse_dead(connection: DBAPIConnection, entry: ConnectionPoolEntry, proxy: PoolProxiedConnection) -> None:
    """Make the pool replace a connection that the server closed while it was idle; no round trip is spent on it."""
    driver = entry.driver_connection
    assert isinstance(driver, psycopg.AsyncConnection)
    waiting = select.poll()
    if not driver.closed:
        waiting.register(driver.fileno(), select.POLLIN)
    if driver.closed or waiting.poll(0):  # only an end, or a notice of one, is sent to an idle connection
        raise DisconnectionError


@lru_cache(maxsize=1000)
def _statement(sql: str) -> TextClause:
    """Parsed once: every statement is a constant of its module."""
    return text(sql)


async def one(connection: AsyncConnection, sql: str, **parameters: Any) -> RowMapping | None:
    """The only row of a statement, or None."""
    return (await connection.execute(_statement(sql), parameters)).mappings().one_or_none()


async def many(connection: AsyncConnection, sql: str, **parameters: Any) -> list[dict[str, Any]]:
    """All rows of a statement."""
    return [dict(row) for row in (await connection.execute(_statement(sql), parameters)).mappings()]


async def change(connection: AsyncConnection, sql: str, **parameters: Any) -> int:
    """How many rows a statement changed."""
    result = await connection.execute(_statement(sql), parameters)
    assert isinstance(result, CursorResult)
    return result.rowcount


def migrate(owner_url: str) -> None:
    """Bring the schema up to date, as a role that may create roles and schemas."""
    engine = create_engine(owner_url, hide_parameters=True)
    try:
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(7273646)"))
            config = Config()
            config.set_main_option("script_location", str(MIGRATIONS))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    finally:
        engine.dispose()
