"""Only the reducer changes the typed state of a run, and only as the route allows."""

import math
from typing import Any

import pytest

from memory.reducer import (
    KEPT_SEEN,
    admit,
    begin,
    receive,
    record,
    validate_input,
)
from perdure.errors import InvalidInput, NotAuthorized, PerdureError, UnmaskedText
from perdure.route import Route, Setter
from tests.memory.process_scene import CHARGE, INPUT, MASKED, NOW, ROUTE, begun, message, values

# ---------------------------------------------------------------- input


def test_input_is_kept_as_given() -> None:
    assert validate_input(ROUTE, INPUT) == INPUT


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        ({key: INPUT[key] for key in ("customer_id", "complaint")}, InvalidInput),
        (INPUT | {"mood": "bad"}, InvalidInput),
        (INPUT | {"order_id": 7}, InvalidInput),
        (INPUT | {"order_id": None}, InvalidInput),
        (INPUT | {"order_id": "o1\n"}, InvalidInput),
        (INPUT | {"order_id": "o" * 129}, InvalidInput),
        (INPUT | {"complaint": "raw words of Anna"}, UnmaskedText),
        (INPUT | {"complaint": {"masked": "x"}}, UnmaskedText),
        (INPUT | {"complaint": MASKED | {"masked": "x" * 20_001}}, InvalidInput),
    ],
)
def test_input_that_does_not_fit_is_refused_without_quoting_it(raw: dict[str, Any], error: type[PerdureError]) -> None:
    with pytest.raises(error) as refused:
        validate_input(ROUTE, raw)
    assert "Anna" not in f"{refused.value} {refused.value.ids}"
    assert refused.value.__cause__ is None


# ---------------------------------------------------------------- who may set what


@pytest.mark.parametrize("source", ["user", "model", "approval", "system", "input"])
def test_a_field_is_set_only_by_those_in_set_by(source: Any) -> None:
    with pytest.raises(NotAuthorized):
        admit(ROUTE, source, {"charge_id": "ch_1"})
    assert admit(ROUTE, Setter.TOOL, {"charge_id": "ch_1"}) == {"charge_id": "ch_1"}


def test_a_model_explains_and_never_sets_what_needs_evidence() -> None:
    """All or nothing: the explanation is not kept when the amount beside it is refused."""
    with pytest.raises(NotAuthorized):
        record(ROUTE, begun(), "model", "explain", {"explanation": "because", "amount": "1.00"}, NOW)
    process = record(ROUTE, begun(), "model", "explain", {"explanation": "because"}, NOW)
    assert process.state["explanation"].set_by == "model"


def test_input_is_set_once() -> None:
    with pytest.raises(NotAuthorized):
        admit(ROUTE, "user", {"order_id": "o2"})


@pytest.mark.parametrize(
    "amount", [820.0, math.nan, math.inf, 820, "820.0.0", "NaN", "1e3", "٨٢٠", "", " 1", "01", True]
)
def test_an_amount_is_a_decimal_in_a_string(amount: Any) -> None:
    with pytest.raises(InvalidInput):
        admit(ROUTE, "tool", {"amount": amount})


def test_an_unknown_field_is_refused_without_being_quoted() -> None:
    with pytest.raises(InvalidInput) as refused:
        admit(ROUTE, "tool", {"anna@example.org": 1})
    assert "anna" not in f"{refused.value} {refused.value.ids}"


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("integer", 7, [True, "7", 7.0, 2**53]),
        ("boolean", False, [0, "false", None]),
        ("date", "2026-01-31", ["2026-02-30", "20260131", 20260131]),
        ("datetime", "2026-01-31T09:00:00Z", ["2026-01-31T09:00:00", "2026-01-31", "soon"]),
        ("object", {"a": [1, "x", None]}, [{"a": 1.5}, {"a": math.nan}, [], {"a": "x" * 20_001}]),
        ("list", [1, {"a": "b"}], [{}, [0.1], "ab"]),
        ("string", "x", ["x" * 1_001, "\0", "\ud800", 1]),
    ],
)
def test_each_type_takes_its_own_values_alone(kind: str, good: Any, bad: list[Any]) -> None:
    route = _typed(kind)
    assert admit(route, "tool", {"value": good}) == {"value": good}
    for value in bad:
        with pytest.raises(InvalidInput):
            admit(route, "tool", {"value": value})


