"""Conditions of a route on the typed state of a run."""

from memory.process import Process, StateValue
from perdure.route import Condition
from perdure.values import comparable


def holds(condition: Condition, process: Process) -> bool:
    """Whether the condition is true of the state. Comparing an unset field is false, whatever the comparison."""
    if condition.all is not None:
        return all(holds(each, process) for each in condition.all)
    if condition.any is not None:
        return any(holds(each, process) for each in condition.any)
    found = process.state.get(condition.field or "")
    if condition.is_set is not None:
        return (found is not None) is condition.is_set
    return found is not None and _compares(condition, found)


def _compares(condition: Condition, found: StateValue) -> bool:
    if isinstance(found.value, dict | list):
        return False
    value = comparable(found.type, found.value)
    if condition.at_least is not None:
        bound = comparable(found.type, condition.at_least)
        return bound is not None and bool(value >= bound)
    if condition.at_most is not None:
        bound = comparable(found.type, condition.at_most)
        return bound is not None and bool(value <= bound)
    if condition.one_of is not None:
        return any(value == comparable(found.type, each) for each in condition.one_of)
    if condition.differs is not None:
        return bool(value != comparable(found.type, condition.differs))
    return bool(value == comparable(found.type, condition.equals))
