"""The one place where a review is decided, whoever brings the decision and however it came."""

import json
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from memory import journal, runs
from memory.database import change, one
from memory.keys import Keys, sealing_subject
from memory.outbox import ENQUEUE
from perdure.errors import (
    AlreadyDecided,
    NotAuthorized,
    NotFound,
    PerdureError,
    ReviewExpired,
    ReviewStale,
    RunEnded,
)
from perdure.ids import derived
from perdure.messages import Decision, DecisionOutcome, Principal
from perdure.names import Event, Stream

STATUS_OF = {"approve": "approved", "reject": "rejected"}
VERDICT_OF = {status: verdict for verdict, status in STATUS_OF.items()}


async def decide(connection: AsyncConnection, keys: Keys, principal: Principal, decision: Decision) -> DecisionOutcome:
    """Accept a decision on what is open now, or say why not; both are written down. The run's row is locked
    before the review's, as everywhere.

    Raises ``NotFound`` alone, for a review of another tenant too; nothing is written then.
    """
    row = await one(connection, _LOCK, tenant=principal.tenant, id=decision.review_id)
    if row is None:
        raise NotFound("there is no such review", review=decision.review_id)
    if _repeats(row, principal, decision):
        return _accepted(decision, row["grant_id"])
    refusal = _refusal(row, principal, decision)
    if refusal is not None:
        return await _refuse(connection, keys, principal, decision, row, refusal)
    grant_id = f"grant_{derived(principal.tenant, decision.review_id)}" if decision.verdict == "approve" else None
    await _accept(connection, keys, principal, decision, row, grant_id)
    return _accepted(decision, grant_id)


def _repeats(row: Any, principal: Principal, decision: Decision) -> bool:
    """Whether this very decision, by the same person, is the one that was accepted."""
    was = (row["decision_id"], row["decided_by"], row["intent_version"], row["digest"])
    same = (decision.decision_id, principal.actor, decision.version, decision.digest) == was
    return same and VERDICT_OF.get(row["status"]) == decision.verdict


def _refusal(row: Any, principal: Principal, decision: Decision) -> PerdureError | None:
    if not set(principal.roles) & set(row["approvers"]):
        return NotAuthorized("none of your roles may decide this review")
    if row["status"] in VERDICT_OF:
        return AlreadyDecided(f"the review was {row['status']} before; that stands")
    if row["run_status"] in runs.OVER:
        return RunEnded("the run has ended; nothing can be decided in it")
    if row["status"] == "cancelled":
        return ReviewStale(f"the review was withdrawn ({row['cancelled_because']}); look at the one that is open now")
    if row["status"] == "expired" or row["late"]:
        return ReviewExpired("the review expired before this decision")
    if (row["intent_version"], row["digest"]) != (decision.version, decision.digest):
        return ReviewStale("the decision names another version or digest; read the review again")
    return None


async def _accept(
    connection: AsyncConnection, keys: Keys, principal: Principal, decision: Decision, row: Any, grant_id: str | None
) -> None:
    tenant, name, subject = principal.tenant, decision.review_id, sealing_subject(row)
    comment = None
    if decision.comment is not None:
        plain = decision.comment.model_dump_json().encode()
        comment = await keys.seal(connection, tenant, subject, plain, f"comment|{name}".encode())
    event = await journal.entry(
        connection, keys, principal, Stream.REVIEW, name, Event.REVIEW_DECIDED,
        _payload(principal, decision) | {"grant": grant_id}, subject,
        process=row["route"], policy_version=str(row["route_version"]),
    )  # fmt: skip
    reference = {"run_id": row["run_id"], "review_id": name, "decision_id": decision.decision_id}
    await change(
        connection, _DECIDE, **event, id=name, status=STATUS_OF[decision.verdict], by=principal.actor,
        identity=principal.identity, decision_id=decision.decision_id, comment=comment, grant_id=grant_id,
        run_id=row["run_id"], topic="decided", reference=json.dumps(reference),
    )  # fmt: skip


async def _refuse(
    connection: AsyncConnection, keys: Keys, principal: Principal, decision: Decision, row: Any, why: PerdureError
) -> DecisionOutcome:
    refusal = type(why).__name__
    await journal.append(
        connection, keys, principal, Stream.REVIEW, decision.review_id, Event.REVIEW_DECISION_REFUSED,
        _payload(principal, decision) | {"refusal": refusal}, sealing_subject(row), process=row["route"],
        event_id=derived(principal.tenant, decision.review_id, decision.decision_id, refusal, principal.actor),
    )  # fmt: skip
    return DecisionOutcome(
        review_id=decision.review_id,
        decision_id=decision.decision_id,
        accepted=False,
        refusal=refusal,
        first=VERDICT_OF.get(row["status"]) if isinstance(why, AlreadyDecided) else None,
        message=why.message,
    )


def _accepted(decision: Decision, grant_id: str | None) -> DecisionOutcome:
    return DecisionOutcome(
        review_id=decision.review_id, decision_id=decision.decision_id, accepted=True, grant_id=grant_id
    )


def _payload(principal: Principal, decision: Decision) -> dict[str, Any]:
    named = decision.model_dump(mode="json", include={"decision_id", "verdict", "version", "digest"})
    return named | {"identity": principal.identity, "roles": list(principal.roles)}


_LOCK = (
    "SELECT r.run_id, r.route, r.status, r.intent_version, r.digest, r.approvers, r.decision_id, r.decided_by,"
    " r.grant_id,"
    " r.cancelled_because, r.expires_at <= clock_timestamp() AS late, n.status AS run_status, n.route_version,"
    " n.subject_type, n.subject_id FROM perdure.runs n JOIN perdure.reviews r"
    " ON n.tenant = r.tenant AND n.run_id = r.run_id WHERE r.tenant = :tenant AND r.review_id = :id FOR UPDATE OF n, r"
)
_DECIDE = (
    "WITH on_its_way AS (UPDATE perdure.runs SET status = 'running', waiting_for = NULL, waiting_since = NULL"
    " WHERE tenant = :tenant AND run_id = :run_id AND status = 'waiting'),"
    " decided AS (UPDATE perdure.reviews SET status = :status, decided_at = clock_timestamp(), decided_by = :by,"
    " identity = :identity, decision_id = :decision_id, comment = :comment, grant_id = :grant_id"
    " WHERE tenant = :tenant AND review_id = :id RETURNING *),"
    " granted AS (INSERT INTO perdure.grants (tenant, grant_id, review_id, run_id, intent_id, intent_version,"
    " action, tool,"
    " object_type, object_id, arguments_digest, amount_left, currency, uses_left, rests_on, approved_by, expires_at)"
    " SELECT r.tenant, r.grant_id, r.review_id, r.run_id, i.intent_id, i.version, i.action, i.tool, i.object_type,"
    " i.object_id, i.arguments_digest, i.amount, i.currency, i.uses, r.rests_on, r.decided_by, r.expires_at FROM"
    " decided r"
    " JOIN perdure.intents i ON i.tenant = r.tenant AND i.intent_id = r.intent_id AND i.version = r.intent_version"
    f" WHERE r.grant_id IS NOT NULL), noted AS ({journal.written()}) {ENQUEUE}"
)
"""Everything that an accepted decision changes, in one statement."""
