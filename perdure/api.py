"""The HTTP API's bodies, shared by the gateway and the client.

Times are ISO 8601 with an offset; amounts are strings such as ``"820.00"``; digests are 64 hex digits. No body has a
tenant: it comes from the token. Errors are RFC 9457 problem documents (``Problem``).
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from perdure.ids import Identifier
from perdure.masked import MaskedText
from perdure.messages import ProcessView, ReviewState
from perdure.route import Name, Route, RouteName

PersonalValue = Annotated[str, StringConstraints(min_length=1, max_length=1_000)]
Personal = Annotated[tuple[PersonalValue, ...], Field(max_length=100)]
"""Values to mask wherever they stand in this request's texts, such as the customer's name. Never stored."""


class Body(BaseModel):
    """Base of all bodies: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Problem(BaseModel):
    """An error, RFC 9457. ``type`` is the error's name (see ``perdure.errors``), which says what to do next.

    Further members are ids, never values: ``field``, ``fields`` (list of {"field", "message"}), ``problems`` of a route
    (list of {"file", "step", "field", "message", "path"}), ``first`` (the verdict that was accepted before) and such.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str
    title: str
    status: int
    detail: str


class Links(Body):
    """Where to look further: the thing itself, and its run in the Temporal UI when its address is known here."""

    api: str
    temporal: str | None = None


# ---------------------------------------------------------------- routes


class RouteInstalled(Body):
    """Answer of ``POST /v1/routes``. ``created`` is false when the newest version was the same already."""

    route: RouteName
    version: int
    digest: str
    created: bool


class RouteSummary(Body):
    """One installed version of a route."""

    route: RouteName
    version: int
    digest: str
    summary: str
    installed_by: str
    installed_at: datetime


class RouteList(Body):
    """Answer of ``GET /v1/routes``: the newest version of each route."""

    items: tuple[RouteSummary, ...]


class RouteDetail(RouteSummary):
    """Answer of ``GET /v1/routes/{route}[/{version}]``, with the route itself."""

    document: Route


# ---------------------------------------------------------------- runs


class StartRun(Body):
    """Body of ``POST /v1/runs``. ``version``: the newest when left out; it is pinned for the life of the run.

    ``input``: field -> value by the route's ``input``. Text of a personal field is masked at the edge, or arrives as
    ``MaskedText`` made by this installation. Errors: ``InvalidInput``, ``UnmaskedText``, ``NotFound``.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "route": "refund",
                    "input": {"order_id": "ord_1001", "complaint": "Anna Petrova was charged twice"},
                    "personal": ["Anna Petrova"],
                }
            ]
        }
    )

    route: RouteName
    version: Annotated[int, Field(ge=1, le=2_147_483_647)] | None = None
    input: dict[Name, Any] = Field(default_factory=dict)
    personal: Personal = ()


class RunStarted(Body):
    """Answer of ``POST /v1/runs``; the same key and body give the same run."""

    run_id: str
    workflow_id: str
    route: RouteName
    version: int
    links: Links


class RunSummary(Body):
    """One run. ``status``: ``running``, ``waiting``, ``held``, ``ended`` or ``terminated``.

    ``version``, ``step`` and ``started_by`` are null until a worker has opened the run.
    """

    run_id: str
    route: str
    version: int | None = None
    status: str
    step: str | None = None
    waiting_for: str | None = None
    waiting_since: datetime | None = None
    held: bool = False
    started_by: str | None = None
    started_at: datetime
    ended_at: datetime | None = None
    outcome: str | None = None
    reason: str | None = None


class RunList(Body):
    """Answer of ``GET /v1/runs``, newest first. ``next`` goes into ``after``; null at the end."""

    items: tuple[RunSummary, ...]
    next: str | None = None


class EffectView(Body):
    """One external effect of a run: its idempotency key, what it was done to, and how it stands."""

    key: str
    action: str
    object_type: str
    object_id: str
    intent_id: str
    intent_version: int
    status: str
    settled_at: datetime | None


class RunDetail(RunSummary):
    """Answer of ``GET /v1/runs/{id}``. ``process`` (asked for by ``?process=true``) is the run's own view, masked; null
    when no worker answers in time."""

    workflow_id: str
    subject: str | None
    effects: tuple[EffectView, ...]
    process: ProcessView | None = None
    links: Links


class SendFields(Body):
    """Body of ``POST /v1/runs/{id}/messages`` (what a user says) and ``/evidence`` (what a system found).

    ``fields``: state field -> value; the route says who may set what. Personal text is masked at the edge.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"fields": {"amount": "410.00"}}]})

    fields: Annotated[dict[Name, Any], Field(min_length=1, max_length=100)]
    personal: Personal = ()


class Nothing(Body):
    """An empty body: ``{}`` or none."""


class MessageAccepted(Body):
    """The message is committed; the run hears of it next. The same key gives the same event."""

    run_id: str
    event_id: str


# ---------------------------------------------------------------- approvals


class ApprovalList(Body):
    """Answer of ``GET /v1/approvals``: the reviews that the caller may decide. ``next`` goes into ``after``."""

    items: tuple[ReviewState, ...]
    next: str | None = None


class DecideReview(Body):
    """Body of ``POST /v1/approvals/{id}/decision``: ``version`` and ``digest`` are the ones that were looked at.

    ``comment`` is masked before it is stored. Errors: ``ReviewStale`` (look again), ``AlreadyDecided`` (``first`` in
    the problem), ``ReviewExpired``, ``RunEnded``, ``NotAuthorized``, ``NotFound``.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"verdict": "approve", "version": 2, "digest": "9f" * 32, "comment": "Checked with the bank"}]
        }
    )

    verdict: Literal["approve", "reject"]
    version: Annotated[int, Field(ge=1, le=2_147_483_647)]
    digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    comment: MaskedText | Annotated[str, StringConstraints(max_length=20_000)] | None = None
    personal: Personal = ()


class Decided(Body):
    """Answer of a decision that was accepted: it is committed, and the run is told."""

    review_id: Identifier
    decision_id: Identifier
    verdict: Literal["approve", "reject"]
    grant_id: str | None = None


# ---------------------------------------------------------------- health


class Health(Body):
    """Answer of ``/healthz`` and ``/readyz``: each part with ``ok`` or the name of its error."""

    status: Literal["ok", "unavailable"]
    parts: dict[str, str] = Field(default_factory=dict)
