"""The stand-in covers e-mail, phones, cards and what the caller lists, changes nothing else, and fails closed."""

import re
import sys
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import DetectorUnavailable, InvalidInput, UnmaskedText
from perdure.messages import Principal
from pii.seal import Seals
from pii.spans import Span, harmless, replaced, united
from pii.standin import LONGEST_TEXT, StandinMasker

DEMO = Principal(tenant="demo", actor="app")


async def _secret(principal: Principal, label: str) -> bytes:
    return b"s" * 32


SEALS = Seals(_secret)


@pytest.fixture
def masker() -> Iterator[StandinMasker]:
    made = StandinMasker(SEALS)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("text", "personal", "masked"),
    [
        ("write to anna@example.com", [], "write to ⟦EMAIL_1⟧"),
        (
            "contact@example.com support@example.org admin@example.net",
            [],
            "⟦EMAIL_1⟧ ⟦EMAIL_2⟧ ⟦EMAIL_3⟧",
        ),
        ("a@b.com, then A@B.com", [], "⟦EMAIL_1⟧, then ⟦EMAIL_1⟧"),
        ("звоните +7 (916) 123-45-67!", [], "звоните ⟦PHONE_1⟧!"),
        ("8 916 123-45-67 or 202-555-0143", [], "⟦PHONE_1⟧ or ⟦PHONE_2⟧"),
        ("card 4111 1111 1111 1111.", [], "card ⟦CARD_1⟧."),
        ("one typo: 4111 1111 1111 1112", [], "one typo: ⟦CARD_1⟧"),
        ("8 916 123-45-67 8 916 123-45-67", [], "⟦NUMBER_1⟧"),
        ("I am ANNA   petrova", ["Anna Petrova"], "I am ⟦PERSONAL_1⟧"),
        ("Анна\u00a0Петрова пришла", ["анна петрова"], "⟦PERSONAL_1⟧ пришла"),
        ("к Петрову", ["Петров"], "к ⟦PERSONAL_1⟧у"),
        ("Ли если", ["Ли"], "⟦PERSONAL_1⟧ если"),
        ("passport 45 09 123456", ["4509 123456"], "passport ⟦PERSONAL_1⟧"),
        ("alice@\u200bexample.com", [], "⟦EMAIL_1⟧"),
        ("bob＠test.org", [], "⟦EMAIL_1⟧"),
        ("anna.leak﹫example.com", [], "⟦EMAIL_1⟧"),
        ("4111_1111_1111_1111", [], "⟦NUMBER_1⟧"),
        ("к нам пришел И\u0306осип", ["Йосип"], "к нам пришел ⟦PERSONAL_1⟧"),
        ("к нам пришел Йосип", ["И\u0306осип"], "к нам пришел ⟦PERSONAL_1⟧"),
        ("пишет Андреи\u0306, он", ["Андрей"], "пишет ⟦PERSONAL_1⟧, он"),
        ("STRASSE 5", ["Straße"], "⟦PERSONAL_1⟧ 5"),
        ("of Anna-Vereshchagina_", ["Anna Vereshchagina"], "of ⟦PERSONAL_1⟧_"),
        ("① Шаг, ② шаг", [], "① Шаг, ② шаг"),
        ("+7９１６1234567", [], "⟦PHONE_1⟧"),
        (
            "order 82000, 820.00 at 2026-12-01 10:00:00, v1.2.3",
            [],
            "order 82000, 820.00 at 2026-12-01 10:00:00, v1.2.3",
        ),
    ],
)
async def test_what_is_covered(masker: StandinMasker, text: str, personal: list[str], masked: str) -> None:
    assert (await masker.mask(DEMO, text, personal)).masked == masked


async def test_what_masking_made_carries_its_seal(masker: StandinMasker) -> None:
    await SEALS.verify(DEMO, await masker.mask(DEMO, "write to anna@example.com"))


