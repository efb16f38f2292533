"""The search that the demo trusts finds a person's words in every spelling, wherever they stand."""

import base64
import json
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.refund.demo import leaks

NAME = "Анна Верещагина"
PHONE = "+7 921 555-01-42"

SPELLINGS: dict[str, Callable[[str], bytes]] = {
    "utf-8": str.encode,
    "utf-16": lambda text: text.encode("utf-16-le"),
    "upper case": lambda text: text.upper().encode(),
    "json escapes": lambda text: json.dumps(text).encode(),
    "json escapes in capitals": lambda text: json.dumps(text).upper().replace("\\U", "\\u").encode(),
    "percent": lambda text: urllib.parse.quote(text).encode(),
    "hex": lambda text: text.encode().hex().encode(),
    "base64": lambda text: base64.b64encode(text.encode()),
    "base64 inside, 1": lambda text: base64.b64encode(b"x" + text.encode() + b"tail"),
    "base64 inside, 2": lambda text: base64.b64encode(b"xy" + text.encode() + b"tail"),
    "base64 for addresses": lambda text: base64.urlsafe_b64encode(text.encode()),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_word_is_found_in_every_spelling(tmp_path: Path, spelling: str) -> None:
    file = tmp_path / "dump"
    file.write_bytes(b"before " + SPELLINGS[spelling](NAME) + b" after")
    assert [hit["word"] for hit in leaks.scan([file], ["nothing", NAME])]


def test_a_number_is_found_as_digits_alone(tmp_path: Path) -> None:
    file = tmp_path / "dump"
    file.write_text('{"phone": "79215550142"}')
    assert leaks.scan([file], [PHONE])


def test_a_word_on_the_edge_of_two_blocks_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "BLOCK", 16)
    file = tmp_path / "dump"
    file.write_text("0123456789" + NAME)
    assert leaks.scan([file], [NAME])


def test_masked_text_is_no_hit_and_a_hit_never_quotes_the_word(tmp_path: Path) -> None:
    clean, dirty = tmp_path / "clean", tmp_path / "dirty"
    clean.write_text("Позвонить ⟦PHONE_1⟧, заказ order-1001")
    dirty.write_text(NAME)
    assert leaks.scan([clean], [NAME, PHONE]) == []
    assert NAME not in json.dumps(leaks.scan([dirty], [NAME]), ensure_ascii=False)
