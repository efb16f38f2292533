"""Keys: a subject's wrapped by its tenant's, that by a provider's; to destroy one is to destroy what it sealed."""

import os
import secrets
import time
from typing import Any, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from memory.database import change, one
from memory.settings import KeySettings
from perdure.errors import InvalidInput, KeyMissing, SealBroken
from perdure.keyring import KEY_BYTES, KeyRing

Subject = tuple[str, str]
"""Type and id."""


def sealing_subject(run: RowMapping | dict[str, Any]) -> Subject:
    """Whose key seals what is written about a run: its subject's, or its own."""
    if run["subject_type"] is None:
        return "run", run["run_id"]
    return run["subject_type"], run["subject_id"]


NONCE_BYTES = 12
KEY_ID_BYTES = 16
REMEMBERED_SECONDS = 30.0
REMEMBERED_KEYS = 10_000


class KeyProvider(Protocol):
    """Whoever keeps the root keys: a key ring here, a KMS elsewhere. ``bound_to`` must be authenticated.

    ``unwrap`` raises ``KeyMissing`` for a root key it does not have and ``SealBroken`` for what does not open.
    """

    async def wrap(self, key: bytes, bound_to: bytes) -> bytes: ...

    async def unwrap(self, wrapped: bytes, bound_to: bytes) -> bytes: ...


class RingKeys:
    """Root keys in a key ring, from a file or the environment."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring

    async def wrap(self, key: bytes, bound_to: bytes) -> bytes:
        name = self._ring.active.encode()
        return bytes([len(name)]) + name + _encrypt(self._ring.cipher(self._ring.active), key, bound_to)

    async def unwrap(self, wrapped: bytes, bound_to: bytes) -> bytes:
        end = 1 + wrapped[0]
        return _decrypt(self._ring.cipher(wrapped[1:end].decode()), wrapped[end:], bound_to)


def provider_of(settings: KeySettings) -> KeyProvider:
    """The provider that the settings name. Raises ``InvalidInput`` when its key ring is missing or wrong."""
    if settings.provider == "file" and settings.root_file is not None:
        return RingKeys(KeyRing.read(settings.root_file))
    if settings.provider == "environment" and settings.root_ring is not None:
        return RingKeys(KeyRing.parse(settings.root_ring.get_secret_value()))
    raise InvalidInput("no root key ring: set PERDURE_KEYS__ROOT_FILE, or PERDURE_KEYS__ROOT_RING and its provider")


class Keys:
    """Seals values for a subject. Unwrapped keys are remembered for half a minute."""

    def __init__(self, provider: KeyProvider) -> None:
        self._provider = provider
        self._remembered: dict[tuple[str, ...], tuple[str, bytes, float]] = {}

    async def seal(
        self, connection: AsyncConnection, tenant: str, subject: Subject, plaintext: bytes, aad: bytes
    ) -> bytes:
        """Nonce and ciphertext behind the key's id. Raises ``KeyMissing`` when the subject's key was destroyed."""
        key_id, key = await self._subject_key(connection, tenant, subject)
        return bytes.fromhex(key_id) + _encrypt(AESGCM(key), plaintext, _bound(tenant, subject, aad))

    async def open(
        self, connection: AsyncConnection, tenant: str, subject: Subject, sealed: bytes, aad: bytes
    ) -> bytes:
        """Raises ``KeyMissing`` when the key was destroyed, ``SealBroken`` when the value was altered or moved."""
        key_id, key = await self._subject_key(connection, tenant, subject)
        if sealed[:KEY_ID_BYTES].hex() != key_id:
            raise SealBroken("a sealed value names another key than its subject's: altered or moved")
        return _decrypt(AESGCM(key), sealed[KEY_ID_BYTES:], _bound(tenant, subject, aad))

    async def tenant_secret(self, connection: AsyncConnection, tenant: str, label: str) -> bytes:
        """32 bytes that only this tenant and label have."""
        _, key = await self._tenant_key(connection, tenant)
        return HKDF(SHA256(), KEY_BYTES, salt=None, info=f"perdure|{tenant}|{label}".encode()).derive(key)

    async def destroy(self, connection: AsyncConnection, tenant: str, subject: Subject) -> None:
        """Destroy the subject's key; nothing sealed with it opens again, and no new one is made."""
        await self._subject_key(connection, tenant, subject)
        await change(
            connection,
            "UPDATE perdure.subject_keys SET wrapped = NULL, destroyed_at = now()"
            " WHERE tenant = :tenant AND subject_type = :type AND subject_id = :id",
            tenant=tenant, type=subject[0], id=subject[1],
        )  # fmt: skip
        self._remembered.pop((tenant, *subject), None)

    async def _subject_key(self, connection: AsyncConnection, tenant: str, subject: Subject) -> tuple[str, bytes]:
        name = (tenant, *subject)
        if (known := self._recall(name)) is not None:
            return known
        values = {"tenant": tenant, "type": subject[0], "id": subject[1]}
        row = await one(connection, _FIND_SUBJECT, **values)
        cipher, bound_to = AESGCM((await self._tenant_key(connection, tenant))[1]), "|".join(name).encode()
        if row is None:
            fresh = _encrypt(cipher, secrets.token_bytes(KEY_BYTES), bound_to)
            await change(connection, _ADD_SUBJECT, **values, key_id=secrets.token_hex(KEY_ID_BYTES), wrapped=fresh)
            row = await one(connection, _FIND_SUBJECT, **values)
        if row is None or row["wrapped"] is None:
            raise KeyMissing("the key of this subject was destroyed")
        return self._remember(name, row, _decrypt(cipher, row["wrapped"], bound_to))

    async def _tenant_key(self, connection: AsyncConnection, tenant: str) -> tuple[str, bytes]:
        if (known := self._recall((tenant,))) is not None:
            return known
        row = await one(connection, _FIND_TENANT, tenant=tenant)
        if row is None:
            wrapped = await self._provider.wrap(secrets.token_bytes(KEY_BYTES), tenant.encode())
            await change(connection, _ADD_TENANT, tenant=tenant, wrapped=wrapped)
            row = await one(connection, _FIND_TENANT, tenant=tenant)
        assert row is not None
        return self._remember((tenant,), row, await self._provider.unwrap(row["wrapped"], tenant.encode()))

    def _recall(self, name: tuple[str, ...]) -> tuple[str, bytes] | None:
        known = self._remembered.get(name)
        return (known[0], known[1]) if known and time.monotonic() < known[2] else None

    def _remember(self, name: tuple[str, ...], row: RowMapping, key: bytes) -> tuple[str, bytes]:
        if row["committed"]:  # one that this transaction made may yet be rolled back
            if len(self._remembered) >= REMEMBERED_KEYS:
                self._remembered.clear()
            self._remembered[name] = (row["key_id"], key, time.monotonic() + REMEMBERED_SECONDS)
        return row["key_id"], key


