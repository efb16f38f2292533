"""Each thing that is wrong with a route is refused by step, field and message, and documented in the same words."""

from pathlib import Path

import pytest

from perdure.routecheck import check_file
from tests.perdure.route_scene import (
    APPROVE,
    END,
    EXAMPLE,
    FIND,
    REFUND,
    WAIT,
    Change,
    branch,
    drop,
    problems_after,
    put,
)

REFUSED: list[tuple[str, Change, str | None, str | None]] = [
    (
        "the outcome cancelled means that a run did not come to an end step; choose another",
        put("steps", "refunded", "outcome", value="cancelled"),
        "refunded",
        None,
    ),
    ("start names an unknown step", put("start", value="nowhere"), None, "start"),
    ("goes to the unknown step nowhere", put(*REFUND, "next", value="nowhere"), "refund", None),
    ("no path from start leads here", put("steps", "lost", value=END), "lost", None),
    (
        "no end step can be reached from the start",
        lambda raw: raw["steps"].update(find_charge={"kind": "wait", **WAIT, "max_visits": 3}),
        "find_charge",
        None,
    ),
    (
        "no end step can be reached from here",
        lambda raw: raw["steps"].update(refunded={**WAIT, "next": "refunded", "max_visits": 3}),
        "refunded",
        None,
    ),
    (
        "is part of a loop without a bound: give max_visits to one of its steps",
        put(*APPROVE, "rejected", value="explain"),
        "approve",
        None,
    ),
    (
        "is read here, and on this path nothing has set it",
        put("steps", "explain", "reads", value=["refund_id"]),
        "explain",
        "refund_id",
    ),
    (
        "is compared here, and on this path nothing has set it; ask is_set first",
        branch({"field": "refund_id", "equals": "r"}),
        "find_charge",
        "refund_id",
    ),
    (
        "acts on the intent of approve, and on this path it was not approved",
        put(*APPROVE, "rejected", value="refund"),
        "refund",
        None,
    ),
    ("intent names explain, which is no approval step", put(*REFUND, "intent", value="explain"), "refund", None),
    ("needs a tool or an intent", drop(*REFUND, "intent"), "refund", None),
    (
        "tool and arguments come from the approved intent; leave them out here",
        put(*REFUND, "tool", value="payments.refund"),
        "refund",
        None,
    ),
    ("has no approvers: nobody could decide", put(*APPROVE, "approvers", value=[]), "approve", None),
    (
        "warn_before must be shorter than expires_after",
        put(*APPROVE, "warn_before", value="72h"),
        "approve",
        None,
    ),
    ("tool payments.search is not in the tools file", put(*FIND, "tool", value="payments.search"), "find_charge", None),
    (
        "tool payments.refund acts on the world: it needs an approved intent",
        put(*FIND, "tool", value="payments.refund"),
        "find_charge",
        None,
    ),
    (
        "tool payments.find_charge only reads: an intent needs a tool with effect: true",
        put(*APPROVE, "intent", "tool", value="payments.find_charge"),
        "approve",
        None,
    ),
    (
        "tool payments.find_charge has no parameter customer",
        put(*FIND, "arguments", "customer", value="customer_id"),
        "find_charge",
        None,
    ),
    (
        "parameter order_id of tool payments.find_charge is missing",
        put(*FIND, "arguments", value={}),
        "find_charge",
        None,
    ),
    (
        "is text, but parameter order_id of payments.find_charge is identifier",
        put(*FIND, "arguments", "order_id", value="complaint"),
        "find_charge",
        "complaint",
    ),
    (
        "the value of parameter order_id of tool payments.find_charge must be an identifier: "
        "1 to 128 of A-Z a-z 0-9 _ . : -",
        put(*FIND, "arguments", "order_id", value={"value": 7}),
        "find_charge",
        None,
    ),
    ("the tool's result has no last.sum", put(*FIND, "sets", "amount", value="last.sum"), "find_charge", "amount"),
    (
        "is decimal, but last.id of the result is identifier",
        put(*FIND, "sets", "amount", value="last.id"),
        "find_charge",
        "amount",
    ),
    (
        "cannot be set here: set_by does not have model",
        put("steps", "explain", "sets", value=["explanation", "charge_id"]),
        "explain",
        "charge_id",
    ),
    (
        "cannot be set here: it is input, which is set once, at the start",
        put("steps", "explain", "sets", value=["explanation", "order_id"]),
        "explain",
        "order_id",
    ),
    (
        "cannot be set here: it is not declared",
        put("steps", "explain", "sets", value=["explanation", "mood"]),
        "explain",
        "mood",
    ),
    (
        "what a decision rests on needs evidence, and set_by lets a model set it",
        put("state", "amount", "set_by", value=["tool", "model"]),
        "approve",
        "amount",
    ),
    (
        "takes the reviewer's words, so it must be personal",
        put("state", "comment", "personal", value=False),
        "approve",
        "comment",
    ),
    (
        "cannot be set here: set_by does not have approval",
        put("state", "comment", "set_by", value=["user"]),
        "approve",
        "comment",
    ),
    (
        "is the amount: it must be decimal or integer, not personal",
        put(*APPROVE, "intent", "amount", value="currency"),
        "approve",
        "currency",
    ),
    ("a currency needs an amount", drop(*APPROVE, "intent", "amount"), "approve", "currency"),
    (
        "is not declared in input or state",
        put("steps", "explain", "reads", value=["mood"]),
        "explain",
        "mood",
    ),
    (
        "is declared in input and in state; a field has one home",
        put("state", "order_id", value={"type": "identifier", "set_by": ["tool"]}),
        None,
        "order_id",
    ),
    (
        "is personal, so its type must be text or string",
        put("input", "complaint", "type", value="object"),
        None,
        "complaint",
    ),
    (
        "choices are for identifier, string and text fields that are not personal",
        put("input", "complaint", "choices", value=["a"]),
        None,
        "complaint",
    ),
    (
        "choices must be at least one, each of the field's type",
        put("state", "currency", "choices", value=[]),
        None,
        "currency",
    ),
    (
        "the subject's id must be an input field",
        put("subject", "id", value="charge_id"),
        None,
        "charge_id",
    ),
    (
        "the subject's id must be a required identifier that is not personal",
        put("input", "customer_id", "required", value=False),
        None,
        "customer_id",
    ),
    (
        "compliance names an unknown field",
        put("compliance", "data_classes", "mood", value="internal"),
        None,
        "mood",
    ),
    (
        "is personal and cannot be classed public",
        put("compliance", "data_classes", "complaint", value="public"),
        None,
        "complaint",
    ),
    (
        "the last branch has a condition; the last one is for all other cases",
        put(*FIND, "next", value=[{"go": "explain", "when": {"field": "charged_twice", "equals": True}}]),
        "find_charge",
        None,
    ),
    (
        "a branch without a condition hides the ones after it",
        put(*FIND, "next", value=[{"go": "explain"}, {"go": "nothing_to_refund"}]),
        "find_charge",
        None,
    ),
    (
        "is boolean, which at_least cannot compare",
        branch({"field": "charged_twice", "at_least": 1}),
        "find_charge",
        "charged_twice",
    ),
    (
        "is decimal, and the value of at_least is not",
        branch({"field": "amount", "at_least": "NaN"}),
        "find_charge",
        "amount",
    ),
    (
        "can only be asked is_set: it is personal, an object or a list",
        branch({"field": "complaint", "equals": "x"}),
        "find_charge",
        "complaint",
    ),
    (
        "one_of needs at least one value",
        branch({"field": "currency", "one_of": []}),
        "find_charge",
        "currency",
    ),
]


def test_the_refund_route_passes() -> None:
    assert check_file(EXAMPLE / "route.yaml", EXAMPLE / "tools.yaml").route == "refund"


@pytest.mark.parametrize(("message", "change", "step", "field"), REFUSED, ids=[case[0][:50] for case in REFUSED])
def test_is_refused_with_step_and_field(message: str, change: Change, step: str | None, field: str | None) -> None:
    found = problems_after(change)
    assert (message, step, field) in [(one.message, one.step, one.field) for one in found], [str(one) for one in found]


def test_every_refusal_is_documented_in_its_own_words() -> None:
    documented = Path("docs/routes.md").read_text()
    assert [message for message, *_ in REFUSED if message not in documented] == []
