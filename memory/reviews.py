"""Reviews: what a person is asked to decide, one version of one intent at a time, built from rows."""

import json
import re
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from memory import journal, runs, withdrawal
from memory.database import change, many, one
from memory.keys import Keys, Subject, sealing_subject
from perdure.calls import ReviewRequest
from perdure.errors import InvalidInput, NotFound, RunEnded
from perdure.ids import derived, digest
from perdure.masked import MaskedText
from perdure.messages import EvidenceRef, Principal, ReviewChange, ReviewDetail, ReviewState
from perdure.names import Event, Stream


def review_id(tenant: str, run_id: str, opening: str) -> str:
    """The id that an opening of a review will have."""
    return f"rev_{derived(tenant, run_id, opening)}"


def intent_digest(request: ReviewRequest) -> str:
    """Digest of all that is approved: another one is another version."""
    fields = {"action", "tool", "object_type", "object_id", "arguments", "amount", "currency", "uses"}
    return digest(request.model_dump(mode="json", include=fields))


def review_digest(request: ReviewRequest, version: int) -> str:
    """What a decision must name: the intent's version with its arguments and limits, and the evidence under it."""
    evidence = [[ref.field, ref.event_id, ref.digest] for ref in request.evidence]
    return digest([request.intent_id, version, intent_digest(request), evidence])


async def open_review(connection: AsyncConnection, keys: Keys, request: ReviewRequest) -> ReviewState:
    """Open a review, or find the one of this opening. What stood open for the intent is withdrawn.

    Raises ``RunEnded``, and ``InvalidInput`` for an amount that is none.
    """
    principal, tenant = request.principal, request.principal.tenant
    _refuse_odd_amount(request.amount)
    run = await runs.find(connection, tenant, request.run_id, lock=True)
    name = review_id(tenant, request.run_id, request.opening)
    if await one(connection, "SELECT 1 AS known FROM perdure.reviews WHERE tenant = :tenant AND review_id = :id",
                 tenant=tenant, id=name) is not None:  # fmt: skip
        return await read(connection, keys, tenant, name)
    if run.status in runs.OVER:
        raise RunEnded("the run has ended", run=request.run_id)
    await withdrawal.of_intent(connection, keys, principal, run, request.intent_id, "superseded")
    version, previous = await _version(connection, keys, request, run.sealed_for)
    shown = {
        "evidence": [ref.model_dump(mode="json") for ref in request.evidence],
        "future_uses": list(request.future_uses),
    }
    content = await keys.seal(connection, tenant, run.sealed_for, _bytes(shown), f"review|{name}".encode())
    await change(
        connection, _OPEN, tenant=tenant, id=name, run_id=request.run_id, route=request.route, step=request.step,
        opening=request.opening, intent_id=request.intent_id, version=version, digest=review_digest(request, version),
        approvers=list(request.approvers), rests_on=list(request.rests_on), content=content, previous=previous,
        seconds=request.expires_after.total_seconds(),
        warn=None if request.warn_before is None else request.warn_before.total_seconds(),
        waiting_for=f"approval:{request.step}",
    )  # fmt: skip
    payload = {"intent": request.intent_id, "version": version, "digest": review_digest(request, version)}
    await journal.append(
        connection, keys, principal, Stream.REVIEW, name, Event.REVIEW_OPENED, payload, run.sealed_for,
        process=request.route, policy_version=str(request.route_version),
    )  # fmt: skip
    return await read(connection, keys, tenant, name)


def _refuse_odd_amount(amount: str | None) -> None:
    if amount is not None and not re.fullmatch(r"\d{1,18}(\.\d{1,9})?", amount):
        raise InvalidInput("an amount is a plain decimal that is not negative")


async def _version(
    connection: AsyncConnection, keys: Keys, request: ReviewRequest, subject: Subject
) -> tuple[int, int | None]:
    """The intent's version for these arguments, and the version before it."""
    tenant, arguments_digest = request.principal.tenant, intent_digest(request)
    newest = await one(connection, _NEWEST, tenant=tenant, intent_id=request.intent_id)
    if newest is not None and newest["arguments_digest"] == arguments_digest:
        return newest["version"], newest["version"] - 1 or None
    version = 1 if newest is None else newest["version"] + 1
    aad = f"intent|{request.intent_id}|{version}".encode()
    shown = request.arguments | {"object": f"{request.object_type}:{request.object_id}"}
    content = await keys.seal(connection, tenant, subject, _bytes(shown), aad)
    await change(
        connection, _ADD_INTENT, tenant=tenant, intent_id=request.intent_id, version=version, run_id=request.run_id,
        route=request.route, step=request.step, action=request.action, tool=request.tool,
        object_type=request.object_type, object_id=request.object_id, digest=arguments_digest, content=content,
        amount=request.amount, currency=request.currency, uses=request.uses,
    )  # fmt: skip
    return version, version - 1 or None


