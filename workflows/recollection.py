"""What a run knows and owes: its process memory, changed by the reducer alone."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from temporalio import workflow

from memory import reducer
from memory.process import Closed, Closing, Happening, ObligationKind, Owed, Process, Recorded, Source
from perdure.calls import OpenedRun
from perdure.errors import StepRefused
from perdure.messages import Obligation
from perdure.route import Route

FROM_MESSAGE = "message:"
"""How the reducer's ids begin of events that messages brought."""


class Recollection:
    """Process memory under the route that was pinned."""

    opened: OpenedRun
    is_open = False

    def __init__(self, process: Process) -> None:
        self.process = process

    @property
    def route(self) -> Route:
        return self.opened.route

    def visit(self, step: str) -> int:
        return self.process.visits.get(step, 0)

    def value(self, field: str) -> Any:
        found = self.process.state.get(field)
        if found is None:
            raise StepRefused(f"field {field!r} is not set", field=field)
        return found.value

    def event_of(self, field: str) -> str:
        return self.process.state[field].event_id

    def record(self, source: Source, step: str, fields: dict[str, Any]) -> None:
        """Let the reducer set fields, or refuse to."""
        self.happens(Recorded(source=source, step=step, fields=fields, at=workflow.now()))

    def owe(
        self, kind: ObligationKind, task: str, owner: str, due: datetime | None = None, reason: str = ""
    ) -> Obligation:
        """Open an obligation; one that is open already stays as it is, and is returned."""
        self.happens(Owed(kind=kind, id=task, owner=owner, at=workflow.now(), due=due, reason=reason))
        return next(owed for owed in reducer.owed_now(self.process) if owed.id == task)

    def close(self, task: str, how: Closing) -> None:
        self.happens(Closed(id=task, how=how, at=workflow.now()))

    def happens(self, happening: Happening) -> None:
        self.process = reducer.apply(self.route, self.process, happening)

    def answers(self, field: str) -> str | None:
        """The message that set the field; None when something else did, or nothing."""
        found = self.process.state.get(field)
        return found.event_id if found is not None and found.event_id.startswith(FROM_MESSAGE) else None

    def personal(self, fields: Iterable[str]) -> tuple[str, ...]:
        declared = self.route.state
        return tuple(field for field in fields if field in declared and declared[field].personal)
