"""Persisted names are compatibility data: a change here breaks stored histories and rows."""

from perdure import names

PINNED = {
    "TASK_QUEUE": "perdure",
    "WORKFLOW_AGENT_RUN": "AgentRun",
    "SIGNAL_MESSAGE": "message",
    "SIGNAL_DECIDE": "decide",
    "SIGNAL_DECIDED": "decided",
    "UPDATE_DECIDE": "decide",
    "QUERY_PROCESS": "process",
    "ACTIVITY_OPEN_RUN": "open_run",
    "ACTIVITY_END_RUN": "end_run",
    "ACTIVITY_OPEN_REVIEW": "open_review",
    "ACTIVITY_READ_REVIEW": "read_review",
    "ACTIVITY_CLOSE_REVIEW": "close_review",
    "ACTIVITY_DECIDE": "decide_review",
    "ACTIVITY_RESERVE": "reserve_effect",
    "ACTIVITY_SETTLE": "settle_effect",
    "ACTIVITY_CALL_TOOL": "call_tool",
    "ACTIVITY_ASK_MODEL": "ask_model",
    "ACTIVITY_NOTE": "note_event",
    "ACTIVITY_CHECK_SEALS": "check_seals",
    "TOOL_ACTIVITY_PREFIX": "tool:",
    "SEARCH_TENANT": "PerdureTenant",
    "SEARCH_ROUTE": "PerdureRoute",
    "SEARCH_SUBJECT": "PerdureSubject",
    "SEARCH_WAITING_FOR": "PerdureWaitingFor",
    "CODEC_ENCODING": "binary/perdure-sealed",
}
STREAMS = ["run", "review", "effect", "route", "lease"]
EVENTS = [
    "route.installed",
    "run.started",
    "run.refused",
    "run.message_received",
    "run.evidence_received",
    "run.held",
    "run.resumed",
    "run.cancel_requested",
    "run.obligation_opened",
    "run.obligation_closed",
    "run.handed_off",
    "run.ended",
    "run.abandoned",
    "review.opened",
    "review.expiry_warned",
    "review.decided",
    "review.decision_refused",
    "review.expired",
    "review.cancelled",
    "grant.revoked",
    "effect.reserved",
    "effect.refused",
    "effect.settled",
    "lease.acquired",
    "lease.released",
]


def test_no_persisted_name_changes() -> None:
    found = {key: value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)}
    assert found == PINNED


def test_no_stream_or_event_type_changes() -> None:
    assert [s.value for s in names.Stream] == STREAMS
    assert [e.value for e in names.Event] == EVENTS


def test_a_run_is_found_by_its_workflow_id() -> None:
    assert names.workflow_id("acme", "r1") == "run:acme:r1"
