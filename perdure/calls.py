"""What a run sends to the activities of the service itself; an app has no use for these."""

from datetime import datetime, timedelta
from typing import Any, Literal

from perdure.ids import Identifier, RunId, Tenant
from perdure.messages import Decision, EffectResult, EvidenceRef, Message, Obligation, Principal, RunInput, RunResult
from perdure.route import Route


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


class ToolBinding(Message):
    """How a run reaches one tool: an activity on a task queue."""

    name: str
    activity: str
    task_queue: str
    effect: bool
    lookup: bool
    timeout: timedelta


class OpenedRun(Message):
    """Result of ``open_run``: the pinned route and what its tools are bound to; ``input`` is validated."""

    route: Route
    version: int
    digest: str
    tools: dict[str, ToolBinding]
    input: dict[str, Any]
    subject_token: str | None


class ReviewRequest(Message):
    """Input of ``open_review``. ``opening`` is unique per opening in one run, so a repeat finds the same review."""

    principal: Principal
    run_id: RunId
    route: str
    route_version: int
    step: str
    opening: str
    intent_id: Identifier
    action: str
    tool: str
    object_type: str
    object_id: str
    arguments: dict[str, Any]
    amount: str | None = None
    currency: str | None = None
    uses: int = 1
    evidence: tuple[EvidenceRef, ...] = ()
    rests_on: tuple[str, ...] = ()
    """All fields that arguments, object and evidence are built from: a change of one withdraws the review."""
    future_uses: tuple[str, ...] = ()
    approvers: tuple[str, ...]
    expires_after: timedelta
    warn_before: timedelta | None = None


class ReserveRequest(Message):
    """Input of ``reserve_effect``. ``holder`` is unique per execution of the workflow and visit of the step."""

    principal: Principal
    run_id: RunId
    route: str
    grant_id: str
    intent_id: Identifier
    intent_version: int
    action: str
    tool: str
    object_type: str
    object_id: str
    arguments: dict[str, Any]
    amount: str | None = None
    currency: str | None = None
    holder: str
    lease_for: timedelta


class Reservation(Message):
    """Result of ``reserve_effect``.

    ``fresh``: nobody executed it yet. ``resumed``: an earlier holder may have; ask the target first. ``in_flight``:
    another holder has it until ``leased_until``. ``final``: it has its one result, in ``result``.
    """

    status: Literal["fresh", "resumed", "in_flight", "final"]
    key: str
    fence: int
    not_after: datetime
    leased_until: datetime
    result: EffectResult | None = None


class SettleRequest(Message):
    """Input of ``settle_effect``: refused with ``LeaseLost`` when the fence is not the current one."""

    principal: Principal
    run_id: RunId
    key: str
    fence: int
    result: EffectResult


class ModelRequest(Message):
    """Input of ``ask_model``: the prompt, the fields it reads (masked values only) and the fields it must answer."""

    tenant: Tenant
    run_id: RunId
    route: str
    step: str
    prompt: str
    reads: dict[str, Any]
    sets: dict[str, str]
    """field -> type (see ``FieldType``)."""


class ModelAnswer(Message):
    """Typed values, one for each field asked for; ``model`` names who answered."""

    fields: dict[str, Any]
    model: str
