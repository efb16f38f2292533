"""Names that are persisted: in Temporal histories, in the journal, in the database. They are compatibility data."""

from enum import StrEnum

TASK_QUEUE = "perdure"
WORKFLOW_AGENT_RUN = "AgentRun"

SIGNAL_MESSAGE = "message"
SIGNAL_DECIDE = "decide"
SIGNAL_DECIDED = "decided"
UPDATE_DECIDE = "decide"
QUERY_PROCESS = "process"

ACTIVITY_OPEN_RUN = "open_run"
ACTIVITY_END_RUN = "end_run"
ACTIVITY_OPEN_REVIEW = "open_review"
ACTIVITY_READ_REVIEW = "read_review"
ACTIVITY_CLOSE_REVIEW = "close_review"
ACTIVITY_DECIDE = "decide_review"
ACTIVITY_RESERVE = "reserve_effect"
ACTIVITY_SETTLE = "settle_effect"
ACTIVITY_CALL_TOOL = "call_tool"
ACTIVITY_ASK_MODEL = "ask_model"
ACTIVITY_NOTE = "note_event"
ACTIVITY_CHECK_SEALS = "check_seals"
TOOL_ACTIVITY_PREFIX = "tool:"
"""A hosted tool's activity is ``tool:<name>`` on the app's own task queue."""

SEARCH_TENANT = "PerdureTenant"
SEARCH_ROUTE = "PerdureRoute"
SEARCH_SUBJECT = "PerdureSubject"
SEARCH_WAITING_FOR = "PerdureWaitingFor"

CODEC_ENCODING = "binary/perdure-sealed"


class Stream(StrEnum):
    """Kinds of journal streams."""

    RUN = "run"
    REVIEW = "review"
    EFFECT = "effect"
    ROUTE = "route"
    LEASE = "lease"


class Event(StrEnum):
    """Types of journal events."""

    ROUTE_INSTALLED = "route.installed"
    RUN_STARTED = "run.started"
    RUN_REFUSED = "run.refused"
    RUN_MESSAGE = "run.message_received"
    RUN_EVIDENCE = "run.evidence_received"
    RUN_HELD = "run.held"
    RUN_RESUMED = "run.resumed"
    RUN_CANCEL = "run.cancel_requested"
    RUN_OBLIGATION_OPENED = "run.obligation_opened"
    RUN_OBLIGATION_CLOSED = "run.obligation_closed"
    RUN_HANDED_OFF = "run.handed_off"
    RUN_ENDED = "run.ended"
    RUN_ABANDONED = "run.abandoned"
    REVIEW_OPENED = "review.opened"
    REVIEW_WARNED = "review.expiry_warned"
    REVIEW_DECIDED = "review.decided"
    REVIEW_DECISION_REFUSED = "review.decision_refused"
    REVIEW_EXPIRED = "review.expired"
    REVIEW_CANCELLED = "review.cancelled"
    GRANT_REVOKED = "grant.revoked"
    EFFECT_RESERVED = "effect.reserved"
    EFFECT_REFUSED = "effect.refused"
    EFFECT_SETTLED = "effect.settled"
    LEASE_ACQUIRED = "lease.acquired"
    LEASE_RELEASED = "lease.released"


def workflow_id(tenant: str, run_id: str) -> str:
    """The Temporal workflow id of a run: ``run:<tenant>:<run id>``."""
    return f"run:{tenant}:{run_id}"
