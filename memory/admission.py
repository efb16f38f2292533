"""Whether one value fits the field it is meant for."""

from typing import Any

from pydantic import ValidationError

from perdure.errors import InvalidInput, UnmaskedText
from perdure.masked import MaskedText
from perdure.route import InputField, StateField
from perdure.values import LONGEST_TEXT, fault


def kept(name: str, field: InputField | StateField, value: Any) -> Any:
    """The value as it is kept. Raises ``InvalidInput`` and ``UnmaskedText``."""
    if field.personal:
        return _masked(name, value)
    if isinstance(value, tuple):
        value = list(value)
    wrong = fault(field.type, value)
    if wrong is not None:
        raise InvalidInput(f"{name} {wrong}", field=name)
    if field.choices is not None and value not in field.choices:
        raise InvalidInput(f"{name} must be one of the route's choices", field=name, choices=list(field.choices))
    return value


def _masked(name: str, value: Any) -> dict[str, Any]:
    """Shape alone; whether the seal fits is for those to say who hold its key."""
    try:
        masked = MaskedText.model_validate(value)
    except ValidationError:
        raise UnmaskedText(f"{name} is personal and must be masked text", field=name) from None
    if len(masked.masked) > LONGEST_TEXT:
        raise InvalidInput(f"{name} is longer than {LONGEST_TEXT} characters", field=name)
    return masked.model_dump(mode="json")