async def read(connection: AsyncConnection, keys: Keys, tenant: str, name: str) -> ReviewState:
    """A review's row. Raises ``NotFound``."""
    row = await one(connection, f"{_SELECT} AND r.review_id = :id", tenant=tenant, id=name)
    if row is None:
        raise NotFound("there is no such review", review=name)
    return await _state(connection, keys, tenant, dict(row))


async def page(
    connection: AsyncConnection, keys: Keys, tenant: str, *, status: str | None, limit: int, after: str | None
) -> list[ReviewState]:
    """Oldest first; ``after`` is the last review id of the page before."""
    rows = await many(connection, _PAGE, tenant=tenant, status=status, limit=limit, after=after)
    return [await _state(connection, keys, tenant, row) for row in rows]


async def detail(connection: AsyncConnection, keys: Keys, tenant: str, name: str) -> ReviewDetail:
    """What a reviewer is shown. Raises ``NotFound``."""
    row = await one(connection, f"{_SELECT} AND r.review_id = :id", tenant=tenant, id=name)
    if row is None:
        raise NotFound("there is no such review", review=name)
    subject = sealing_subject(row)
    shown = json.loads(await keys.open(connection, tenant, subject, row["content"], f"review|{name}".encode()))
    proposed = await _intent(connection, keys, tenant, row["intent_id"], row["version"], subject)
    before: dict[str, Any] = {}
    if row["previous_version"] is not None:
        before = await _intent(connection, keys, tenant, row["intent_id"], row["previous_version"], subject)
    return ReviewDetail(
        state=await _state(connection, keys, tenant, dict(row)),
        changes=tuple(
            ReviewChange(field=field, previous=before.get(field), proposed=proposed.get(field))
            for field in sorted(proposed.keys() | before.keys())
            if proposed.get(field) != before.get(field)
        ),
        evidence=tuple(EvidenceRef.model_validate(ref) for ref in shown["evidence"]),
        future_uses=tuple(shown["future_uses"]),
        previous_version=row["previous_version"],
    )


async def close(
    connection: AsyncConnection, keys: Keys, principal: Principal, name: str, status: str, because: str
) -> ReviewState:
    """Close a pending review as expired or cancelled; one that is no longer pending stays as it is."""
    closed = await change(connection, _CLOSE, tenant=principal.tenant, id=name, status=status, because=because)
    state = await read(connection, keys, principal.tenant, name)
    if closed:
        event = Event.REVIEW_EXPIRED if status == "expired" else Event.REVIEW_CANCELLED
        await note(connection, keys, principal, state, event, {"because": because})
    return state


async def warn(connection: AsyncConnection, keys: Keys, principal: Principal, name: str) -> None:
    """Write down once that a review is about to expire."""
    if await change(connection, _WARN, tenant=principal.tenant, id=name):
        state = await read(connection, keys, principal.tenant, name)
        payload = {"expires_at": state.expires_at.isoformat()}
        await note(connection, keys, principal, state, Event.REVIEW_WARNED, payload)


async def note(
    connection: AsyncConnection,
    keys: Keys,
    principal: Principal,
    state: ReviewState,
    event: Event,
    payload: dict[str, Any],
) -> str:
    """Write an event to a review's stream; returns its id."""
    run = await runs.find(connection, principal.tenant, state.run_id)
    written, _ = await journal.append(
        connection, keys, principal, Stream.REVIEW, state.review_id, event, payload, run.sealed_for, process=state.route
    )
    return written