_FIND_SUBJECT = (
    "SELECT key_id, wrapped, created_at < now() AS committed FROM perdure.subject_keys"
    " WHERE tenant = :tenant AND subject_type = :type AND subject_id = :id"
)
_ADD_SUBJECT = (
    "INSERT INTO perdure.subject_keys (tenant, subject_type, subject_id, key_id, wrapped)"
    " VALUES (:tenant, :type, :id, :key_id, :wrapped) ON CONFLICT DO NOTHING"
)
_FIND_TENANT = (
    "SELECT key_id, wrapped, created_at < now() AS committed FROM perdure.tenant_keys"
    " WHERE tenant = :tenant AND key_id = 't1'"
)
_ADD_TENANT = (
    "INSERT INTO perdure.tenant_keys (tenant, key_id, wrapped) VALUES (:tenant, 't1', :wrapped) ON CONFLICT DO NOTHING"
)


def _bound(tenant: str, subject: Subject, aad: bytes) -> bytes:
    return "|".join((tenant, *subject)).encode() + b"|" + aad


def _encrypt(cipher: AESGCM, plaintext: bytes, aad: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + cipher.encrypt(nonce, plaintext, aad)


def _decrypt(cipher: AESGCM, sealed: bytes, aad: bytes) -> bytes:
    try:
        return cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], aad)
    except (InvalidTag, ValueError):
        raise SealBroken("a sealed value does not open: altered, moved, or sealed with another key") from None
