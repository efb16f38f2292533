"""Effects: a grant checked and consumed in the transaction that takes the key, and one final result for each key."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from memory import journal, runs
from memory.database import change, many, one
from memory.keys import Keys, Subject
from perdure.errors import GrantExceeded, GrantExpired, LeaseLost, NotFound, PerdureError, RunEnded, SubjectHeld
from perdure.ids import digest, effect_key
from perdure.messages import EffectResult, Principal, Reservation, ReserveRequest, SettleRequest
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
    grant = await one(connection, _LOCK_GRANT, tenant=tenant, grant_id=request.grant_id, run_id=request.run_id)
    if grant is None:
        raise NotFound("there is no such grant in this run", grant=request.grant_id)
    effect = await one(connection, _LOCK_EFFECT, tenant=tenant, key=key)
    refusal = _refusal(request, grant, known=effect is not None)
    if refusal is not None:
        await journal.append(
            connection, keys, request.principal, Stream.EFFECT, key, Event.EFFECT_REFUSED,
            {"refusal": type(refusal).__name__, "grant": request.grant_id}, _subject(grant), process=request.route,
        )  # fmt: skip
        return refusal
    if effect is not None:
        return await _again(connection, keys, request, key, dict(effect), _subject(grant))
    row = await one(
        connection, _RESERVE, tenant=tenant, key=key, run_id=request.run_id, grant_id=request.grant_id,
        amount=grant["consumes"], holder=request.holder, seconds=request.lease_for.total_seconds(),
    )  # fmt: skip
    assert row is not None
    await _note(connection, keys, request, key, 1, _subject(grant))
    return Reservation(status="fresh", key=key, fence=1, not_after=row["not_after"], leased_until=row["leased_until"])


def _refusal(request: ReserveRequest, grant: Any, *, known: bool) -> PerdureError | None:
    """What the ledger holds decides; what the request says is only compared with it."""
    asked = request.model_dump(
        mode="json", include={"action", "tool", "object_type", "object_id", "arguments", "amount", "currency"}
    )
    same = (grant["intent_id"], grant["intent_version"], grant["arguments_digest"]) == (
        request.intent_id,
        request.intent_version,
        digest(asked | {"uses": grant["uses"]}),
    )
    if not same or grant["route"] != request.route:
        return GrantExceeded(
            "the grant covers another intent, action, object or other arguments", grant=request.grant_id
        )
    if known:
        return None
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
    tenant, result = request.principal.tenant, None
    status = "in_flight"
    if row["status"] != "reserved":
        status, result = "final", await _result(connection, keys, tenant, key, row["result"], subject)
    elif row["holder"] == request.holder:
        status = "fresh"
    elif row["lapsed"]:
        status = "resumed"
        row |= await one(
            connection, _TAKE_OVER, tenant=tenant, key=key, holder=request.holder,
            seconds=request.lease_for.total_seconds(),
        ) or {}  # fmt: skip
        await _note(connection, keys, request, key, row["fence"], subject)
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
    subject = _subject(row)
    if row["fence"] != request.fence:
        raise LeaseLost("another holder took this effect over; nothing was stored", key=request.key)
    if row["status"] != "reserved":
        return await _result(connection, keys, tenant, request.key, row["result"], subject)
    plain = result.model_dump_json().encode()
    sealed = await keys.seal(connection, tenant, subject, plain, f"result|{request.key}".encode())
    await change(
        connection, _SETTLE, tenant=tenant, key=request.key, status=result.outcome, result=sealed, digest=result.digest
    )
    await journal.append(
        connection, keys, request.principal, Stream.EFFECT, request.key, Event.EFFECT_SETTLED,
        {"outcome": result.outcome, "digest": result.digest, "fence": request.fence}, subject, process=row["route"],
    )  # fmt: skip
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


async def _note(
    connection: AsyncConnection, keys: Keys, request: ReserveRequest, key: str, fence: int, subject: Subject
) -> None:
    await journal.append(
        connection, keys, request.principal, Stream.EFFECT, key, Event.EFFECT_RESERVED,
        {"grant": request.grant_id, "intent": request.intent_id, "version": request.intent_version, "fence": fence},
        subject, process=request.route,
    )  # fmt: skip


def _subject(row: Any) -> Subject:
    return ("run", row["run_id"]) if row["subject_type"] is None else (row["subject_type"], row["subject_id"])


_LOCK_GRANT = (
    "SELECT g.run_id, g.intent_id, g.intent_version, g.arguments_digest, g.amount_left, g.uses_left, g.revoked_at, i.uses,"
    " i.amount AS consumes, g.expires_at <= clock_timestamp() AS late, n.route, n.status AS run_status, n.held,"
    " n.subject_type, n.subject_id FROM perdure.grants g JOIN perdure.runs n ON n.tenant = g.tenant AND n.run_id = g.run_id"
    " JOIN perdure.intents i ON i.tenant = g.tenant AND i.intent_id = g.intent_id AND i.version = g.intent_version"
    " WHERE g.tenant = :tenant AND g.grant_id = :grant_id AND g.run_id = :run_id FOR UPDATE OF g"
)
_LOCK_EFFECT = (
    "SELECT status, holder, fence, not_after, leased_until, result, leased_until <= clock_timestamp() AS lapsed"
    " FROM perdure.effects WHERE tenant = :tenant AND key = :key FOR UPDATE"
)
_RESERVE = (
    "WITH used AS (UPDATE perdure.grants SET uses_left = uses_left - 1,"
    " amount_left = amount_left - CAST(:amount AS numeric) WHERE tenant = :tenant AND grant_id = :grant_id RETURNING *)"
    " INSERT INTO perdure.effects (tenant, key, run_id, grant_id, intent_id, intent_version, action, tool, object_type,"
    " object_id, arguments_digest, status, holder, fence, not_after, leased_until) SELECT tenant, :key, :run_id, grant_id,"
    " intent_id, intent_version, action, tool, object_type, object_id, arguments_digest, 'reserved', :holder, 1, expires_at,"
    " clock_timestamp() + make_interval(secs => :seconds) FROM used RETURNING not_after, leased_until"
)
_TAKE_OVER = (
    "UPDATE perdure.effects SET holder = :holder, fence = fence + 1,"
    " leased_until = clock_timestamp() + make_interval(secs => :seconds)"
    " WHERE tenant = :tenant AND key = :key RETURNING fence, leased_until"
)
_LOCK_SETTLE = (
    "SELECT e.run_id, e.status, e.fence, e.result, n.route, n.subject_type, n.subject_id FROM perdure.effects e"
    " JOIN perdure.runs n ON n.tenant = e.tenant AND n.run_id = e.run_id"
    " WHERE e.tenant = :tenant AND e.key = :key AND e.run_id = :run_id FOR UPDATE OF e"
)
_SETTLE = (
    "UPDATE perdure.effects SET status = :status, result = :result, result_digest = :digest,"
    " settled_at = clock_timestamp() WHERE tenant = :tenant AND key = :key"
)
_OF_RUN = (
    "SELECT key, action, object_type, object_id, intent_id, intent_version, status, settled_at FROM perdure.effects"
    " WHERE tenant = :tenant AND run_id = :run_id ORDER BY reserved_at"
)
