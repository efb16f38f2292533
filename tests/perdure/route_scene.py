"""The refund route, changed in one place, and small routes for the tests of the check."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure.problem import Problem
from perdure.route import Route
from perdure.routecheck import check
from perdure.routefile import parse, parse_tools

EXAMPLE = Path("examples/refund")
ROUTE = (EXAMPLE / "route.yaml").read_text()
TOOLS = parse_tools((EXAMPLE / "tools.yaml").read_text(), "tools.yaml")

Change = Callable[[dict[str, Any]], Any]


def problems_after(change: Change) -> list[Problem]:
    """The problems of the refund route after one change."""
    raw = parse(ROUTE, "route.yaml").model_dump(mode="json", exclude_none=True)
    change(raw)
    return check(Route.model_validate(raw), TOOLS, "route.yaml")


def put(*place: str, value: Any) -> Change:
    """Set one place of the route."""

    def change(raw: dict[str, Any]) -> None:
        for part in place[:-1]:
            raw = raw.setdefault(part, {})
        raw[place[-1]] = value

    return change


def drop(*place: str) -> Change:
    """Remove one place of the route."""

    def change(raw: dict[str, Any]) -> None:
        for part in place[:-1]:
            raw = raw[part]
        del raw[place[-1]]

    return change


def branch(condition: dict[str, Any]) -> Change:
    """Give the first branch of ``find_charge`` another condition."""
    branches = [{"go": "explain", "when": condition}, {"go": "nothing_to_refund"}]
    return put("steps", "find_charge", "next", value=branches)


STEPS = ("steps", "find_charge"), ("steps", "approve"), ("steps", "refund")
FIND, APPROVE, REFUND = STEPS
END = {"kind": "end", "outcome": "done"}
WAIT = {"kind": "wait", "sets": ["amount"], "timeout": "1h", "next": "find_charge"}


def when(field: str, go: str) -> dict[str, Any]:
    return {"go": go, "when": {"field": field, "equals": "x"}}


def small_route(first: str = "start", **steps: Any) -> Route:
    state: dict[str, Any] = {name: {"type": "string", "set_by": ["model"]} for name in "abcd"}
    state["told"] = {"type": "string", "set_by": ["user"]}
    raw = {
        "route": "r",
        "input": {"note": {"type": "string", "required": False}},
        "state": state,
        "start": first,
        "steps": {**steps, "end": END},
        "handoff": {"owner": "operator"},
    }
    return Route.model_validate(raw)
