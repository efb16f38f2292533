"""Whatever is written in a route file, reading it ends in a route or in a refusal with a line."""

import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import RouteInvalid
from perdure.routecheck import check_file, checked
from perdure.routefile import parse, parse_tools

ROUTE = Path("examples/refund/route.yaml").read_text()
TOOLS = Path("examples/refund/tools.yaml").read_text()

Refused = tuple[str, int | None]


def refusals(text: str) -> list[Refused]:
    with pytest.raises(RouteInvalid) as refused:
        parse(text, "route.yaml")
    assert all(problem["file"] == "route.yaml" for problem in refused.value.problems)
    return [(str(one["message"]), one["line"]) for one in refused.value.problems]  # type: ignore[misc]


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("prompt:", "promt:", "unknown key 'promt'"),
        ("expires_after: 72h", "expires_after: 72h\n    on_expiry: x", "unknown key 'on_expiry'"),
        ("start: find_charge", "start: find_charge\nstart: explain", "key 'start' stands twice"),
        ("start: find_charge", "start: &here find_charge", "anchors and aliases are not allowed"),
        ("start: find_charge", "start: *here", "anchors and aliases are not allowed"),
        ("start: find_charge", "start: !!python/object/apply:os.system [id]", "tags are not allowed"),
        ("start: find_charge", "start: !!str find_charge", "tags are not allowed"),
        ("uses: 1", "uses: 1.5", 'a number must be an integer; put any other in quotes, such as "820.00"'),
        ("equals: true}", "equals: .nan}", 'a number must be an integer; put any other in quotes, such as "820.00"'),
        ("equals: true}", "at_least: 1e999}", 'a number must be an integer; put any other in quotes, such as "820.00"'),
        ("expires_after: 72h", "expires_after: 72", 'a duration needs a unit, such as "10s", "5m", "72h" or "30d"'),
        ("start: find_charge", "start: [find_charge]", "Input should be a valid string"),
    ],
)
def test_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    text = ROUTE.replace(old, new, 1)
    assert message in [found for found, _ in refusals(text)]
    assert all(line is not None for _, line in refusals(text))


def test_an_unknown_key_is_named_with_the_line_it_stands_on() -> None:
    text = ROUTE.replace("    prompt:", "    promt:")
    assert ("unknown key 'promt'", line_of(text, "    promt:")) in refusals(text)


def test_a_condition_has_exactly_one_test() -> None:
    assert "exactly one of" in refusals(ROUTE.replace("equals: true", "equals: true, is_set: true"))[0][0]
    assert "exactly one of" in refusals(ROUTE.replace(", equals: true", ""))[0][0]
    assert "stands alone" in refusals(ROUTE.replace("equals: true", "any: [{field: amount, is_set: true}]"))[0][0]


def test_two_megabytes_are_refused_before_they_are_parsed(tmp_path: Path) -> None:
    began = time.perf_counter()
    assert refusals("a: b\n" * 400_000) == [("the file is larger than 256 KB", None)]
    large = tmp_path / "route.yaml"
    large.write_text("# padding\n" * 200_000)
    with pytest.raises(RouteInvalid, match="larger than 256 KB"):
        check_file(large)
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize("text", ["[" * 100_000, "a:\n" + "- " * 50_000 + "x", "{a: " * 60_000])
def test_depth_is_refused_without_recursion(text: str) -> None:
    assert "nested deeper than" in refusals(text)[0][0] or "not YAML" in refusals(text)[0][0]


def test_an_alias_bomb_is_refused_at_its_first_anchor() -> None:
    pairs = zip("abcdefgh", "bcdefghi", strict=True)
    bomb = "a: &a [x, x]\n" + "".join(f"{new}: &{new} [*{old}, *{old}]\n" for old, new in pairs)
    assert refusals(bomb) == [("anchors and aliases are not allowed", 1)]


@pytest.mark.parametrize(
    "text", ["", "# nothing", "- a", "word", "a: b\n---\na: c", "? [a]\n: b", "\0", "a: 'b", "\ud800"]
)
def test_what_is_no_mapping_is_refused(text: str) -> None:
    assert refusals(text)


def test_words_that_other_readers_turn_into_something_else_stay_words() -> None:
    text = ROUTE.replace("action: refund", "action: no").replace(
        "future_uses: [one refund of this charge]", "future_uses: [2026-01-01, yes]"
    )
    route = parse(text, "route.yaml")
    approve = route.steps["approve"]
    assert approve.kind == "approval"
    assert approve.intent.action == "no"
    assert approve.future_uses == ("2026-01-01", "yes")


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RouteInvalid, match="cannot be read"):
        check_file(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RouteInvalid, match="not UTF-8"):
        check_file(tmp_path / "bytes.yaml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{payments}/orders", "http://elsewhere/orders", "must begin with one of servers in braces"),
        ("{payments}/orders", "{other}/orders", "must begin with one of servers in braces"),
        ("{order_id}", "{order}", "holds {order}, which is no parameter"),
        ("by-key/{key}", "by-key", "the url of lookup must hold {key}"),
        ("    effect: true\n", "", "lookup is for an effect"),
    ],
)
def test_a_tool_whose_address_cannot_work_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(RouteInvalid) as refused:
        parse_tools(TOOLS.replace(old, new, 1), "tools.yaml")
    assert any(message in str(problem["message"]) and problem["line"] for problem in refused.value.problems)


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_text_ends_in_a_refusal(text: str) -> None:
    with pytest.raises(RouteInvalid):
        checked(text, None, "route.yaml")


@given(
    st.integers(0, len(ROUTE) - 1),
    st.integers(0, 40),
    st.sampled_from(["", "{", "[", ": ", "- ", "\n", "*a", "'", "1.5"]),
)
@settings(max_examples=300, deadline=None)
def test_a_damaged_route_is_a_route_or_a_refusal(at: int, gone: int, put: str) -> None:
    with suppress(RouteInvalid):
        checked(ROUTE[:at] + put + ROUTE[at + gone :], None, "route.yaml")
