"""Large payloads: sealed bytes in an object store, their hash in a row; read by right and never by address."""

import hashlib
import uuid

import obstore
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import from_url

from memory.database import Database, change, one
from memory.keys import Keys, Subject
from perdure.errors import NotFound, ObjectChanged, SealBroken, StoreUnavailable
from perdure.messages import ObjectRef, Principal


class Objects:
    """Objects of one store; the row is written after the bytes, so no row waits for its object."""

    def __init__(self, database: Database, keys: Keys, url: str) -> None:
        self._database = database
        self._keys = keys
        self._store = from_url(url)

    async def put(self, principal: Principal, subject: Subject | None, content: bytes, media_type: str) -> ObjectRef:
        """Keep it, sealed for its subject, or for itself alone. Raises ``StoreUnavailable``."""
        ref = ObjectRef(object_id=uuid.uuid4().hex, sha256=hashlib.sha256(content).hexdigest(), size=len(content))
        subject = subject or ("object", ref.object_id)
        async with self._database.transaction(principal) as connection:
            sealed = await self._keys.seal(connection, principal.tenant, subject, content, _aad(ref.object_id))
        try:
            await obstore.put_async(self._store, _path(principal.tenant, ref.object_id), sealed)
        except (BaseError, OSError):
            raise StoreUnavailable("the object store does not answer") from None
        values = {"media_type": media_type, "subject_type": subject[0], "subject_id": subject[1]}
        async with self._database.transaction(principal) as connection:
            await change(connection, _ADD, tenant=principal.tenant, **ref.model_dump(), **values)
        return ref

    async def get(self, principal: Principal, object_id: str) -> bytes:
        """Raises ``NotFound``, ``ObjectChanged`` when it is not what was put or is gone, and ``StoreUnavailable``."""
        async with self._database.transaction(principal) as connection:
            row = await one(connection, _FIND, tenant=principal.tenant, object_id=object_id)
        if row is None:
            raise NotFound("there is no such object", object=object_id)
        sealed = await self._bytes(_path(principal.tenant, object_id), object_id)
        subject = (row["subject_type"], row["subject_id"])
        try:
            async with self._database.transaction(principal) as connection:
                content = await self._keys.open(connection, principal.tenant, subject, sealed, _aad(object_id))
        except SealBroken:
            raise ObjectChanged("a stored object was changed", object=object_id) from None
        if hashlib.sha256(content).hexdigest() != row["sha256"]:
            raise ObjectChanged("a stored object was changed", object=object_id)
        return content

    async def _bytes(self, path: str, object_id: str) -> bytes:
        try:
            return bytes(await (await obstore.get_async(self._store, path)).bytes_async())
        except (FileNotFoundError, NotFoundError):
            raise ObjectChanged("a stored object is gone", object=object_id) from None
        except (BaseError, OSError):
            raise StoreUnavailable("the object store does not answer") from None


def _path(tenant: str, object_id: str) -> str:
    return f"{hashlib.sha256(tenant.encode()).hexdigest()[:16]}/{object_id}"


def _aad(object_id: str) -> bytes:
    return f"object|{object_id}".encode()


_ADD = (
    "INSERT INTO perdure.objects (tenant, object_id, sha256, size, media_type, subject_type, subject_id)"
    " VALUES (:tenant, :object_id, :sha256, :size, :media_type, :subject_type, :subject_id)"
)
_FIND = "SELECT sha256, subject_type, subject_id FROM perdure.objects WHERE tenant = :tenant AND object_id = :object_id"
