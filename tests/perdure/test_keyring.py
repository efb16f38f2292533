"""A key ring is read whole or refused, and is never overwritten."""

import base64
import json
import stat
from pathlib import Path

import pytest

from perdure.errors import InvalidInput, KeyMissing
from perdure.keyring import KeyRing

KEY = base64.b64encode(b"k" * 32).decode()


def test_a_written_ring_reads_back_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    ring = KeyRing.generate()
    ring.write(tmp_path / "ring.json")
    assert KeyRing.read(tmp_path / "ring.json") == ring
    assert stat.S_IMODE((tmp_path / "ring.json").stat().st_mode) == 0o600


def test_an_existing_ring_is_never_overwritten(tmp_path: Path) -> None:
    KeyRing.generate().write(tmp_path / "ring.json")
    with pytest.raises(FileExistsError):
        KeyRing.generate().write(tmp_path / "ring.json")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        json.dumps({"active": "k1", "keys": {}}),
        json.dumps({"active": "k2", "keys": {"k1": KEY}}),
        json.dumps({"active": "k1", "keys": {"k1": "c2hvcnQ="}}),
        json.dumps({"active": "k1", "keys": {"k1": "not base64!"}}),
    ],
)
def test_a_bad_ring_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        KeyRing.parse(text)
    assert "c2hvcnQ" not in str(refused.value)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"ring\.json"):
        KeyRing.read(tmp_path / "ring.json")


def test_a_key_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyMissing, match="k9"):
        KeyRing.generate().cipher("k9")


def test_a_ring_does_not_print_its_keys() -> None:
    assert KEY not in repr(KeyRing("k1", {"k1": b"k" * 32}))
    assert "kkkk" not in repr(KeyRing("k1", {"k1": b"k" * 32}))
