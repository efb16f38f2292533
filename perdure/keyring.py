"""A ring of symmetric keys: one active, the older ones kept so that what they sealed still opens."""

import base64
import binascii
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from perdure.errors import InvalidInput, KeyMissing

KEY_BYTES = 32


@dataclass(frozen=True, repr=False)
class KeyRing:
    """Keys of 32 bytes by id. JSON: ``{"active": "k1", "keys": {"k1": "<base64>"}}``."""

    active: str
    keys: dict[str, bytes]

    @staticmethod
    def generate(key_id: str = "k1") -> "KeyRing":
        """A ring with one new random key."""
        return KeyRing(key_id, {key_id: secrets.token_bytes(KEY_BYTES)})

    @staticmethod
    def parse(text: str) -> "KeyRing":
        """Read the JSON form. Raises ``InvalidInput`` that never quotes the text."""
        try:
            raw = json.loads(text)
            keys = {str(i): base64.b64decode(k, validate=True) for i, k in raw["keys"].items()}
            active = raw["active"]
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
            raise InvalidInput("a key ring is JSON with 'active' and 'keys' (id -> base64 of 32 bytes)") from None
        if active not in keys or any(len(k) != KEY_BYTES for k in keys.values()):
            raise InvalidInput("a key ring needs its active key, and every key has 32 bytes")
        return KeyRing(active, keys)

    @staticmethod
    def read(path: Path) -> "KeyRing":
        """Read a file. Raises ``InvalidInput``, also when there is none."""
        try:
            return KeyRing.parse(path.read_text())
        except OSError:
            raise InvalidInput(f"the key ring file {path.name} cannot be read") from None

    def write(self, path: Path) -> None:
        """Write a new file that only its owner can read; an existing file is never overwritten."""
        body = {"active": self.active, "keys": {i: base64.b64encode(k).decode() for i, k in self.keys.items()}}
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(body, file)

    def rotated(self, key_id: str) -> "KeyRing":
        """The same ring with a new active key."""
        if key_id in self.keys:
            raise InvalidInput(f"the key ring has a key {key_id} already")
        return KeyRing(key_id, self.keys | {key_id: secrets.token_bytes(KEY_BYTES)})

    def cipher(self, key_id: str) -> AESGCM:
        """AES-256-GCM with one key. Raises ``KeyMissing``."""
        if key_id not in self.keys:
            raise KeyMissing(f"no key {key_id!r} in the key ring; add it to read what it sealed", key=key_id)
        return AESGCM(self.keys[key_id])