async def test_a_typed_placeholder_cannot_be_taken_for_one_of_ours(masker: StandinMasker) -> None:
    assert (await masker.mask(DEMO, "⟦EMAIL_1⟧ a@b.com")).masked == "[EMAIL_1] ⟦EMAIL_1⟧"


@pytest.mark.parametrize(
    "value",
    [
        "anna@example.com",
        "+7 916 123-45-67",
        "79161234567",
        "89161234567",
        "4111111111111111",
        {"note": ["by anna@example.com"]},
        {"anna@example.com": 1},
        "a\u200b@b.com",
    ],
)
async def test_personal_data_outside_a_personal_field_is_refused_by_name_alone(
    masker: StandinMasker, value: object
) -> None:
    with pytest.raises(UnmaskedText) as refused:
        await masker.check("order_id", value)
    assert refused.value.ids == {"field": "order_id"}
    assert not re.search("anna|916|4111", str(refused.value))


@pytest.mark.parametrize(
    "value",
    ["ord_1001", "4081234567", "550e8400-e29b-41d4-a716-446655440000", "ch_20261201120000", 7, None, {"a": ["b", 1]}],
)
async def test_ordinary_identifiers_pass(masker: StandinMasker, value: object) -> None:
    await masker.check("order_id", value)


async def test_a_listed_value_in_an_identifier_is_refused(masker: StandinMasker) -> None:
    with pytest.raises(UnmaskedText):
        await masker.check("order_id", "order-of-PETROVA", ["Petrova"])


async def test_too_long_is_refused_whole(masker: StandinMasker) -> None:
    with pytest.raises(InvalidInput):
        await masker.mask(DEMO, "x" * (LONGEST_TEXT + 1))
    with pytest.raises(InvalidInput):
        await masker.mask(DEMO, "x", ["y"] * 101)


async def test_a_detector_that_fails_or_stalls_ends_in_a_refusal_that_quotes_nothing() -> None:
    def broken(text: str) -> Iterator[Span]:
        raise RuntimeError(f"cannot parse {text}")

    def stalled(text: str) -> Iterator[Span]:
        time.sleep(0.3)
        yield Span(0, 1, "EMAIL")

    for masker in (StandinMasker(SEALS, detect=broken), StandinMasker(SEALS, detect=stalled, seconds=0.05)):
        with pytest.raises(DetectorUnavailable) as failed:
            await masker.mask(DEMO, "anna@example.com")
        assert "anna" not in str(failed.value)
        masker.close()


async def test_nothing_is_asked_of_the_network(masker: StandinMasker) -> None:
    asked: list[str] = []
    sys.addaudithook(lambda event, _: asked.append(event) if event.startswith("socket.") else None)
    assert (await masker.mask(DEMO, "anna@пример.рф, bob@example.co.uk")).masked == "⟦EMAIL_1⟧, ⟦EMAIL_2⟧"
    assert asked == []


_spans = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)).map(lambda s: Span(s[0], s[0] + s[1], "X")))


@given(_spans)
def test_uniting_covers_exactly_what_was_covered(spans: list[Span]) -> None:
    whole = united(spans)
    assert {i for s in whole for i in range(s.start, s.end)} == {i for s in spans for i in range(s.start, s.end)}
    assert all(left.end <= right.start for left, right in pairwise(whole))


@settings(max_examples=50)
@given(st.text(max_size=60))
async def test_text_without_findings_comes_back_as_it_was(text: str) -> None:
    assert replaced(harmless(text), []) == text.replace("⟦", "[").replace("⟧", "]")


async def test_a_number_in_an_object_is_looked_at_too(masker: StandinMasker) -> None:
    for value in ({"phone": 380671234567}, [{"card": 4111111111111111}]):
        with pytest.raises(UnmaskedText):
            await masker.check("object", value)
    await masker.check("object", {"count": 3, "order": 1234567890, "paid": True})
