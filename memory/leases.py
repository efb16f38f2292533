"""Leases: a timed exclusive right with a narrow purpose; its fencing token stops a holder that lost it."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from memory import journal
from memory.database import Database, change, one
from memory.keys import Keys
from perdure.errors import LeaseHeld, LeaseLost
from perdure.messages import Principal
from perdure.names import Event, Stream


@dataclass(frozen=True)
class Lease:
    """What a holder has; ``fence`` grows with every holder of this name, for ever."""

    name: str
    purpose: str
    holder: str
    fence: int
    expires_at: datetime


class Leases:
    """Leases of a tenant by name."""

    def __init__(self, database: Database, keys: Keys) -> None:
        self._database = database
        self._keys = keys

    async def acquire(self, principal: Principal, name: str, purpose: str, holder: str, seconds: float) -> Lease:
        """Take a free or expired lease; one's own is renewed with the same fence. Raises ``LeaseHeld``."""
        async with self._database.transaction(principal) as connection:
            row = await one(
                connection,
                _ACQUIRE,
                tenant=principal.tenant,
                name=name,
                purpose=purpose,
                holder=holder,
                seconds=seconds,
            )
            if row is None:
                raise LeaseHeld(f"the lease {name} has another holder", lease=name)
            lease = Lease(**row)
            payload = {"purpose": purpose, "holder": holder, "fence": lease.fence}
            await self._note(connection, principal, Event.LEASE_ACQUIRED, name, payload)
        return lease

    async def renew(self, principal: Principal, lease: Lease, seconds: float) -> Lease:
        """Extend it. Raises ``LeaseLost`` when it expired or passed on."""
        async with self._database.transaction(principal) as connection:
            row = await one(
                connection, _RENEW, tenant=principal.tenant, name=lease.name, fence=lease.fence, seconds=seconds
            )
        if row is None:
            raise LeaseLost(f"the lease {lease.name} was lost", lease=lease.name)
        return Lease(**row)

    async def release(self, principal: Principal, lease: Lease) -> None:
        """Give it back; giving back a lost lease changes nothing."""
        async with self._database.transaction(principal) as connection:
            freed = await change(connection, _RELEASE, tenant=principal.tenant, name=lease.name, fence=lease.fence)
            if freed:
                await self._note(connection, principal, Event.LEASE_RELEASED, lease.name, {"fence": lease.fence})

    async def _note(
        self, connection: AsyncConnection, principal: Principal, event: Event, name: str, payload: dict[str, object]
    ) -> None:
        await journal.append(
            connection, self._keys, principal, Stream.LEASE, name, event, payload, ("lease", name), process="lease"
        )


async def check(connection: AsyncConnection, tenant: str, name: str, fence: int) -> None:
    """Inside the transaction that commits what the lease protects. Raises ``LeaseLost``."""
    if await one(connection, _CHECK, tenant=tenant, name=name, fence=fence) is None:
        raise LeaseLost(f"the lease {name} was lost; nothing was committed", lease=name)


_COLUMNS = "name, purpose, holder, fence, expires_at"
_UNTIL = "clock_timestamp() + make_interval(secs => :seconds)"
_LIVE = "tenant = :tenant AND name = :name AND fence = :fence AND holder IS NOT NULL AND expires_at > clock_timestamp()"
_ACQUIRE = (
    "INSERT INTO perdure.leases AS held (tenant, name, purpose, holder, fence, expires_at)"
    f" VALUES (:tenant, :name, :purpose, :holder, 1, {_UNTIL}) ON CONFLICT (tenant, name) DO UPDATE SET"
    " purpose = excluded.purpose, holder = excluded.holder, expires_at = excluded.expires_at,"
    " fence = held.fence + CASE WHEN held.holder = excluded.holder AND held.purpose = excluded.purpose AND"
    " held.expires_at > clock_timestamp() THEN 0 ELSE 1 END"
    " WHERE held.holder IS NULL OR held.holder = excluded.holder OR held.expires_at <= clock_timestamp()"
    f" RETURNING {_COLUMNS}"
)
_RENEW = f"UPDATE perdure.leases SET expires_at = {_UNTIL} WHERE {_LIVE} RETURNING {_COLUMNS}"
_RELEASE = f"UPDATE perdure.leases SET holder = NULL WHERE {_LIVE}"
_CHECK = f"SELECT 1 AS held FROM perdure.leases WHERE {_LIVE} FOR UPDATE"