async def _intent(
    connection: AsyncConnection, keys: Keys, tenant: str, intent_id: str, version: int, subject: Subject
) -> dict[str, Any]:
    row = await one(connection, _INTENT, tenant=tenant, intent_id=intent_id, version=version)
    assert row is not None
    aad = f"intent|{intent_id}|{version}".encode()
    shown: dict[str, Any] = json.loads(await keys.open(connection, tenant, subject, row["content"], aad))
    limits = {"amount": row["amount"], "currency": row["currency"]}
    return shown | {f"limit.{key}": str(value) for key, value in limits.items() if value is not None}


async def _state(connection: AsyncConnection, keys: Keys, tenant: str, row: dict[str, Any]) -> ReviewState:
    values = {name: row[name] for name in ReviewState.model_fields if name in row}
    comment = None
    if row["comment"] is not None:
        aad = f"comment|{row['review_id']}".encode()
        comment = MaskedText.model_validate_json(
            await keys.open(connection, tenant, sealing_subject(row), row["comment"], aad)
        )
    amount = None if row["amount"] is None else str(row["amount"])
    return ReviewState.model_validate(values | {"comment": comment, "amount": amount})


def _bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


_OPEN = (
    "WITH waiting AS (UPDATE perdure.runs SET status = 'waiting', step = :step, waiting_for = :waiting_for,"
    " waiting_since = clock_timestamp() WHERE tenant = :tenant AND run_id = :run_id)"
    " INSERT INTO perdure.reviews (tenant, review_id, run_id, route, step, opening, intent_id, intent_version,"
    " digest, status,"
    " approvers, rests_on, content, previous_version, opened_at, expires_at, warn_at) SELECT :tenant, :id, :run_id,"
    " :route,"
    " :step, :opening, :intent_id, :version, :digest, 'pending', CAST(:approvers AS text[]), CAST(:rests_on AS text[]),"
    " :content, :previous, t.now, t.now + make_interval(secs => :seconds),"
    " t.now + make_interval(secs => :seconds) - make_interval(secs => CAST(:warn AS double precision))"
    " FROM (SELECT clock_timestamp() AS now) t"
)
_NEWEST = (
    "SELECT version, arguments_digest FROM perdure.intents WHERE tenant = :tenant AND intent_id = :intent_id"
    " ORDER BY version DESC LIMIT 1"
)
_ADD_INTENT = (
    "INSERT INTO perdure.intents (tenant, intent_id, version, run_id, route, step, action, tool, object_type,"
    " object_id,"
    " arguments_digest, content, amount, currency, uses) VALUES (:tenant, :intent_id, :version, :run_id, :route, :step,"
    " :action, :tool, :object_type, :object_id, :digest, :content, CAST(:amount AS numeric), :currency, :uses)"
)
_INTENT = (
    "SELECT content, amount, currency FROM perdure.intents"
    " WHERE tenant = :tenant AND intent_id = :intent_id AND version = :version"
)
_SELECT = (
    "SELECT r.review_id, r.run_id, r.route, r.step, r.intent_id, r.intent_version AS version, r.digest, r.status,"
    " i.action,"
    " i.object_type, i.object_id, i.amount, i.currency, i.uses, r.approvers, r.opened_at, r.expires_at, r.warn_at,"
    " r.decided_at, r.decided_by, r.identity, r.decision_id, r.comment, r.grant_id, r.cancelled_because, r.content,"
    " r.previous_version, n.subject_type, n.subject_id FROM perdure.reviews r"
    " JOIN perdure.intents i ON i.tenant = r.tenant AND i.intent_id = r.intent_id AND i.version = r.intent_version"
    " JOIN perdure.runs n ON n.tenant = r.tenant AND n.run_id = r.run_id WHERE r.tenant = :tenant"
)
_PAGE = (
    f"{_SELECT} AND (CAST(:status AS text) IS NULL OR r.status = :status) AND (CAST(:after AS text) IS NULL OR"
    " (r.opened_at, r.review_id) > (SELECT opened_at, review_id FROM perdure.reviews WHERE tenant = :tenant"
    " AND review_id = :after)) ORDER BY r.opened_at, r.review_id LIMIT :limit"
)
_CLOSE = (
    "UPDATE perdure.reviews SET status = :status, cancelled_because = :because"
    " WHERE tenant = :tenant AND review_id = :id AND status = 'pending'"
)
_WARN = (
    "UPDATE perdure.reviews SET warned_at = clock_timestamp()"
    " WHERE tenant = :tenant AND review_id = :id AND status = 'pending' AND warned_at IS NULL"
)
