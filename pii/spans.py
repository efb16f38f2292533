"""Stretches of text to cover, how they unite, and how they are replaced."""

from collections.abc import Iterable
from dataclasses import dataclass

OPENING, CLOSING = "⟦", "⟧"
ANY_NUMBER = "NUMBER"
"""What has no better name: it gives way to a kind that is known."""
_HARMLESS = str.maketrans({OPENING: "[", CLOSING: "]"})


@dataclass(frozen=True)
class Span:
    """Characters ``start`` to ``end`` (not included) hold something of ``kind``."""

    start: int
    end: int
    kind: str


def harmless(text: str) -> str:
    """The text with placeholder brackets that somebody typed made plain, so that only masking makes placeholders."""
    return text.translate(_HARMLESS)


def united(spans: Iterable[Span]) -> list[Span]:
    """Spans in order without overlap that cover every character that was covered; the longest gives its kind."""
    result: list[Span] = []
    longest = 0
    for span in sorted(spans, key=lambda s: (s.start, -s.end, s.kind == ANY_NUMBER, s.kind)):
        length = span.end - span.start
        if not result or span.start >= result[-1].end:
            result.append(span)
            longest = length
            continue
        last = result[-1]
        kind = span.kind if length > longest else last.kind
        longest = max(longest, length)
        result[-1] = Span(last.start, max(last.end, span.end), kind)
    return result


def replaced(text: str, spans: list[Span]) -> str:
    """The text with a placeholder for each span; equal values (case and spacing aside) get the same one."""
    numbers: dict[tuple[str, str], int] = {}
    counts: dict[str, int] = {}
    parts: list[str] = []
    at = 0
    for span in spans:
        same = (span.kind, _comparable(text[span.start : span.end]))
        if same not in numbers:
            counts[span.kind] = numbers[same] = counts.get(span.kind, 0) + 1
        parts += [text[at : span.start], f"{OPENING}{span.kind}_{numbers[same]}{CLOSING}"]
        at = span.end
    return "".join([*parts, text[at:]])


def _comparable(value: str) -> str:
    return " ".join(value.casefold().split())
