"""What reached a run from outside and is not worked in yet."""

from collections.abc import Iterable

from perdure.calls import Decided
from perdure.messages import Decision, RunMessage

KEPT_DECISIONS = 50
KEPT_REFUSALS = 20


class Mail:
    """Signals only leave things here; the run works them in, one after another, at its own pace."""

    def __init__(self, decisions: Iterable[Decision] = (), refused: Iterable[str] = ()) -> None:
        self.received = 0
        self.messages: list[RunMessage] = []
        self.decisions = list(decisions)
        self.decided: set[str] = set()
        self.refused = list(refused)

    def message(self, message: RunMessage) -> None:
        self.received += 1
        self.messages.append(message)

    def decision(self, decision: Decision) -> None:
        """Kept until its review is open; a repeat is one decision, and of too many the oldest is refused. Only what is
        the same in everything is a repeat: an id that somebody copied pushes nothing out."""
        self.received += 1
        if decision in self.decisions:
            return
        self.decisions.append(decision)
        if len(self.decisions) > KEPT_DECISIONS:
            self.refuse(f"decision {self.decisions.pop(0).decision_id}: NotFound")

    def decided_elsewhere(self, decided: Decided) -> None:
        self.received += 1
        self.decided.add(decided.review_id)

    def refuse(self, what: str) -> None:
        """Remember what was refused, the newest few."""
        self.refused = [*self.refused, what][-KEPT_REFUSALS:]

    def due(self, reviews: Iterable[str]) -> Decision | None:
        """A decision that can be tried now: its review is one that this run opened."""
        known = set(reviews)
        return next((decision for decision in self.decisions if decision.review_id in known), None)
