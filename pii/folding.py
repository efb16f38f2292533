"""A second look at text: hidden characters taken out and look-alike digits and letters made plain, with a way back."""

import unicodedata
from dataclasses import dataclass

_FULL_WIDTH_FIRST, _FULL_WIDTH_LAST, _FULL_WIDTH_SHIFT = 0xFF01, 0xFF5E, 0xFEE0


@dataclass(frozen=True)
class Folded:
    """``text`` to detect in; ``places[i]`` is where its character ``i`` stands in the original."""

    text: str
    places: tuple[int, ...]

    def original(self, start: int, end: int) -> tuple[int, int]:
        """The stretch of the original that holds characters ``start`` to ``end``."""
        return self.places[start], self.places[end - 1] + 1


def folded(text: str) -> Folded:
    """Format characters and combining marks dropped; full-width forms, other digits and other spaces made ASCII."""
    kept = [(plain, place) for place, character in enumerate(text) if (plain := _plain(character))]
    return Folded("".join(plain for plain, _ in kept), tuple(place for _, place in kept))


def _plain(character: str) -> str:
    if character.isascii():
        return character
    category = unicodedata.category(character)
    if category in ("Cf", "Mn", "Me"):
        return ""
    if category == "Nd":
        return str(unicodedata.decimal(character))
    if category == "Zs":
        return " "
    if category == "Pd":
        return "-"
    if _FULL_WIDTH_FIRST <= ord(character) <= _FULL_WIDTH_LAST:
        return chr(ord(character) - _FULL_WIDTH_SHIFT)
    return character
