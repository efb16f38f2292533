"""Whether a condition compares what can be compared, and which fields it reads."""

from collections.abc import Iterator, Mapping

from perdure.route import COMPARISONS, Condition, InputField, StateField
from perdure.routegraph import Facts, when_true
from perdure.values import ORDERED, SCALAR, comparable


def condition_problems(
    condition: Condition, fields: Mapping[str, InputField | StateField]
) -> Iterator[tuple[str | None, str]]:
    """Field and message of each thing wrong with the types."""
    for part in (*(condition.all or ()), *(condition.any or ())):
        yield from condition_problems(part, fields)
    if condition.field is None:
        return
    declared = fields.get(condition.field)
    if declared is None:
        yield condition.field, "is not declared in input or state"
    elif condition.is_set is None:
        yield from ((condition.field, message) for message in _comparison_problems(condition, declared))


def compared_unset(condition: Condition, certain: Facts) -> Iterator[str]:
    """Fields compared though they may be unset. In ``all``, what the conditions before established is known."""
    if condition.all is not None:
        for part in condition.all:
            yield from compared_unset(part, certain)
            certain |= when_true(part)
    for part in condition.any or ():
        yield from compared_unset(part, certain)
    if condition.field is not None and condition.is_set is None and condition.field not in certain:
        yield condition.field


def _comparison_problems(condition: Condition, declared: InputField | StateField) -> Iterator[str]:
    test = next(name for name in COMPARISONS if getattr(condition, name) is not None)
    if declared.personal or declared.type not in SCALAR:
        yield "can only be asked is_set: it is personal, an object or a list"
        return
    if test in ("at_least", "at_most") and declared.type not in ORDERED:
        yield f"is {declared.type}, which {test} cannot compare"
        return
    bound = getattr(condition, test)
    values = bound if test == "one_of" else (bound,)
    if not values:
        yield "one_of needs at least one value"
    if any(comparable(declared.type, value) is None for value in values):
        yield f"is {declared.type}, and the value of {test} is not"
    elif declared.choices is not None and any(value not in declared.choices for value in values):
        yield f"the value of {test} is not one of its choices"
