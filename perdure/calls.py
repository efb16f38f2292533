"""What a run sends to the activities of the service itself; an app has no use for these."""

from datetime import datetime
from typing import Any, Literal

from perdure.messages import Decision, Message, Obligation, Principal, RunInput, RunResult


class Decided(Message):
    """Signal ``decided``: a review was decided elsewhere. It wakes the run; the row is the authority."""

    review_id: str
    decision_id: str


class OpenRun(Message):
    """Input of ``open_run``. ``execution`` is Temporal's run id."""

    start: RunInput
    execution: str


class EndRun(Message):
    """Input of ``end_run``: the result and everything that was owed. A run that could not begin is not ``opened``."""

    principal: Principal
    run_id: str
    route: str
    opened: bool
    result: RunResult
    obligations: tuple[Obligation, ...]


class DecideReview(Message):
    """Input of ``decide_review``: a decision that came over Temporal; who decides is in its proof."""

    tenant: str
    run_id: str
    decision: Decision


class ReadReview(Message):
    """Input of ``read_review``."""

    principal: Principal
    review_id: str


class CloseReview(Message):
    """Input of ``close_review``; a review that was decided meanwhile stays decided, and the answer says so."""

    principal: Principal
    review_id: str
    status: Literal["expired", "cancelled"]
    because: str


class Note(Message):
    """Input of ``note_event``: warn that a review is about to expire."""

    principal: Principal
    review_id: str


class CheckSeals(Message):
    """Input of ``check_seals``: personal texts that came by message, field -> masked text."""

    principal: Principal
    texts: dict[str, Any]


class Approved(Message):
    """What an approval step hands to its tool step: the grant and the intent it covers."""

    step: str
    review_id: str
    grant_id: str
    intent_id: str
    version: int
    action: str
    tool: str
    object_type: str
    object_id: str
    arguments: dict[str, Any]
    amount: str | None
    currency: str | None
    rests_on: tuple[str, ...]
    fingerprint: str | None
    """Digest of the values of ``rests_on``; the approval no longer fits when it differs, or was taken back (None)."""


class Carried(Message):
    """A run's own state across continue-as-new, beside its process memory."""

    process: dict[str, Any]
    began: datetime
    step: str
    entered: bool
    waiting_for: str | None
    since: datetime
    openings: dict[str, int]
    warned: tuple[str, ...]
    approved: dict[str, Approved]
    waited: dict[str, str]
    reviews: tuple[str, ...]
    decisions: tuple[Decision, ...]
    refused: tuple[str, ...]
