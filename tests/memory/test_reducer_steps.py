"""A run takes its steps, owes and chooses by the state alone."""

from datetime import timedelta
from typing import Any

import pytest

from memory.conditions import holds
from memory.reducer import (
    arguments_of,
    choose_next,
    close_obligation,
    enter,
    open_obligation,
    owed_now,
    record,
)
from perdure.errors import InvalidInput, StepRefused
from perdure.route import Condition, Route
from tests.memory.process_scene import CHARGE, NOW, ROUTE, begun

# ---------------------------------------------------------------- steps and obligations


def test_a_step_is_not_visited_more_often_than_allowed() -> None:
    raw = ROUTE.model_dump(mode="json", exclude_none=True)
    raw["steps"]["explain"]["max_visits"] = 2
    route, process = Route.model_validate(raw), begun()
    for _ in range(2):
        process = enter(route, process, "explain")
    with pytest.raises(StepRefused):
        enter(route, process, "explain")


def test_an_obligation_is_closed_explicitly_and_once() -> None:
    process = open_obligation(begun(), "approval", "approve.1", "approver", NOW, NOW + timedelta(hours=72))
    assert open_obligation(process, "approval", "approve.1", "other", NOW) == process
    closed = close_obligation(process, "approve.1", "handed_off", NOW)
    assert owed_now(closed) == ()
    assert closed.obligations[0].closed == "handed_off"
    with pytest.raises(InvalidInput):
        close_obligation(closed, "approve.1", "done", NOW)
    assert len(owed_now(open_obligation(closed, "approval", "approve.1", "approver", NOW))) == 1


def test_an_open_obligation_is_never_forgotten() -> None:
    process = open_obligation(begun(), "handoff", "first", "operator", NOW)
    for n in range(300):
        process = open_obligation(process, "wait", f"w{n}", "user", NOW)
        process = close_obligation(process, f"w{n}", "done", NOW)
    assert [owed.id for owed in owed_now(process)] == ["first"]
    assert len(process.obligations) < 110


def test_arguments_are_fields_and_literals_and_never_half_there() -> None:
    approve = ROUTE.steps["approve"]
    assert approve.kind == "approval"
    with pytest.raises(StepRefused):
        arguments_of(approve.intent.arguments, begun())
    process = record(ROUTE, begun(), "tool", "find_charge", CHARGE, NOW)
    assert arguments_of(approve.intent.arguments, process) == {
        "charge_id": "ch_1",
        "amount": "820.00",
        "currency": "EUR",
    }


def test_the_first_branch_that_holds_is_taken() -> None:
    step = ROUTE.steps["find_charge"]
    found = record(ROUTE, begun(), "tool", "find_charge", CHARGE, NOW)
    assert choose_next(step, found) == "explain"
    assert choose_next(step, begun()) == "nothing_to_refund"


# ---------------------------------------------------------------- conditions


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"field": "amount", "at_least": 820}, True),
        ({"field": "amount", "at_least": "820.01"}, False),
        ({"field": "amount", "at_most": "820.0"}, True),
        ({"field": "amount", "equals": "820.0"}, True),
        ({"field": "amount", "one_of": ["1", "820"]}, True),
        ({"field": "currency", "differs": "USD"}, True),
        ({"field": "currency", "equals": "eur"}, False),
        ({"field": "charged_twice", "equals": 1}, False),
        ({"field": "refund_id", "differs": "x"}, False),
        ({"field": "refund_id", "is_set": False}, True),
        ({"all": [{"field": "amount", "is_set": True}, {"field": "refund_id", "is_set": True}]}, False),
        ({"any": [{"field": "refund_id", "is_set": True}, {"field": "amount", "is_set": True}]}, True),
    ],
)
def test_a_condition_compares_by_the_type_of_the_field(condition: dict[str, Any], expected: bool) -> None:
    process = record(ROUTE, begun(), "tool", "find_charge", CHARGE, NOW)
    assert holds(Condition.model_validate(condition), process) is expected
