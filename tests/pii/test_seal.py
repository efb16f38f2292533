"""A seal fits one text of one tenant, and only masking can make it."""

import pytest

from perdure.errors import UnmaskedText
from perdure.masked import MaskedText
from perdure.messages import Principal
from pii.seal import SEAL_LABEL, Seals

DEMO = Principal(tenant="demo", actor="app")
OTHER = Principal(tenant="other", actor="app")


async def _secret(principal: Principal, label: str) -> bytes:
    assert label == SEAL_LABEL
    return principal.tenant.encode().ljust(32, b".")


@pytest.fixture
def seals() -> Seals:
    return Seals(_secret)


async def test_what_was_sealed_verifies(seals: Seals) -> None:
    await seals.verify(DEMO, await seals.seal(DEMO, "call ⟦PHONE_1⟧", "standin-1"))


async def test_another_tenant_another_text_another_detector_do_not(seals: Seals) -> None:
    text = await seals.seal(DEMO, "call ⟦PHONE_1⟧", "standin-1")
    with pytest.raises(UnmaskedText):
        await seals.verify(OTHER, text)
    for change in ({"masked": "call +7 916 123-45-67"}, {"detector": "none"}, {"seal": "0" * 32}):
        with pytest.raises(UnmaskedText):
            await seals.verify(DEMO, text.model_copy(update=change))


async def test_text_and_detector_cannot_trade_characters(seals: Seals) -> None:
    text = await seals.seal(DEMO, "1 text", "standin-")
    with pytest.raises(UnmaskedText):
        await seals.verify(DEMO, MaskedText(masked=" text", detector="standin-1", seal=text.seal))


async def test_a_refusal_names_the_field_and_not_the_text(seals: Seals) -> None:
    with pytest.raises(UnmaskedText) as refused:
        await seals.verify(DEMO, MaskedText(masked="Anna Petrova", detector="x", seal="0" * 32), "complaint")
    assert "complaint" in str(refused.value)
    assert "Anna" not in f"{refused.value} {refused.value.ids}"
