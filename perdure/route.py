"""The shape of a route: a checked, versioned description of a task. ``docs/routes.md`` explains each key."""

import re
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
RouteName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
ToolName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$", max_length=64)]
Role = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]

_SHORT = re.compile(r"([1-9][0-9]{0,8})([smhd])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _duration(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        raise ValueError('a duration needs a unit, such as "10s", "5m", "72h" or "30d"')
    short = _SHORT.fullmatch(value) if isinstance(value, str) else None
    return value if short is None else timedelta(**{_UNITS[short[2]]: int(short[1])})


Duration = Annotated[timedelta, BeforeValidator(_duration), Field(ge=timedelta(seconds=1), le=timedelta(days=36_525))]
"""``10s``, ``5m``, ``72h``, ``30d`` or ISO 8601 (``PT72H``); one second to a hundred years."""


class Shape(BaseModel):
    """Base of all that a file declares: unknown keys are refused, nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class FieldType(StrEnum):
    """Types of state fields. A decimal is a JSON string such as ``"820.00"``; dates are ISO 8601."""

    IDENTIFIER = "identifier"
    STRING = "string"
    TEXT = "text"
    INTEGER = "integer"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    DATE = "date"
    DATETIME = "datetime"
    OBJECT = "object"
    LIST = "list"


class Setter(StrEnum):
    """Who may set a field. ``input`` fields are set once, at the start."""

    TOOL = "tool"
    APPROVAL = "approval"
    USER = "user"
    MODEL = "model"


class InputField(Shape):
    """A field given at the start. ``personal`` text arrives as ``MaskedText``."""

    type: FieldType
    personal: bool = False
    required: bool = True
    choices: tuple[str, ...] | None = None


class StateField(Shape):
    """A field set during the run, only by the sources in ``set_by``."""

    type: FieldType
    set_by: tuple[Setter, ...] = Field(min_length=1)
    personal: bool = False
    choices: tuple[str, ...] | None = None


COMPARISONS = ("equals", "differs", "at_least", "at_most", "one_of", "is_set")


class Condition(Shape):
    """One structured condition on typed state: ``field`` with exactly one test, or ``all`` / ``any`` of conditions.

    A comparison with an unset optional field is false; ``is_set`` asks for that.
    """

    field: Name | None = None
    equals: Any = None
    differs: Any = None
    at_least: Decimal | int | str | None = None
    at_most: Decimal | int | str | None = None
    one_of: tuple[Any, ...] | None = None
    is_set: bool | None = None
    all: tuple["Condition", ...] | None = None
    any: tuple["Condition", ...] | None = None

    @model_validator(mode="after")
    def _one_test(self) -> Self:
        joined = [each for each in (self.all, self.any) if each is not None]
        tests = [test for test in COMPARISONS if getattr(self, test) is not None]
        if joined and (len(joined) > 1 or self.field is not None or tests):
            raise ValueError("all or any stands alone, without field and test")
        if joined and not joined[0]:
            raise ValueError("all and any need at least one condition")
        if not joined and (self.field is None or len(tests) != 1):
            raise ValueError(f"a condition needs field and exactly one of {', '.join(COMPARISONS)}")
        return self


class Branch(Shape):
    """Go to ``go`` when ``when`` holds; the last branch has no ``when``."""

    go: Name
    when: Condition | None = None


Next = Name | Annotated[tuple[Branch, ...], Field(min_length=1)]


class Argument(Shape):
    """A literal argument: ``{value: …}``. A plain string in its place names a field."""

    value: Any


Arguments = dict[Name, Name | Argument]


class BusinessObject(Shape):
    """What an effect is done to: a type and the field that holds its id."""

    type: Name
    id: Name


class Intent(Shape):
    """A typed proposal of one effect, built from state alone.

    The grant is bounded: ``amount`` and ``currency`` name fields; one approval is one effect (``uses``).
    """

    action: Name
    tool: ToolName
    object: BusinessObject
    arguments: Arguments
    amount: Name | None = None
    currency: Name | None = None
    uses: Annotated[int, Field(ge=1, le=1)] = 1


class _Step(Shape):
    max_visits: Annotated[int, Field(ge=1, le=1000)] | None = None


class ModelStep(_Step):
    """A model reads fields and answers with typed values for ``sets``; only fields that ``model`` may set."""

    kind: Literal["model"]
    prompt: Annotated[str, StringConstraints(max_length=20_000)]
    reads: tuple[Name, ...] = ()
    sets: tuple[Name, ...] = Field(min_length=1)
    next: Next


class ToolStep(_Step):
    """Read the world (``tool``, ``arguments``), or carry out an approved intent (``intent`` names its approval step).

    ``sets`` maps a field to a dotted path in the tool's result.
    """

    kind: Literal["tool"]
    tool: ToolName | None = None
    arguments: Arguments = Field(default_factory=dict)
    intent: Name | None = None
    sets: dict[Name, str] = Field(default_factory=dict)
    next: Next


class ApprovalStep(_Step):
    """Wait for a person's decision on one version of one intent.

    ``evidence`` names the fields the decision rests on; when one changes, the review is cancelled and the next opened.
    ``comment`` may name a personal text field that takes the reviewer's comment.
    """

    kind: Literal["approval"]
    intent: Intent
    approvers: tuple[Role, ...] = ()
    evidence: tuple[Name, ...] = ()
    future_uses: tuple[str, ...] = ()
    expires_after: Duration
    warn_before: Duration | None = None
    comment: Name | None = None
    approved: Name
    rejected: Name


class WaitStep(_Step):
    """Wait until a message has set all of ``sets``; after ``timeout`` go to ``on_timeout`` (default: hand off)."""

    kind: Literal["wait"]
    sets: tuple[Name, ...] = Field(min_length=1)
    timeout: Duration
    on_timeout: Name | None = None
    next: Name


RESERVED_OUTCOMES = ("handed_off", "cancelled", "refused")
"""Outcomes of runs that did not come to an end step."""


class EndStep(_Step):
    """The run ends with ``outcome``, none of ``RESERVED_OUTCOMES``."""

    kind: Literal["end"]
    outcome: Name


Step = Annotated[ModelStep | ToolStep | ApprovalStep | WaitStep | EndStep, Field(discriminator="kind")]


class Handoff(Shape):
    """Where a run goes when a step is refused, expires or cannot be finished: a role that owns the open obligation."""

    owner: Role
    note: Annotated[str, StringConstraints(max_length=2000)] = ""


class Compliance(Shape):
    """Rules a security officer may change alone: data class per field, and how long working memory may live."""

    data_classes: dict[Name, Literal["public", "internal", "confidential", "personal"]] = Field(default_factory=dict)
    working_memory: Duration = timedelta(days=90)
    outcomes: Duration = timedelta(days=365)


class Subject(Shape):
    """Whom the run is about: a type and the input field that holds the id."""

    type: Name
    id: Name


class Route(Shape):
    """A whole route. ``start`` names the first step; ``handoff`` is the hand-off point."""

    route: RouteName
    summary: Annotated[str, StringConstraints(max_length=500)] = ""
    subject: Subject | None = None
    input: dict[Name, InputField] = Field(default_factory=dict)
    state: dict[Name, StateField] = Field(default_factory=dict)
    start: Name
    steps: dict[Name, Step] = Field(min_length=1, max_length=200)
    handoff: Handoff
    compliance: Compliance = Field(default_factory=Compliance)


def step_targets(step: ModelStep | ToolStep | ApprovalStep | WaitStep | EndStep) -> tuple[str, ...]:
    """Names of the steps that may follow, in the order written."""
    match step:
        case ModelStep() | ToolStep():
            return (step.next,) if isinstance(step.next, str) else tuple(branch.go for branch in step.next)
        case ApprovalStep():
            return (step.approved, step.rejected)
        case WaitStep():
            return (step.next,) if step.on_timeout is None else (step.next, step.on_timeout)
        case EndStep():
            return ()
