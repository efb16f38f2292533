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


async def entry(
    connection: AsyncConnection,
    keys: Keys,
    principal: Principal,
    stream: Stream,
    stream_id: str,
    kind: Event,
    payload: dict[str, Any],
    subject: Subject,
    *,
    process: str,
    policy_version: str | None = None,
    event_id: str | None = None,
) -> dict[str, Any]:
    """Parameters of ``written``, the payload sealed; its keys all begin with ``tenant`` or ``event_``."""
    event_id = event_id or str(uuid.uuid4())
    sealed = await keys.seal(connection, principal.tenant, subject, _bytes(payload), _aad(stream, stream_id, event_id))
    return {
        "tenant": principal.tenant,
        "event_id": event_id,
        "event_stream": stream.value,
        "event_stream_id": stream_id,
        "event_type": kind.value,
        "event_payload": sealed,
        "event_subject_type": subject[0],
        "event_subject_id": subject[1],
        "event_actor": principal.actor,
        "event_process": process,
        "event_policy": policy_version,
    }


def written(also_from: str = "", condition: str = "true") -> str:
    """The statement that writes one event; as ``WITH noted AS (...)`` it is a part of a larger one, and ``also_from``
    names another part without whose row nothing is written."""
    return (
        "INSERT INTO perdure.journal (tenant, stream_type, stream_id, version, event_id, type, payload, subject_type,"
        " subject_id, actor, process, policy_version) SELECT :tenant, :event_stream, :event_stream_id,"
        " newest.version + 1,"
        " :event_id, :event_type, :event_payload, :event_subject_type, :event_subject_id, :event_actor, :event_process,"
        " :event_policy FROM (SELECT COALESCE(max(version), 0) AS version FROM perdure.journal WHERE tenant = :tenant"
        f" AND stream_type = :event_stream AND stream_id = :event_stream_id) newest{also_from and ', ' + also_from}"
        f" WHERE {condition} ON CONFLICT (tenant, event_id) DO NOTHING RETURNING version"
    )


async def append(
    connection: AsyncConnection,
    keys: Keys,
    principal: Principal,
    stream: Stream,
    stream_id: str,
    kind: Event,
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
    event = await entry(
        connection, keys, principal, stream, stream_id, kind, payload, subject,
        process=process, policy_version=policy_version, event_id=event_id,
    )  # fmt: skip
    if expected_version is None:
        row = await one(connection, _APPEND, **event)
    else:
        row = await one(connection, _APPEND_EXPECTED, **event, event_expected=expected_version)
    row = row or await one(connection, _BY_ID, tenant=principal.tenant, event_id=event["event_id"])
    if row is None:
        raise VersionConflict(f"stream {stream.value} {stream_id} is not at version {expected_version}")
    return event["event_id"], row["version"]


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


_APPEND = written()
_APPEND_EXPECTED = written(condition="newest.version = :event_expected")
_FIELDS = "event_id, stream_type, stream_id, version, type, payload, subject_type, subject_id, actor, recorded_at"
_BY_ID = f"SELECT {_FIELDS} FROM perdure.journal WHERE tenant = :tenant AND event_id = :event_id"
_READ = (
    f"SELECT {_FIELDS} FROM perdure.journal WHERE tenant = :tenant AND stream_type = :stream"
    " AND stream_id = :stream_id ORDER BY version"
)
