"""Ids and digests depend on meaning alone: not on key order, never on chance."""

import pytest

from perdure.ids import derived, digest, effect_key


def test_the_order_of_keys_does_not_matter() -> None:
    assert digest({"a": 1, "b": {"c": [1, 2], "d": None}}) == digest({"b": {"d": None, "c": [1, 2]}, "a": 1})


def test_another_value_or_type_is_another_digest() -> None:
    assert len({digest(v) for v in ({"a": 1}, {"a": "1"}, {"a": True}, {"a": None}, {}, {"b": 1})}) == 6


@pytest.mark.parametrize("value", [1.5, {"a": [1, {"b": float("nan")}]}, [float("inf")]])
def test_floats_have_no_digest(value: object) -> None:
    with pytest.raises(ValueError, match="float"):
        digest(value)


def test_parts_do_not_run_into_each_other() -> None:
    assert derived("ab", "c") != derived("a", "bc")


def test_an_effect_key_changes_with_each_of_its_parts() -> None:
    base = ("acme", "refund", "refund", "order:o1", "int_1@1")
    keys = {effect_key(*base)} | {effect_key(*(p + "x" if i == n else p for i, p in enumerate(base))) for n in range(5)}
    assert len(keys) == 6
    assert effect_key(*base) == effect_key(*base)
