"""Effects: a grant checked and consumed in the transaction that takes the key, and one final result for each key."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from memory import journal, runs
from memory.database import change, many, one
from memory.keys import Keys, Subject, sealing_subject
from perdure.calls import Reservation, ReserveRequest, SettleRequest
from perdure.errors import GrantExceeded, GrantExpired, LeaseLost, NotFound, PerdureError, RunEnded, SubjectHeld
from perdure.ids import digest, effect_key
from perdure.messages import EffectResult
from perdure.names import Event, Stream


@dataclass(frozen=True)
class EffectRow:
    """One effect of a run as its row has it."""

    key: str
    action: str
    object_type: str
    object_id: str
    intent_id: str
    intent_version: int
    status: str
    settled_at: datetime | None


def key_of(request: ReserveRequest) -> str:
    """The idempotency key of what is to be done."""
    business_object = f"{request.object_type}:{request.object_id}"
    intent = f"{request.intent_id}@{request.intent_version}"
    return effect_key(request.principal.tenant, request.route, request.action, business_object, intent)


async def reserve(connection: AsyncConnection, keys: Keys, request: ReserveRequest) -> Reservation | PerdureError:
    """Consume the grant and take the key, or say what became of the effect. A refusal is written down and returned.

    Returns ``GrantExceeded``, ``GrantExpired``, ``SubjectHeld`` or ``RunEnded``; raises ``NotFound``.
    """
    tenant, key = request.principal.tenant, key_of(request)
    grant = await one(connection, _LOCK, tenant=tenant, grant_id=request.grant_id, run_id=request.run_id, key=key)
    if grant is None:
        raise NotFound("there is no such grant in this run", grant=request.grant_id)
    refusal = _not_covered(request, grant) or (None if grant["known"] else _not_now(request, grant))
    if not grant["known"] and refusal is None:
        taken = await _take(connection, keys, request, key, grant)
        if taken is not None:
            return taken
        grant = await one(connection, _LOCK, tenant=tenant, grant_id=request.grant_id, run_id=request.run_id, key=key)
        assert grant is not None
        refusal = None if grant["known"] else _not_now(request, grant)
    effect = await one(connection, _LOCK_EFFECT, tenant=tenant, key=key)
    if effect is not None and _not_covered(request, grant) is None:
        return await _again(connection, keys, request, key, dict(effect), sealing_subject(grant))
    refusal = refusal or GrantExceeded("the grant is used up", grant=request.grant_id)
    await journal.append(
        connection, keys, request.principal, Stream.EFFECT, key, Event.EFFECT_REFUSED,
        {"refusal": type(refusal).__name__, "grant": request.grant_id}, sealing_subject(grant), process=request.route,
    )  # fmt: skip
    return refusal


async def _take(
    connection: AsyncConnection, keys: Keys, request: ReserveRequest, key: str, grant: Any
) -> Reservation | None:
    """Consume the grant, take the key and write it down, in one statement; None when the key is taken already."""
    event = await journal.entry(
        connection, keys, request.principal, Stream.EFFECT, key, Event.EFFECT_RESERVED, _reserved(request, 1),
        sealing_subject(grant), process=request.route,
    )  # fmt: skip
    row = await one(
        connection, _TAKE, **event, key=key, run_id=request.run_id, grant_id=request.grant_id, amount=grant["consumes"],
        holder=request.holder, seconds=request.lease_for.total_seconds(),
    )  # fmt: skip
    if row is None:
        return None
    return Reservation(status="fresh", key=key, fence=1, not_after=row["not_after"], leased_until=row["leased_until"])


def _not_covered(request: ReserveRequest, grant: Any) -> PerdureError | None:
    """What the ledger holds decides; what the request says is only compared with it."""
    asked = request.model_dump(
        mode="json", include={"action", "tool", "object_type", "object_id", "arguments", "amount", "currency"}
    )
    same = (grant["intent_id"], grant["intent_version"], grant["arguments_digest"], grant["route"]) == (
        request.intent_id,
        request.intent_version,
        digest(asked | {"uses": grant["uses"]}),
        request.route,
    )
    if same:
        return None
    return GrantExceeded("the grant covers another intent, action, object or other arguments", grant=request.grant_id)


def _not_now(request: ReserveRequest, grant: Any) -> PerdureError | None:
    if grant["run_status"] in runs.OVER:
        return RunEnded("the run has ended; nothing is executed for it any more", run=request.run_id)
    if grant["held"]:
        return SubjectHeld("the run is on hold", run=request.run_id)
    if grant["revoked_at"] is not None:
        return GrantExceeded("the grant was revoked before it was used", grant=request.grant_id)
    if grant["late"]:
        return GrantExpired("the grant expired before it was used", grant=request.grant_id)
    if grant["uses_left"] < 1 or (grant["amount_left"] is not None and grant["consumes"] > grant["amount_left"]):
        return GrantExceeded("the grant is used up", grant=request.grant_id)
    return None


async def _again(
    connection: AsyncConnection, keys: Keys, request: ReserveRequest, key: str, row: dict[str, Any], subject: Subject
) -> Reservation:
    """What became of a key that is taken. Only who took it first, and asks again, finds it fresh."""
    tenant, result, status = request.principal.tenant, None, "in_flight"
    mine = row["holder"] == request.holder
    if row["status"] != "reserved":
        status, result = "final", await _result(connection, keys, tenant, key, row["result"], subject)
    elif mine or row["lapsed"]:
        status = "fresh" if mine and row["fence"] == 1 else "resumed"
        seconds = request.lease_for.total_seconds()
        row |= await one(connection, _HOLD, tenant=tenant, key=key, holder=request.holder, seconds=seconds) or {}
        if not mine:
            await journal.append(
                connection, keys, request.principal, Stream.EFFECT, key, Event.EFFECT_RESERVED,
                _reserved(request, row["fence"]), subject, process=request.route,
            )  # fmt: skip
    return Reservation.model_validate(
        {name: row[name] for name in ("fence", "not_after", "leased_until")}
        | {"status": status, "key": key, "result": result}
    )


async def settle(connection: AsyncConnection, keys: Keys, request: SettleRequest) -> EffectResult:
    """Store the final result; the first one stays and is returned.

    Raises ``NotFound``, and ``LeaseLost`` when another holder took the effect over.
    """
    tenant, result = request.principal.tenant, request.result
    row = await one(connection, _LOCK_SETTLE, tenant=tenant, key=request.key, run_id=request.run_id)
    if row is None:
        raise NotFound("there is no such effect in this run", key=request.key)
    subject = sealing_subject(row)
    if row["status"] != "reserved":
        return await _result(connection, keys, tenant, request.key, row["result"], subject)
    if row["fence"] != request.fence:
        raise LeaseLost("another holder took this effect over; nothing was stored", key=request.key)
    plain = result.model_dump_json().encode()
    sealed = await keys.seal(connection, tenant, subject, plain, f"result|{request.key}".encode())
    event = await journal.entry(
        connection, keys, request.principal, Stream.EFFECT, request.key, Event.EFFECT_SETTLED,
        {"outcome": result.outcome, "digest": result.digest, "fence": request.fence}, subject, process=row["route"],
    )  # fmt: skip
    await change(
        connection, _SETTLE, **event, key=request.key, status=result.outcome, result=sealed, digest=result.digest
    )
    return result


async def of_run(connection: AsyncConnection, tenant: str, run_id: str) -> list[EffectRow]:
    """The effects of a run, oldest first."""
    return [EffectRow(**row) for row in await many(connection, _OF_RUN, tenant=tenant, run_id=run_id)]


async def _result(
    connection: AsyncConnection, keys: Keys, tenant: str, key: str, sealed: bytes, subject: Subject
) -> EffectResult:
    return EffectResult.model_validate_json(
        await keys.open(connection, tenant, subject, sealed, f"result|{key}".encode())
    )


def _reserved(request: ReserveRequest, fence: int) -> dict[str, Any]:
    return {
        "grant": request.grant_id,
        "intent": request.intent_id,
        "version": request.intent_version,
        "fence": fence,
    }


_LOCK = (
    "SELECT g.run_id, g.intent_id, g.intent_version, g.arguments_digest, g.amount_left, g.uses_left, g.revoked_at,"
    " i.uses,"
    " i.amount AS consumes, g.expires_at <= clock_timestamp() AS late, n.route, n.status AS run_status, n.held,"
    " n.subject_type, n.subject_id, EXISTS (SELECT FROM perdure.effects WHERE tenant = :tenant AND key = :key) AS known"
    " FROM perdure.runs n JOIN perdure.grants g ON n.tenant = g.tenant AND n.run_id = g.run_id"
    " JOIN perdure.intents i ON i.tenant = g.tenant AND i.intent_id = g.intent_id AND i.version = g.intent_version"
    " WHERE g.tenant = :tenant AND g.grant_id = :grant_id AND g.run_id = :run_id FOR UPDATE OF g"
)
"""What is not locked may be out of date once the lock was waited for: whether the key is known, whether the run is held
or over. ``_TAKE`` looks again."""
_LOCK_EFFECT = (
    "SELECT status, holder, fence, not_after, leased_until, result, leased_until <= clock_timestamp() AS lapsed"
    " FROM perdure.effects WHERE tenant = :tenant AND key = :key FOR UPDATE"
)
_TAKE = (
    "WITH used AS (UPDATE perdure.grants SET uses_left = uses_left - 1,"
    " amount_left = amount_left - CAST(:amount AS numeric) WHERE tenant = :tenant AND grant_id = :grant_id"
    " AND NOT EXISTS (SELECT FROM perdure.effects WHERE tenant = :tenant AND key = :key)"
    " AND NOT EXISTS (SELECT FROM perdure.runs WHERE tenant = :tenant AND run_id = :run_id"
    " AND (held OR status IN ('ended', 'terminated'))) RETURNING *),"
    " taken AS (INSERT INTO perdure.effects (tenant, key, run_id, grant_id, intent_id, intent_version, action, tool,"
    " object_type, object_id, arguments_digest, status, holder, fence, not_after, leased_until) SELECT tenant,"
    " :key, run_id,"
    " grant_id, intent_id, intent_version, action, tool, object_type, object_id, arguments_digest, 'reserved',"
    " :holder, 1,"
    " expires_at, clock_timestamp() + make_interval(secs => :seconds) FROM used RETURNING not_after, leased_until),"
    f" noted AS ({journal.written(also_from='taken')}) SELECT not_after, leased_until FROM taken"
)
_HOLD = (
    "UPDATE perdure.effects SET fence = CASE WHEN holder = :holder THEN fence ELSE fence + 1 END, holder = :holder,"
    " leased_until = clock_timestamp() + make_interval(secs => :seconds)"
    " WHERE tenant = :tenant AND key = :key RETURNING fence, leased_until"
)
_LOCK_SETTLE = (
    "SELECT e.run_id, e.status, e.fence, e.result, n.route, n.subject_type, n.subject_id FROM perdure.effects e"
    " JOIN perdure.runs n ON n.tenant = e.tenant AND n.run_id = e.run_id"
    " WHERE e.tenant = :tenant AND e.key = :key AND e.run_id = :run_id FOR UPDATE OF e"
)
_SETTLE = (
    f"WITH noted AS ({journal.written()}) UPDATE perdure.effects SET status = :status, result = :result,"
    " result_digest = :digest, settled_at = clock_timestamp() WHERE tenant = :tenant AND key = :key"
)
_OF_RUN = (
    "SELECT key, action, object_type, object_id, intent_id, intent_version, status, settled_at FROM perdure.effects"
    " WHERE tenant = :tenant AND run_id = :run_id ORDER BY reserved_at"
)
