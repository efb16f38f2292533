"""The journal: everything that happened, in order per stream, values sealed; nothing in it is ever changed."""

import json
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from memory.database import many, one
from memory.keys import Keys, Subject
from perdure.errors import VersionConflict
from perdure.messages import Principal
from perdure.names import Event, Stream


@dataclass(frozen=True)
class JournalEvent:
    """One event as it was written. ``payload`` is open."""

    event_id: str
    version: int
    type: Event
    payload: dict[str, Any]
    actor: str
    recorded_at: datetime


async def append(
    connection: AsyncConnection,
    keys: Keys,
    principal: Principal,
    stream: Stream,
    stream_id: str,
    type: Event,
    payload: dict[str, Any],
    subject: Subject,
    *,
    process: str,
    policy_version: str | None = None,
    expected_version: int | None = None,
    event_id: str | None = None,
) -> tuple[str, int]:
    """Write one event; returns its id and version. A known ``event_id`` is not written again.

    Raises ``VersionConflict`` when the stream is not at ``expected_version``.
    """
    event_id = event_id or str(uuid.uuid4())
    sealed = await keys.seal(connection, principal.tenant, subject, _bytes(payload), _aad(stream, stream_id, event_id))
    row = await one(
        connection,
        _APPEND if expected_version is None else _APPEND_EXPECTED,
        tenant=principal.tenant,
        stream=stream.value,
        stream_id=stream_id,
        event_id=event_id,
        type=type.value,
        payload=sealed,
        subject_type=subject[0],
        subject_id=subject[1],
        actor=principal.actor,
        process=process,
        policy=policy_version,
        **({} if expected_version is None else {"expected": expected_version}),
    )
    if row is not None:
        return event_id, row["version"]
    first = await one(connection, _BY_ID, tenant=principal.tenant, event_id=event_id)
    if first is None:
        raise VersionConflict(f"stream {stream.value} {stream_id} is not at version {expected_version}")
    return event_id, first["version"]


async def read(
    connection: AsyncConnection, keys: Keys, tenant: str, stream: Stream, stream_id: str
) -> list[JournalEvent]:
    """A whole stream, oldest first. Raises ``KeyMissing`` for values whose key was destroyed."""
    rows = await many(connection, _READ, tenant=tenant, stream=stream.value, stream_id=stream_id)
    return [await _opened(connection, keys, tenant, row) for row in rows]


async def find(connection: AsyncConnection, keys: Keys, tenant: str, event_id: str) -> JournalEvent | None:
    """One event by its id."""
    row = await one(connection, _BY_ID, tenant=tenant, event_id=event_id)
    return None if row is None else await _opened(connection, keys, tenant, dict(row))


async def _opened(connection: AsyncConnection, keys: Keys, tenant: str, row: dict[str, Any]) -> JournalEvent:
    subject = (row["subject_type"], row["subject_id"])
    aad = _aad(Stream(row["stream_type"]), row["stream_id"], row["event_id"])
    payload = json.loads(await keys.open(connection, tenant, subject, row["payload"], aad))
    return JournalEvent(row["event_id"], row["version"], Event(row["type"]), payload, row["actor"], row["recorded_at"])


def _aad(stream: Stream, stream_id: str, event_id: str) -> bytes:
    return f"journal|{stream.value}|{stream_id}|{event_id}".encode()


def _bytes(payload: dict[str, Any]) -> bytes:
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


_COLUMNS = (
    "INSERT INTO perdure.journal (tenant, stream_type, stream_id, version, event_id, type, payload, subject_type,"
    " subject_id, actor, process, policy_version) SELECT :tenant, :stream, :stream_id, newest.version + 1, :event_id,"
    " :type, :payload, :subject_type, :subject_id, :actor, :process, :policy FROM (SELECT COALESCE(max(version), 0) AS"
    " version FROM perdure.journal WHERE tenant = :tenant AND stream_type = :stream AND stream_id = :stream_id) newest"
)
_APPEND = _COLUMNS + " ON CONFLICT (tenant, event_id) DO NOTHING RETURNING version"
_APPEND_EXPECTED = (
    _COLUMNS + " WHERE newest.version = :expected ON CONFLICT (tenant, event_id) DO NOTHING RETURNING version"
)
_FIELDS = "event_id, stream_type, stream_id, version, type, payload, subject_type, subject_id, actor, recorded_at"
_BY_ID = f"SELECT {_FIELDS} FROM perdure.journal WHERE tenant = :tenant AND event_id = :event_id"
_READ = (
    f"SELECT {_FIELDS} FROM perdure.journal WHERE tenant = :tenant AND stream_type = :stream"
    " AND stream_id = :stream_id ORDER BY version"
)
