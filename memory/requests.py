"""Idempotency keys of requests: a key belongs to the first request it came with."""

from sqlalchemy.ext.asyncio import AsyncConnection

from memory.database import one
from perdure.errors import IdempotencyMismatch


async def remember(connection: AsyncConnection, tenant: str, key: str, operation: str, digest: str) -> None:
    """Bind the key to this request. Raises ``IdempotencyMismatch`` when it came with another one before."""
    row = await one(
        connection,
        "INSERT INTO perdure.requests AS r (tenant, key, operation, digest) VALUES (:tenant, :key, :operation, :digest)"
        " ON CONFLICT (tenant, key) DO UPDATE SET digest = r.digest RETURNING operation, digest",
        tenant=tenant, key=key, operation=operation, digest=digest,
    )  # fmt: skip
    if row is None or (row["operation"], row["digest"]) != (operation, digest):
        raise IdempotencyMismatch("this idempotency key came with another request before; use a new one")
