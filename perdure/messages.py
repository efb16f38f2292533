"""What travels through Temporal: inputs and results of workflows, signals, updates, queries and activities."""

from datetime import datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from perdure.ids import Identifier, RunId, Tenant
from perdure.masked import MaskedText


class Message(BaseModel):
    """Base of all messages: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Principal(Message):
    """Who acts. ``identity`` tells how that is known: a token at the gateway, a proof (JWS), only asserted, or the
    process itself."""

    tenant: Tenant
    actor: Identifier
    roles: tuple[str, ...] = ()
    purpose: Identifier = "run"
    identity: Literal["token", "proof", "asserted", "process"] = "process"


# ---------------------------------------------------------------- start


class RunInput(Message):
    """Input of the workflow ``AgentRun``. Workflow id: ``run:<tenant>:<run_id>``.

    ``version``: null pins the newest version when the run opens. ``input``: field -> value; personal text as
    ``MaskedText``. ``carried`` is the run's own state across continue-as-new; callers leave it out.
    """

    tenant: Tenant
    run_id: RunId
    route: str
    version: int | None = None
    actor: Identifier
    input: dict[str, Any] = Field(default_factory=dict)
    carried: dict[str, Any] | None = None


class RunResult(Message):
    """Result of the workflow. ``outcome``: the end step's outcome, or ``handed_off``, ``cancelled``, ``refused``."""

    outcome: str
    step: str
    reason: str | None = None
    obligations_open: tuple[str, ...] = ()


# ---------------------------------------------------------------- messages to a run


class RunMessage(Message):
    """Signal ``message``: something for the run from outside. ``id`` makes a repeat harmless.

    ``fields``: field -> value for ``message`` (set by the user) and ``evidence`` (set by a tool); personal text as
    ``MaskedText``. ``hold``, ``resume`` and ``cancel`` carry no fields.
    """

    id: Identifier
    kind: Literal["message", "evidence", "hold", "resume", "cancel"]
    actor: Identifier
    fields: dict[str, Any] = Field(default_factory=dict)


# ---------------------------------------------------------------- approvals


class EvidenceRef(Message):
    """One field a decision rests on: its value, the event that set it and a digest of the value."""

    field: str
    event_id: str
    digest: str
    value: Any


class Decision(Message):
    """A person's decision on one version of one review: signal and update ``decide``, and the body of the API call.

    ``version`` and ``digest`` are the ones that were looked at. ``decision_id`` makes a repeat harmless. Over Temporal,
    ``proof`` is a compact JWS by a registered key with claims ``tenant``, ``sub``, ``roles``, ``review``, ``version``,
    ``digest``, ``verdict`` and ``exp``; ``actor`` and ``roles`` without a proof are only asserted.
    """

    review_id: Identifier
    decision_id: Identifier
    verdict: Literal["approve", "reject"]
    version: int
    digest: str
    comment: MaskedText | None = None
    proof: str | None = None
    actor: Identifier | None = None
    roles: tuple[str, ...] = ()


class DecisionOutcome(Message):
    """What became of a decision. ``refusal`` is the name of the error, such as ``ReviewStale``; ``first`` is the
    verdict that was accepted before, if one was."""

    review_id: str
    decision_id: str
    accepted: bool
    refusal: str | None = None
    first: str | None = None
    message: str | None = None
    grant_id: str | None = None


class ReviewState(Message):
    """A review's row as a run or the gateway reads it; the row is the authority."""

    review_id: str
    run_id: str
    route: str
    step: str
    intent_id: str
    version: int
    digest: str
    status: Literal["pending", "approved", "rejected", "expired", "cancelled"]
    action: str
    object_type: str
    object_id: str
    amount: str | None
    currency: str | None
    uses: int
    approvers: tuple[str, ...]
    opened_at: datetime
    expires_at: datetime
    warn_at: datetime | None
    decided_at: datetime | None = None
    decided_by: str | None = None
    identity: str | None = None
    decision_id: str | None = None
    comment: MaskedText | None = None
    grant_id: str | None = None
    cancelled_because: str | None = None


class ReviewChange(Message):
    """One line of what a reviewer sees: a field, its value in the version approved or shown before, and now."""

    field: str
    previous: Any = None
    proposed: Any = None


class ReviewDetail(Message):
    """The reviewer's screen: the state, the changes, the evidence, the limits and the future uses; built from rows."""

    state: ReviewState
    changes: tuple[ReviewChange, ...]
    evidence: tuple[EvidenceRef, ...]
    future_uses: tuple[str, ...]
    previous_version: int | None


# ---------------------------------------------------------------- effects


class ToolCall(Message):
    """Input of a tool's activity. ``sets``: field -> dotted path in the result. ``key``, ``not_after``: for effects.

    ``resumed``: an earlier attempt may have reached the target, so look it up before anything else. ``personal``:
    fields whose values must be ``MaskedText``. ``timeout`` bounds one request to the target.
    """

    tenant: Tenant
    run_id: RunId
    tool: str
    arguments: dict[str, Any]
    sets: dict[str, str] = Field(default_factory=dict)
    personal: tuple[str, ...] = ()
    timeout: timedelta = timedelta(seconds=10)
    key: str | None = None
    not_after: datetime | None = None
    resumed: bool = False


class ObjectRef(Message):
    """A payload kept outside Temporal: id, SHA-256 (hex) and size in bytes."""

    object_id: str
    sha256: str
    size: int


class EffectResult(Message):
    """What a tool call came to. ``done``: ``fields`` holds the values asked for. ``not_executed``: the target promises
    that nothing was done. ``unknown``: nobody knows, and nobody may repeat it. ``digest`` covers the whole answer."""

    outcome: Literal["done", "not_executed", "unknown"]
    fields: dict[str, Any] = Field(default_factory=dict)
    digest: str | None = None
    object: ObjectRef | None = None
    reason: str | None = None


# ---------------------------------------------------------------- model


# ---------------------------------------------------------------- process, as shown


class Obligation(Message):
    """An open task or approval with an owner. It ends as done, refused, expired, cancelled or handed off, and never by
    silence."""

    id: str
    kind: Literal["approval", "wait", "handoff", "unknown_effect"]
    owner: str
    opened_at: datetime
    due_at: datetime | None = None
    reason: str = ""
    closed: Literal["done", "refused", "expired", "cancelled", "handed_off"] | None = None
    closed_at: datetime | None = None


class FieldView(Message):
    """A field's value with the event and source that set it."""

    value: Any
    event_id: str
    set_by: str


class ProcessView(Message):
    """Answer of the query ``process``: where a run stands. Values are masked."""

    run_id: str
    route: str
    version: int
    step: str
    status: Literal["running", "waiting", "held", "ended"]
    waiting_for: str | None
    since: datetime | None
    state: dict[str, FieldView]
    obligations: tuple[Obligation, ...]
    refused_messages: tuple[str, ...]
    events: int
    outcome: str | None = None
