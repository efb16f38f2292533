"""The seal of masked text: proof that this system masked it, for this tenant, and that it was not changed since."""

import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable

from memory.database import Database
from memory.keys import Keys
from perdure.errors import UnmaskedText
from perdure.masked import MaskedText
from perdure.messages import Principal

SEAL_LABEL = "masked-text"
SEAL_DIGITS = 32
REMEMBERED_SECONDS = 60.0
REMEMBERED_TENANTS = 1000

Secret = Callable[[Principal, str], Awaitable[bytes]]
"""The secret of the principal's tenant for a label: 32 bytes."""


def tenant_secrets(database: Database, keys: Keys) -> Secret:
    """Secrets from the tenants' own keys."""

    async def secret(principal: Principal, label: str) -> bytes:
        async with database.transaction(principal) as connection:
            return await keys.tenant_secret(connection, principal.tenant, label)

    return secret


def seal_of(secret: bytes, tenant: str, detector: str, masked: str) -> str:
    """HMAC-SHA256 over tenant, detector and text, the first 32 hex digits. Lengths are bound too."""
    mac = hmac.new(secret, digestmod=hashlib.sha256)
    for part in (tenant.encode(), detector.encode(), masked.encode()):
        mac.update(len(part).to_bytes(8, "big") + part)
    return mac.hexdigest()[:SEAL_DIGITS]


class Seals:
    """Makes and verifies seals with each tenant's own secret, which is remembered for a minute."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self._remembered: dict[str, tuple[bytes, float]] = {}

    async def seal(self, principal: Principal, masked: str, detector: str) -> MaskedText:
        """Masking alone calls this."""
        secret = await self._of(principal)
        return MaskedText(masked=masked, detector=detector, seal=seal_of(secret, principal.tenant, detector, masked))

    async def verify(self, principal: Principal, text: MaskedText, field: str | None = None) -> None:
        """Raises ``UnmaskedText`` when the seal was not made for this tenant and this text."""
        secret = await self._of(principal)
        expected = seal_of(secret, principal.tenant, text.detector, text.masked)
        if not hmac.compare_digest(expected, text.seal):
            raise UnmaskedText(f"the masked text of {field or 'a field'} has a seal that does not fit it", field=field)

    async def _of(self, principal: Principal) -> bytes:
        found = self._remembered.get(principal.tenant)
        if found and time.monotonic() < found[1]:
            return found[0]
        secret = await self._secret(principal, SEAL_LABEL)
        if len(self._remembered) >= REMEMBERED_TENANTS:
            self._remembered.clear()
        self._remembered[principal.tenant] = (secret, time.monotonic() + REMEMBERED_SECONDS)
        return secret
