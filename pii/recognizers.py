"""Presidio's own recognizers for e-mail, phone and card, used so that they miss nothing quietly and call nobody."""

import re
from collections.abc import Iterator, Sequence

import regex  # type: ignore[import-untyped]
from presidio_analyzer import PatternRecognizer
from presidio_analyzer.predefined_recognizers import CreditCardRecognizer, EmailRecognizer, PhoneRecognizer

from perdure.errors import DetectorUnavailable
from pii.spans import ANY_NUMBER, Span

PATTERN_SECONDS = 2.0
FEWEST_PHONE_DIGITS = 7
FEWEST_BARE_DIGITS = 11
REGIONS = (*PhoneRecognizer.DEFAULT_SUPPORTED_REGIONS, "RU", "UA", "KZ", "BY")
PROBABLE_REGIONS = ("RU", "US")
PROBABLE_DIGITS = 10

_POSSIBLE, _VALID = 0, 1
_DIGIT_RUN = re.compile(r"(?<!\d)\d(?:[ \t()._/-]{0,3}\d){10,}(?!\d)")
_BARE_NUMBER = re.compile(r"\d+")
_MACHINE_ID = re.compile(r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}", re.IGNORECASE)
_EMAIL, _CARD = EmailRecognizer(), CreditCardRecognizer()
_PHONE = PhoneRecognizer(supported_regions=REGIONS, leniency=_VALID)
_PROBABLE_PHONE = PhoneRecognizer(supported_regions=PROBABLE_REGIONS, leniency=_POSSIBLE)


def suspected(text: str) -> Iterator[Span]:
    """Everything that may be an e-mail address, a phone or a card number; free text is masked by this.

    A card number with a typo and numbers of eleven digits and more count too.
    """
    yield from _patterns(_EMAIL, text, "EMAIL")
    yield from _patterns(_CARD, text, "CARD")
    yield from _phones(_PHONE, text)
    yield from (s for s in _phones(_PROBABLE_PHONE, text) if _digits(text[s.start : s.end]) >= PROBABLE_DIGITS)
    yield from (Span(m.start(), m.end(), ANY_NUMBER) for m in _DIGIT_RUN.finditer(text))


def certain(text: str) -> Iterator[Span]:
    """What is surely an e-mail address, a phone or a card number; identifiers are refused for this.

    An order number may be any row of digits, so a bare row counts only with a card's checksum or as a whole phone
    number with its country code (or Russia's leading 8); identifiers of machines (UUID) never count.
    """
    if _MACHINE_ID.fullmatch(text.strip()):
        return
    yield from _patterns(_EMAIL, text, "EMAIL")
    yield from (s for s in _patterns(_CARD, text, "CARD") if _CARD.validate_result(text[s.start : s.end]))
    if _BARE_NUMBER.fullmatch(text.strip()):
        if any(_phones(_PHONE, _international(text.strip()))):
            yield Span(0, len(text), "PHONE")
    else:
        yield from _phones(_PHONE, text)


def listed(text: str, personal: Sequence[str]) -> Iterator[Span]:
    """Every place where a value stands that the caller lists as personal, whatever its case and spacing."""
    for value in personal:
        pattern = _pattern_of(value)
        if pattern is not None:
            yield from (Span(m.start(), m.end(), "PERSONAL") for m in pattern.finditer(text))


def _patterns(recognizer: PatternRecognizer, text: str, kind: str) -> Iterator[Span]:
    # Not ``analyze``: it skips a pattern that times out, drops a card whose checksum fails, and asks the network for
    # the list of top-level domains.
    for pattern in recognizer.patterns:  # type: ignore[has-type]
        try:
            found = regex.finditer(pattern.regex, text, flags=recognizer.global_regex_flags, timeout=PATTERN_SECONDS)
            for match in found:
                yield Span(match.start(), match.end(), kind)
        except TimeoutError:
            raise DetectorUnavailable("a detector took too long; nothing was stored") from None


def _phones(recognizer: PhoneRecognizer, text: str) -> Iterator[Span]:
    if _digits(text) >= FEWEST_PHONE_DIGITS:
        for result in recognizer.analyze(text, ["PHONE_NUMBER"]):
            yield Span(result.start, result.end, "PHONE")


def _international(digits: str) -> str:
    if len(digits) < FEWEST_BARE_DIGITS:
        return ""
    russian = len(digits) == FEWEST_BARE_DIGITS and digits.startswith("8")
    return f"+7{digits[1:]}" if russian else f"+{digits}"


def _pattern_of(value: str) -> re.Pattern[str] | None:
    digits = _BARE_NUMBER.findall(value)
    if sum(map(len, digits)) >= FEWEST_PHONE_DIGITS and not any(c.isalpha() for c in value):
        return re.compile(r"[ \t().-]{0,3}".join("".join(digits)))
    words = [re.escape(word) for word in value.split()]
    if not words:
        return None
    whole = r"[\W_]+".join(words)
    short = len(value.strip()) <= 2
    return re.compile(rf"(?<!\w){whole}(?!\w)" if short else whole, re.IGNORECASE)


def _digits(text: str) -> int:
    return sum(c.isdecimal() for c in text)
