"""Temporal payloads sealed at rest: compressed, AES-256-GCM, with the key's id and the tenant in the clear."""

import os
import zlib
from collections.abc import Sequence
from typing import Self

from cryptography.exceptions import InvalidTag
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ActivitySerializationContext,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)

from perdure.errors import SealBroken
from perdure.keyring import KeyRing
from perdure.names import CODEC_ENCODING

NO_TENANT = "-"
NONCE_BYTES = 12
DECOMPRESSED_LIMIT = 16_000_000


class SealingCodec(PayloadCodec, WithSerializationContext):
    """Seals every payload of a workflow for its tenant; a payload that was sealed for another tenant does not open.

    Payload: metadata ``encoding``, ``key`` (id) and ``tenant``, both authenticated; data is nonce and ciphertext of the
    compressed original. What was not sealed by us passes through unchanged, so that a hand-written start works.
    """

    def __init__(self, ring: KeyRing, tenant: str = NO_TENANT) -> None:
        self._ring = ring
        self._tenant = tenant

    def with_context(self, context: SerializationContext) -> Self:
        """The codec for the tenant that the workflow's id names."""
        workflow_id = None
        if isinstance(context, WorkflowSerializationContext | ActivitySerializationContext):
            workflow_id = context.workflow_id
        tenant = tenant_of(workflow_id)
        return self if tenant == self._tenant else type(self)(self._ring, tenant)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Seal. What is sealed already stays as it is, so an app that seals with the remote codec works too."""
        return [p if is_sealed(p) else self._seal(p) for p in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Open. Raises ``KeyMissing`` for an unknown key and ``SealBroken`` for an altered or foreign payload."""
        return [self._open(p) if is_sealed(p) else p for p in payloads]

    def _seal(self, payload: Payload) -> Payload:
        key, nonce = self._ring.active, os.urandom(NONCE_BYTES)
        plain = zlib.compress(payload.SerializeToString(), 6)
        data = nonce + self._ring.cipher(key).encrypt(nonce, plain, _bound_to(key, self._tenant))
        metadata = {"encoding": CODEC_ENCODING.encode(), "key": key.encode(), "tenant": self._tenant.encode()}
        return Payload(metadata=metadata, data=data)

    def _open(self, payload: Payload) -> Payload:
        key, tenant = payload.metadata["key"].decode(), payload.metadata["tenant"].decode()
        if NO_TENANT not in (tenant, self._tenant) and tenant != self._tenant:
            raise SealBroken("a payload of another tenant does not open here", tenant=self._tenant)
        nonce, sealed = payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:]
        try:
            plain = self._ring.cipher(key).decrypt(nonce, sealed, _bound_to(key, tenant))
        except (InvalidTag, ValueError):
            raise SealBroken(f"a payload does not open with key {key!r}: a wrong key, or altered", key=key) from None
        return Payload.FromString(_decompress(plain))


def is_sealed(payload: Payload) -> bool:
    """Whether this codec made the payload."""
    return payload.metadata.get("encoding") == CODEC_ENCODING.encode()


def sealed_for(payload: Payload) -> str | None:
    """The tenant a payload claims to be sealed for (checked when it opens); None when it is not sealed."""
    return payload.metadata["tenant"].decode() if is_sealed(payload) else None


def tenant_of(workflow_id: str | None) -> str:
    """The tenant in a workflow id ``kind:<tenant>:<id>``; ``-`` when there is none."""
    parts = (workflow_id or "").split(":", 2)
    return parts[1] if len(parts) == 3 and parts[1] else NO_TENANT


def _bound_to(key: str, tenant: str) -> bytes:
    return f"{CODEC_ENCODING}|{key}|{tenant}".encode()


def _decompress(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    plain = inflater.decompress(data, DECOMPRESSED_LIMIT)
    if inflater.unconsumed_tail:
        raise SealBroken("a payload is larger than a payload can be")
    return plain
