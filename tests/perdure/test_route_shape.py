"""The shape of a route survives the way through JSON, and durations say their unit."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from perdure.route import Condition, Duration, Route
from perdure.routefile import parse

DURATION: TypeAdapter[timedelta] = TypeAdapter(Duration)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("10s", timedelta(seconds=10)),
        ("5m", timedelta(minutes=5)),
        ("72h", timedelta(hours=72)),
        ("30d", timedelta(days=30)),
        ("PT72H", timedelta(hours=72)),
        ("P30D", timedelta(days=30)),
    ],
)
def test_a_duration_is_written_with_its_unit(written: str, meant: timedelta) -> None:
    assert DURATION.validate_python(written) == meant
    assert DURATION.validate_json(DURATION.dump_json(meant)) == meant


@pytest.mark.parametrize("written", ["", "10", 10, 1.5, True, "0s", "-5m", "5 m", "1w", "99999999d", "P200Y", "NaN"])
def test_a_duration_without_a_sense_is_refused(written: Any) -> None:
    with pytest.raises(ValidationError):
        DURATION.validate_python(written)


def test_a_route_that_travelled_is_the_same_route() -> None:
    """Keys that were never written arrive as null and are no second test of a condition."""
    route = parse(Path("examples/refund/route.yaml").read_text(), "route.yaml")
    assert Route.model_validate_json(route.model_dump_json()) == route


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"field": "a"},
        {"equals": 1},
        {"field": "a", "equals": None},
        {"field": "a", "equals": 1, "differs": 2},
        {"all": []},
        {"all": [{"field": "a", "is_set": True}], "any": [{"field": "a", "is_set": True}]},
        {"all": [{"field": "a", "is_set": True}], "field": "a", "equals": 1},
    ],
)
def test_a_condition_asks_exactly_one_thing(raw: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Condition.model_validate(raw)
