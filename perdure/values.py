"""What a value of each field type looks like, how long it may be, and how two of them compare."""

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pydantic import TypeAdapter, ValidationError

from perdure.ids import Identifier, canonical
from perdure.route import FieldType

LONGEST_STRING = 1_000
LONGEST_TEXT = 20_000
LARGEST_VALUE = 20_000
"""Bytes of the canonical form of an object or a list: a run carries its whole state with it."""
DEEPEST_VALUE = 20
LARGEST_INTEGER = 2**53 - 1

ORDERED = frozenset({FieldType.INTEGER, FieldType.DECIMAL, FieldType.DATE, FieldType.DATETIME})
SCALAR = frozenset(FieldType) - {FieldType.OBJECT, FieldType.LIST}

_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,9})?", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_IDENTIFIER: TypeAdapter[str] = TypeAdapter(Identifier)


def fault(kind: FieldType, value: Any) -> str | None:
    """Why ``value`` is not of this type, in words that do not quote it; None when it is."""
    match kind:
        case FieldType.STRING:
            return _text_fault(value, LONGEST_STRING)
        case FieldType.TEXT:
            return _text_fault(value, LONGEST_TEXT)
        case FieldType.OBJECT:
            return _json_fault(value) if isinstance(value, dict) else "must be an object"
        case FieldType.LIST:
            return _json_fault(value) if isinstance(value, list) else "must be a list"
        case _:
            return None if _IS[kind](value) else f"must be {_SHAPE[kind]}"


def comparable(kind: FieldType, value: Any) -> Any:
    """The value in a form whose ``==`` (and ``<`` for ordered types) is that of the type; None when it has none."""
    if isinstance(value, Decimal) and value.is_finite() and kind in (FieldType.DECIMAL, FieldType.INTEGER):
        return value
    if kind is FieldType.DECIMAL and isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if fault(kind, value) is not None:
        return None
    match kind:
        case FieldType.DECIMAL:
            return Decimal(value)
        case FieldType.DATE:
            return _as_date(value)
        case FieldType.DATETIME:
            return _as_moment(value)
        case _:
            return value


def _is_identifier(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        _IDENTIFIER.validate_python(value)
    except ValidationError:
        return False
    return not value.endswith("\n")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_INTEGER


def _is_decimal(value: Any) -> bool:
    return isinstance(value, str) and _DECIMAL.fullmatch(value) is not None


def _text_fault(value: Any, longest: int) -> str | None:
    if not isinstance(value, str):
        return "must be text"
    if len(value) > longest:
        return f"is longer than {longest} characters"
    return None if _storable(value) else "holds characters that cannot be stored"


def _storable(value: str) -> bool:
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)


def _as_date(value: Any) -> date | None:
    if not isinstance(value, str) or _DATE.fullmatch(value) is None:
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:
        return None


def _as_moment(value: Any) -> datetime | None:
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _json_fault(value: Any) -> str | None:
    if _deeper_than(value, DEEPEST_VALUE):
        return f"is nested deeper than {DEEPEST_VALUE}"
    try:
        size = len(canonical(value))
    except ValueError:
        return "holds a float; write numbers with a fraction as strings"
    except TypeError:
        return "holds something that is not JSON"
    return None if size <= LARGEST_VALUE else f"is larger than {LARGEST_VALUE} bytes"


def _deeper_than(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list | tuple):
        return False
    if depth == 0:
        return True
    children = value.values() if isinstance(value, dict) else value
    return any(_deeper_than(child, depth - 1) for child in children)


_IS: dict[FieldType, Callable[[Any], bool]] = {
    FieldType.IDENTIFIER: _is_identifier,
    FieldType.INTEGER: _is_integer,
    FieldType.DECIMAL: _is_decimal,
    FieldType.BOOLEAN: lambda value: isinstance(value, bool),
    FieldType.DATE: lambda value: _as_date(value) is not None,
    FieldType.DATETIME: lambda value: _as_moment(value) is not None,
}
_SHAPE = {
    FieldType.IDENTIFIER: "an identifier: 1 to 128 of A-Z a-z 0-9 _ . : -",
    FieldType.INTEGER: "an integer of at most 2^53 - 1",
    FieldType.DECIMAL: 'a decimal in a string, such as "820.00"',
    FieldType.BOOLEAN: "true or false",
    FieldType.DATE: "a date such as 2026-01-31",
    FieldType.DATETIME: "a time with an offset, such as 2026-01-31T09:00:00Z",
}
