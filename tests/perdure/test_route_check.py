"""What a step reads, every path to it has written; the refusal shows a path that has not."""

import time
from typing import Any

import pytest

from perdure.errors import RouteInvalid
from perdure.routecheck import check, checked
from tests.perdure.route_scene import (
    APPROVE,
    END,
    FIND,
    REFUND,
    ROUTE,
    TOOLS,
    problems_after,
    put,
    small_route,
    when,
)


def test_a_read_before_write_shows_a_path_on_which_the_field_is_unset() -> None:
    text = ROUTE.replace("reads: [complaint, charge_id", "reads: [refund_id, complaint, charge_id")
    with pytest.raises(RouteInvalid) as refused:
        checked(text, TOOLS, "route.yaml")
    (problem,) = refused.value.problems
    assert problem["path"] == ["find_charge", "explain"]
    assert (problem["file"], problem["step"], problem["field"]) == ("route.yaml", "explain", "refund_id")
    assert problem["line"] == text[: text.index("  explain:\n")].count("\n") + 1


def test_the_path_is_the_one_branch_of_two_that_does_not_write() -> None:
    route = small_route(
        start={"kind": "model", "prompt": "p", "sets": ["a"], "next": [when("a", "left"), {"go": "right"}]},
        left={"kind": "model", "prompt": "p", "sets": ["b"], "next": "join"},
        right={"kind": "model", "prompt": "p", "sets": ["c"], "next": "join"},
        join={"kind": "model", "prompt": "p", "reads": ["b"], "sets": ["d"], "next": "end"},
    )
    (problem,) = check(route, TOOLS, "r")
    assert (problem.step, problem.field, problem.path) == ("join", "b", ("start", "right", "join"))


def test_all_problems_are_told_at_once_and_in_order() -> None:
    def change(raw: dict[str, Any]) -> None:
        put(*APPROVE, "approvers", value=[])(raw)
        put(*FIND, "tool", value="nothing")(raw)
        put("steps", "lost", value=END)(raw)

    found = problems_after(change)
    assert {one.step for one in found} >= {"approve", "find_charge", "lost"}
    assert found == problems_after(change)


def test_an_optional_input_may_be_read_only_where_it_was_asked_for() -> None:
    """The knowledge holds along the branch that asked, and ends where paths meet."""
    asked = [{"go": "use", "when": {"field": "note", "is_set": True}}, {"go": "end"}]
    steps: dict[str, Any] = {
        "start": {"kind": "model", "prompt": "p", "sets": ["a"], "next": asked},
        "use": {"kind": "model", "prompt": "p", "reads": ["note"], "sets": ["b"], "next": "end"},
    }
    assert check(small_route(**steps), TOOLS, "r") == []
    steps["start"]["next"] = "use"
    assert [one.field for one in check(small_route(**steps), TOOLS, "r")] == ["note"]


def test_the_other_branch_of_is_set_false_knows_that_it_is_set() -> None:
    asked = [{"go": "end", "when": {"field": "note", "is_set": False}}, {"go": "use"}]
    route = small_route(
        start={"kind": "model", "prompt": "p", "sets": ["a"], "next": asked},
        use={"kind": "model", "prompt": "p", "reads": ["note"], "sets": ["b"], "next": "end"},
    )
    assert check(route, TOOLS, "r") == []


def test_a_wait_that_ran_out_has_set_nothing() -> None:
    route = small_route(
        start={"kind": "wait", "sets": ["told"], "timeout": "1h", "on_timeout": "use", "next": "use"},
        use={"kind": "model", "prompt": "p", "reads": ["told"], "sets": ["b"], "next": "end"},
    )
    assert [(one.field, one.path) for one in check(route, TOOLS, "r")] == [("told", ("start", "use"))]


def test_an_approval_in_a_loop_does_not_open_its_rejected_branch() -> None:
    """Approved in an earlier round, rejected in this one: the effect is out of reach."""

    def change(raw: dict[str, Any]) -> None:
        put(*REFUND, "next", value="approve")(raw)
        put(*APPROVE, "max_visits", value=3)(raw)
        put("steps", "again", value={**raw["steps"]["refund"], "next": "refused"})(raw)
        put(*APPROVE, "rejected", value="again")(raw)

    refused = [one for one in problems_after(change) if one.step == "again"]
    assert [one.path for one in refused] == [("find_charge", "approve", "again")]


def test_a_loop_is_allowed_once_one_of_its_steps_is_bounded() -> None:
    def change(raw: dict[str, Any]) -> None:
        put(*APPROVE, "rejected", value="find_charge")(raw)
        put("steps", "find_charge", "max_visits", value=3)(raw)
        del raw["steps"]["refused"]

    assert problems_after(change) == []


def test_two_hundred_steps_of_diamonds_are_checked_in_less_than_a_second() -> None:
    """2^66 paths: they cannot be listed."""
    steps: dict[str, Any] = {}
    for n in range(66):
        after = f"s{n + 1}" if n < 65 else "last"
        steps |= {
            f"s{n}": {"kind": "model", "prompt": "p", "sets": ["a"], "next": [when("a", f"l{n}"), {"go": f"r{n}"}]},
            f"l{n}": {"kind": "model", "prompt": "p", "sets": ["b"], "next": after},
            f"r{n}": {"kind": "model", "prompt": "p", "sets": ["c"], "next": after},
        }
    steps["last"] = {"kind": "model", "prompt": "p", "reads": ["b", "c"], "sets": ["d"], "next": "end"}
    route = small_route(first="s0", **steps)
    text = route.model_dump_json(exclude_none=True)
    began = time.perf_counter()
    with pytest.raises(RouteInvalid) as refused:
        checked(text, TOOLS, "r")
    assert time.perf_counter() - began < 1
    assert [problem["field"] for problem in refused.value.problems] == ["b", "c"]
    assert len(steps) + 1 == 200
