"""The report of the demo: the facts as JSON, and whether each is what it has to be."""

from dataclasses import dataclass
from typing import Any

from examples.refund.demo.story import AMENDED, Facts
from examples.refund.demo.traces import History


@dataclass(frozen=True)
class Check:
    """One thing that has to be so."""

    what: str
    holds: bool


def facts_of(
    facts: Facts, sandbox: list[dict[str, Any]], calls: dict[str, int], history: History, leaks: list[dict[str, object]]
) -> dict[str, Any]:
    """``effects``: refunds in the sandbox's books. ``leaks``: hits of the search for the customer's words."""
    return {
        "effects": len(sandbox),
        "amounts": [refund["amount"] for refund in sandbox],
        "calls": {name: calls.get(name, 0) for name in ("make_refund", "find_refund")},
        "intent_versions": len(facts.amounts),
        "decisions": {"accepted": facts.accepted, "stale": facts.stale},
        "outcome": facts.outcome,
        "run": facts.run_id,
        "restarts": facts.restarts,
        "history_events": history.events,
        "history_bytes": history.bytes,
        "seconds": facts.seconds | {"total": round(sum(facts.seconds.values()), 2)},
        "leaks": len(leaks),
    }


def checks_of(report: dict[str, Any]) -> list[Check]:
    """All must hold for the demo to pass."""
    return [
        Check("the run ended as refunded", report["outcome"] == "refunded"),
        Check("the sandbox holds exactly one refund", report["effects"] == 1),
        Check("it is of the approved amount", report["amounts"] == [AMENDED]),
        Check("the lost answer was looked up, not repeated", _looked_up(report["calls"])),
        Check("the amendment made a second version of the intent", report["intent_versions"] == 2),
        Check("one decision accepted, one refused as stale", report["decisions"] == {"accepted": 1, "stale": 1}),
        Check("worker, Temporal and PostgreSQL were restarted", _all_restarted(report["restarts"])),
        Check("nothing personal was written down", report["leaks"] == 0),
    ]


def _all_restarted(restarts: dict[str, int]) -> bool:
    return all(restarts.get(name, 0) >= 1 for name in ("worker", "temporal", "postgres"))


def _looked_up(calls: dict[str, int]) -> bool:
    return calls["make_refund"] == 1 and calls["find_refund"] >= 1
