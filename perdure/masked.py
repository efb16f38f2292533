"""Text from which personal data was taken out."""

from pydantic import BaseModel, ConfigDict, Field


class MaskedText(BaseModel):
    """Text that masking made. Only the masking layer holds the key that makes ``seal`` (see ``pii/``); a run refuses
    a personal field that is not a ``MaskedText`` or whose seal does not fit its tenant and text.

    JSON: ``{"masked": "Позвонить ⟦PHONE_1⟧", "detector": "standin-1", "seal": "<32 hex digits>"}``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    masked: str = Field(max_length=200_000)
    detector: str = Field(max_length=64)
    seal: str = Field(pattern=r"^[0-9a-f]{32}$")

    def __str__(self) -> str:
        return self.masked
