"""A second look at text: hidden characters taken out and look-alike digits and letters made plain, with a way back."""

import unicodedata
from dataclasses import dataclass


@dataclass(frozen=True)
class Folded:
    """``text`` to detect in; ``places[i]`` is where its character ``i`` stands in the original."""

    text: str
    places: tuple[int, ...]
    length: int

    def original(self, start: int, end: int) -> tuple[int, int]:
        """The stretch of the original that holds characters ``start`` to ``end``, with what was dropped after them."""
        following = self.places[end] if end < len(self.places) else self.length
        return self.places[start], max(self.places[end - 1] + 1, following)


def folded(text: str) -> Folded:
    """Compatibility forms taken apart (NFKD), combining marks and format characters dropped, other digits, dashes and
    spaces made ASCII: the same word in any Unicode form folds to the same text."""
    kept = [(plain, place) for place, character in enumerate(text) for plain in _plain(character)]
    return Folded("".join(plain for plain, _ in kept), tuple(place for _, place in kept), len(text))


def _plain(character: str) -> str:
    if character.isascii():
        return character
    if character == "ß":
        return "ss"
    return "".join(_simple(part) for part in unicodedata.normalize("NFKD", character))


def _simple(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Cf", "Mn", "Me"):
        return ""
    if category == "Nd":
        return str(unicodedata.decimal(character))
    if category == "Zs":
        return " "
    return "-" if category == "Pd" else character
