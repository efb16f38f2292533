"""Looks for a person's words in everything that was written down, in every spelling a store could give them."""

import base64
import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path

OVERLAP = 4096
BLOCK = 4_000_000


def spellings(text: str) -> set[bytes]:
    """The bytes of ``text`` in UTF-8, UTF-16, JSON escapes, percent encoding and base64 at each of its offsets."""
    found: set[bytes] = set()
    for variant in {text, text.lower(), text.upper(), _digits(text)} - {""}:
        utf8 = variant.encode()
        found |= {utf8, variant.encode("utf-16-le"), variant.encode("utf-16-be")}
        escaped = json.dumps(variant)[1:-1]
        found |= {escaped.encode(), re.sub(r"\\u(....)", lambda m: m[0].upper().replace("U", "u", 1), escaped).encode()}
        found |= {urllib.parse.quote(variant).encode(), utf8.hex().encode(), utf8.hex().upper().encode()}
        for wide in (utf8, variant.encode("utf-16-le")):
            found |= set(_base64_cores(wide))
    return found


def scan(files: Iterable[Path], words: Iterable[str]) -> list[dict[str, object]]:
    """Hits as {"file", "word", "offset"}; ``word`` is the number of the word, never the word."""
    needles = [(number, needle) for number, word in enumerate(words) for needle in spellings(word)]
    return [hit for file in files for hit in _scan_file(file, needles)]


def _scan_file(file: Path, needles: list[tuple[int, bytes]]) -> Iterator[dict[str, object]]:
    start, kept = 0, b""
    with file.open("rb") as content:
        while block := content.read(BLOCK):
            window = kept + block
            for number, needle in needles:
                at = window.find(needle)
                if at >= 0:
                    yield {"file": str(file), "word": number, "offset": start - len(kept) + at}
            start += len(block)
            kept = window[-OVERLAP:]


def _base64_cores(raw: bytes) -> Iterator[bytes]:
    """What base64 makes of ``raw`` wherever it begins: the characters that do not depend on the neighbours."""
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + raw)
        first = -(-offset * 8 // 6)
        whole = (offset + len(raw)) * 8 // 6
        core = encoded[first:whole]
        yield core
        yield core.translate(bytes.maketrans(b"+/", b"-_"))


def _digits(text: str) -> str:
    """A telephone number as digits alone; nothing for other words."""
    digits = re.sub(r"\D", "", text)
    return digits if len(digits) >= 10 else ""
