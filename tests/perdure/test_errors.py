"""The family of an error says what the caller does next."""

import pytest

from perdure import errors


@pytest.mark.parametrize("leaf", errors.leaves(errors.PerdureError)[1:])
def test_every_error_belongs_to_one_family_and_has_a_message(leaf: type[errors.PerdureError]) -> None:
    families = [errors.Refusal, errors.Conflict, errors.Unavailable, errors.Corruption]
    assert sum(issubclass(leaf, family) for family in families) == 1
    assert leaf().message.endswith(".")


def test_only_what_may_pass_later_is_tried_again() -> None:
    retried = {e.__name__ for e in errors.leaves(errors.PerdureError)} - set(errors.NOT_RETRIED) - {"PerdureError"}
    assert retried == {e.__name__ for e in errors.leaves(errors.Unavailable)}


def test_statuses_follow_the_family() -> None:
    for family, allowed in (
        (errors.Refusal, {400, 401, 403, 404, 410, 422}),
        (errors.Conflict, {409}),
        (errors.Unavailable, {503}),
        (errors.Corruption, {500}),
    ):
        assert {e.status for e in errors.leaves(family)} <= allowed
