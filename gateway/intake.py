"""What comes in: personal text is masked or its seal verified, and everything else is looked at before it passes."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from perdure.errors import InvalidInput, UnmaskedText
from perdure.masked import MaskedText
from perdure.messages import Principal
from perdure.route import FieldType, InputField, StateField
from pii.masking import Masker
from pii.seal import Seals

_MAY_HOLD_TEXT = frozenset({FieldType.IDENTIFIER, FieldType.STRING, FieldType.TEXT, FieldType.OBJECT, FieldType.LIST})
DEEPEST = 20


class Intake:
    """Makes the values of one request fit to be stored."""

    def __init__(self, masker: Masker, seals: Seals, principal: Principal, personal: Sequence[str]) -> None:
        self._masker = masker
        self._seals = seals
        self._principal = principal
        self._personal = personal

    async def fields(
        self, declared: Mapping[str, InputField] | Mapping[str, StateField], values: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The same fields without raw personal text; whether they fit the route is for the reducer to say.

        Raises ``UnmaskedText``, ``InvalidInput`` and ``DetectorUnavailable``.
        """
        return {name: await self._value(name, declared.get(name), value) for name, value in values.items()}

    async def text(self, field: str, value: str | MaskedText) -> MaskedText:
        """Personal text, masked now or before by this installation."""
        if isinstance(value, MaskedText):
            await self._seals.verify(self._principal, value, field)
            return value
        return await self._masker.mask(self._principal, value, self._personal)

    async def _value(self, name: str, field: InputField | StateField | None, value: Any) -> Any:
        if field is None:
            return value
        _refuse_unreadable(name, value)
        if field.personal:
            return await self._personal_value(name, value)
        if field.type in _MAY_HOLD_TEXT and field.choices is None:
            await self._masker.check(name, value, self._personal)
        return value

    async def _personal_value(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            return (await self.text(name, value)).model_dump(mode="json")
        if not isinstance(value, dict):
            return value
        try:
            masked = MaskedText.model_validate(value)
        except ValidationError:
            raise UnmaskedText(f"{name} is neither text nor masked text", field=name) from None
        return (await self.text(name, masked)).model_dump(mode="json")


def _refuse_unreadable(name: str, value: Any, depth: int = 0) -> None:
    if depth > DEEPEST:
        raise InvalidInput(f"{name} is nested deeper than {DEEPEST}", field=name)
    if isinstance(value, str) and ("\0" in value or not _encodable(value)):
        raise InvalidInput(f"{name} holds characters that are not text", field=name)
    children = [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        _refuse_unreadable(name, child, depth + 1)


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
