"""The masking port: what turns what people wrote into ``MaskedText``, and the check that nothing slips past it."""

from collections.abc import Sequence
from typing import Any, Protocol

from perdure.masked import MaskedText
from perdure.messages import Principal


class Masker(Protocol):
    """Masks, or refuses: never hands back text that it did not look at whole."""

    async def mask(self, principal: Principal, text: str, personal: Sequence[str] = ()) -> MaskedText:
        """Sealed masked text for the principal's tenant. ``personal``: values to cover wherever they stand.

        Raises ``InvalidInput`` when the text is too long and ``DetectorUnavailable`` when it cannot be looked at.
        """
        ...

    async def check(self, field: str, value: Any, personal: Sequence[str] = ()) -> None:
        """Refuse a value that would travel unmasked and holds personal data.

        Raises ``UnmaskedText`` that names the field and never the value, ``InvalidInput`` and ``DetectorUnavailable``.
        """
        ...
