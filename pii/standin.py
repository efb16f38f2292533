"""The stand-in behind the masking port: Presidio's e-mail, phone and card recognizers and what the caller lists.

Names that nobody lists are not found. It fails closed: too long, an error or a delay ends in a refusal.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from perdure.errors import DetectorUnavailable, InvalidInput, PerdureError, UnmaskedText
from perdure.masked import MaskedText
from perdure.messages import Principal
from pii.folding import folded
from pii.recognizers import certain, listed, suspected
from pii.seal import Seals
from pii.spans import Span, harmless, replaced, united

DETECTOR = "standin-1"
LONGEST_TEXT = 20_000
MOST_PERSONAL = 100
LONGEST_PERSONAL = 1_000

T = TypeVar("T")
Detector = Callable[[str], Iterator[Span]]


class StandinMasker:
    """Masks in a thread of its own, within ``seconds`` or not at all."""

    def __init__(self, seals: Seals, *, seconds: float = 10.0, detect: Detector = suspected) -> None:
        self._seals = seals
        self._seconds = seconds
        self._detect = detect
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="masking")

    async def mask(self, principal: Principal, text: str, personal: Sequence[str] = ()) -> MaskedText:
        """See ``Masker.mask``. At most 20,000 characters."""
        _refuse_excess(text, personal)
        plain = harmless(text)
        spans = await self._within(lambda: _look(plain, personal, self._detect))
        return await self._seals.seal(principal, replaced(plain, spans), DETECTOR)

    async def check(self, field: str, value: Any, personal: Sequence[str] = ()) -> None:
        """See ``Masker.check``: every string in the value, keys too."""
        texts = list(_strings(value))
        for text in texts:
            _refuse_excess(text, personal, field)
        if await self._within(lambda: any(_look(text, personal, certain) for text in texts)):
            raise UnmaskedText(f"{field} holds personal data; only fields marked personal may", field=field)

    def close(self) -> None:
        """Free the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _within(self, look: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.get_running_loop().run_in_executor(self._threads, look)
        except PerdureError:
            raise
        except TimeoutError:
            raise DetectorUnavailable("masking took too long; nothing was stored") from None
        except Exception:  # noqa: BLE001 - whatever a detector raises, its message may quote the text
            raise DetectorUnavailable("masking failed; nothing was stored") from None


def _look(text: str, personal: Sequence[str], detect: Detector) -> list[Span]:
    plain = folded(text)
    again = [*listed(plain.text, [folded(value).text for value in personal])]
    if plain.text != text:
        again += detect(plain.text)
    seen = [*detect(text), *listed(text, personal)]
    seen += [Span(*plain.original(s.start, s.end), s.kind) for s in again]
    return united(seen)


def _refuse_excess(text: str, personal: Sequence[str], field: str = "the text") -> None:
    if len(text) > LONGEST_TEXT:
        raise InvalidInput(f"{field} is longer than {LONGEST_TEXT} characters")
    if len(personal) > MOST_PERSONAL or any(len(value) > LONGEST_PERSONAL for value in personal):
        raise InvalidInput(f"personal lists at most {MOST_PERSONAL} values of {LONGEST_PERSONAL} characters")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from _strings(key)
            yield from _strings(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _strings(child)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)
