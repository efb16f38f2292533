"""Process memory of one run: what happened, the typed state, what is owed, and a summary that is only a hint."""

from datetime import datetime
from typing import Any, Literal

from pydantic import AwareDatetime, Field

from perdure.messages import Message, Obligation, RunMessage
from perdure.route import FieldType

Source = Literal["input", "tool", "approval", "user", "model", "system"]
"""Who brings something about; ``input`` is the start, ``system`` the run itself."""
ObligationKind = Literal["approval", "wait", "handoff", "unknown_effect"]
Closing = Literal["done", "refused", "expired", "cancelled", "handed_off"]


# ---------------------------------------------------------------- what can happen


class Entered(Message):
    """The run came to a step."""

    happening: Literal["entered"] = "entered"
    step: str


class Recorded(Message):
    """Fields were set, all or none."""

    happening: Literal["recorded"] = "recorded"
    source: Source
    step: str
    fields: dict[str, Any]
    at: AwareDatetime


class Received(Message):
    """A message reached the run; the same id a second time changes nothing."""

    happening: Literal["received"] = "received"
    message: RunMessage
    step: str = ""
    at: AwareDatetime


class Owed(Message):
    """An obligation was opened; one that is open already stays as it is."""

    happening: Literal["owed"] = "owed"
    kind: ObligationKind
    id: str
    owner: str
    at: AwareDatetime
    due: AwareDatetime | None = None
    reason: str = ""


class Closed(Message):
    """An obligation was closed."""

    happening: Literal["closed"] = "closed"
    id: str
    how: Closing
    at: AwareDatetime


class Summarised(Message):
    """The hint to the model was written anew."""

    happening: Literal["summarised"] = "summarised"
    summary: str


Happening = Entered | Recorded | Received | Owed | Closed | Summarised
"""Everything that changes process memory."""


# ---------------------------------------------------------------- what is kept


class ProcessEvent(Message):
    """One thing that happened, for ever: names and a digest, no values. ``type`` is a happening or a message's kind."""

    id: str
    type: str
    at: datetime
    source: Source
    step: str = ""
    fields: tuple[str, ...] = ()
    digest: str | None = None


class StateValue(Message):
    """What a field holds, its type, and the event and source that set it."""

    value: Any
    type: FieldType
    event_id: str
    set_by: Source


class Process(Message):
    """The whole memory of one run, small enough to travel with it.

    ``summary`` is a hint to a model: nothing is decided by it and nothing stands in it alone. ``events`` holds the
    newest events and all that ``state`` rests on; ``count`` is how many there were.
    """

    run_id: str
    events: tuple[ProcessEvent, ...] = ()
    count: int = 0
    state: dict[str, StateValue] = Field(default_factory=dict)
    obligations: tuple[Obligation, ...] = ()
    summary: str = Field(default="", max_length=4_000)
    step: str = ""
    visits: dict[str, int] = Field(default_factory=dict)
    seen: tuple[str, ...] = ()
    refused_messages: tuple[str, ...] = ()
    held: bool = False
    cancel_requested: bool = False