def test_a_deep_value_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidInput, match="nested deeper"):
        admit(_typed("list"), "tool", {"value": deep})


def test_a_choice_is_one_of_the_choices() -> None:
    route = _typed("string", choices=["EUR", "USD"])
    assert admit(route, "tool", {"value": "EUR"})
    with pytest.raises(InvalidInput, match="choices"):
        admit(route, "tool", {"value": "RUB"})


# ---------------------------------------------------------------- messages


def test_a_message_counts_once() -> None:
    once = receive(ROUTE, begun(), message("m1", {"amount": "800.00"}), NOW)
    assert receive(ROUTE, once, message("m1", {"amount": "1.00"}), NOW) == once
    assert values(once)["amount"] == "800.00"
    assert once.state["amount"].event_id == "message:m1"


def test_a_message_that_is_not_allowed_changes_nothing_and_stays_in_sight() -> None:
    before = begun()
    after = receive(ROUTE, before, message("m1", {"amount": "800.00", "charge_id": "x"}), NOW)
    assert after.state == before.state
    assert after.refused_messages == ("m1: NotAuthorized",)
    assert receive(ROUTE, after, message("m1", {"amount": "800.00"}), NOW) == after


def test_hold_resume_and_cancel_carry_no_fields() -> None:
    held = receive(ROUTE, begun(), message("m1", {}, "hold"), NOW)
    assert held.held
    assert not receive(ROUTE, held, message("m2", {}, "resume"), NOW).held
    assert receive(ROUTE, held, message("m3", {}, "cancel"), NOW).cancel_requested
    assert receive(ROUTE, held, message("m4", {"amount": "1.00"}, "resume"), NOW).held


def test_a_message_from_outside_cannot_take_the_place_of_an_event() -> None:
    process = receive(ROUTE, begun(), message("ev_1", {"amount": "800.00"}), NOW)
    assert len({event.id for event in process.events}) == len(process.events)


def test_memory_stays_small_and_keeps_what_the_state_rests_on() -> None:
    process = record(ROUTE, begun(), "tool", "find_charge", CHARGE, NOW)
    for n in range(1_200):
        process = receive(ROUTE, process, message(f"msg_{n:032}", {"amount": f"{n}.00"}), NOW)
    assert process.count == 1_202
    assert len(process.seen) == KEPT_SEEN
    assert {held.event_id for held in process.state.values()} <= {event.id for event in process.events}
    assert len(process.model_dump_json()) < 80_000


def _typed(kind: str, **more: Any) -> Route:
    raw = {
        "route": "r",
        "state": {"value": {"type": kind, "set_by": ["tool"], **more}},
        "start": "end",
        "steps": {"end": {"kind": "end", "outcome": "done"}},
        "handoff": {"owner": "operator"},
    }
    return Route.model_validate(raw)


def test_a_runs_memory_has_room_for_a_megabyte_and_no_more() -> None:
    """A run that Temporal could not carry on would hang; it refuses the value instead, and keeps what it has."""
    fields = {f"note_{n}": {"type": "text", "set_by": ["user"]} for n in range(60)}
    route = Route.model_validate(ROUTE.model_dump(mode="json") | {"state": fields})
    process = begin(route, "r1", INPUT, NOW)
    for name in list(fields)[:49]:
        process = receive(route, process, message(f"m_{name}", {name: "x" * 20_000}), NOW)
    full = receive(route, process, message("m_more", {"note_55": "x" * 20_000, "note_56": "x" * 20_000}), NOW)
    assert "note_55" not in full.state
    assert full.refused_messages == ("m_more: InvalidInput",)
