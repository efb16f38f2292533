"""Replay gives the same memory; hints and the order of unrelated messages change nothing."""

from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from memory.process import Closed, Entered, Happening, Owed, Process, Received, Recorded, Summarised
from memory.reducer import (
    apply,
    begin,
    enter,
    permitted_actions,
    receive,
    record,
)
from perdure.errors import PerdureError
from tests.memory.process_scene import CHARGE, INPUT, NOW, ROUTE, begun, message, values

# ---------------------------------------------------------------- replay


def _happenings() -> st.SearchStrategy[list[Happening]]:
    when = st.integers(0, 10_000).map(lambda seconds: NOW + timedelta(seconds=seconds))
    amounts = st.sampled_from(["1.00", "82.00", "not a number"]).map(lambda amount: {"amount": amount})
    ids = st.sampled_from(["m1", "m2", "m3"])
    kinds = st.sampled_from(["message", "evidence", "hold", "resume", "cancel"])
    received = st.builds(
        lambda name, fields, kind, at: Received(message=message(name, fields, kind), at=at), ids, amounts, kinds, when
    )
    recorded = st.builds(Recorded, source=st.just("tool"), step=st.just("find_charge"), fields=amounts, at=when)
    owed = st.builds(Owed, kind=st.just("wait"), id=ids, owner=st.just("user"), at=when)
    closed = st.builds(Closed, id=ids, how=st.just("done"), at=when)
    entered = st.builds(Entered, step=st.sampled_from(["find_charge", "approve", "nowhere"]))
    return st.lists(st.one_of(received, recorded, owed, closed, entered), max_size=25)


def _replayed(happenings: list[Happening], *, summarise: bool = False, carry: bool = False) -> Process:
    process = begun()
    for n, happening in enumerate(happenings):
        try:
            process = apply(ROUTE, process, happening)
        except PerdureError:
            continue
        if summarise:
            process = apply(ROUTE, process, Summarised(summary=f"so far {n}"))
        if carry:
            process = Process.model_validate_json(process.model_dump_json())
    return process


@given(_happenings())
@settings(max_examples=150, deadline=None)
def test_the_same_events_give_the_same_memory(happenings: list[Happening]) -> None:
    """Also when it was written out and read back at every event."""
    assert _replayed(happenings) == _replayed(happenings) == _replayed(happenings, carry=True)


@given(_happenings())
@settings(max_examples=100, deadline=None)
def test_summaries_change_neither_state_nor_what_is_permitted(happenings: list[Happening]) -> None:
    plain, summarised = _replayed(happenings), _replayed(happenings, summarise=True)
    assert plain.state == summarised.state
    assert plain.obligations == summarised.obligations
    assert permitted_actions(ROUTE, plain) == permitted_actions(ROUTE, summarised)


@given(
    st.permutations([("m1", {"amount": "1.00"}, "message"), ("m2", {"charge_id": "c"}, "evidence"), ("m3", {}, "hold")])
)
def test_the_order_of_unrelated_messages_does_not_matter(order: list[tuple[str, dict[str, Any], str]]) -> None:
    process = begun()
    for name, fields, kind in order:
        process = receive(ROUTE, process, message(name, fields, kind), NOW)
    assert values(process) == INPUT | {"amount": "1.00", "charge_id": "c"}
    assert (process.state["amount"].event_id, process.state["charge_id"].event_id) == ("message:m1", "message:m2")
    assert process.held


def test_what_is_permitted_follows_the_step_and_the_hold() -> None:
    at_approval = enter(ROUTE, begun(), "approve")
    assert "decide:approve" in permitted_actions(ROUTE, at_approval)
    assert "effect:refund" in permitted_actions(ROUTE, enter(ROUTE, at_approval, "refund"))
    held = receive(ROUTE, at_approval, message("m1", {}, "hold"), NOW)
    assert "decide:approve" not in permitted_actions(ROUTE, held)
    assert permitted_actions(ROUTE, receive(ROUTE, held, message("m2", {}, "cancel"), NOW)) == ()


def test_one_run_has_nothing_of_another() -> None:
    first = record(ROUTE, begun(), "tool", "find_charge", CHARGE, NOW)
    second = begin(ROUTE, "r2", INPUT, NOW)
    assert set(values(second)) == set(INPUT)
    assert first.run_id != second.run_id
