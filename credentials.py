"""Keys and tokens of the embedded stack: made at the first start, readable by their owner alone, then kept."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

from perdure.ids import derived
from perdure.keyring import KeyRing
from perdure.tokens import sign

ROLES = ("developer", "app", "approver", "operator", "security", "analyst", "inspector")
ISSUER = AUDIENCE = "perdure"
TOKEN_DAYS = 30


@dataclass(frozen=True)
class Credentials:
    """Where the key rings, the signing key with its public half, and a token for each role are kept."""

    root_ring: Path
    codec_ring: Path
    signing_key: Path
    jwks: Path
    tokens: Path


def prepare_credentials(home: Path, tenant: str) -> Credentials:
    """Make what is missing; keys stay for ever, tokens are made anew when one has less than a day left."""
    keys = home / "keys"
    keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Credentials(
        keys / "root.json", keys / "codec.json", keys / "signing.pem", keys / "jwks.json", home / "tokens.json"
    )
    for ring in (made.root_ring, made.codec_ring):
        if not ring.exists():
            KeyRing.generate().write(ring)
    if not made.signing_key.exists():
        _write_private(made.signing_key, _new_signing_key())
    _write_private(made.jwks, json.dumps({"keys": [_public_jwk(_signing_key(made.signing_key))]}).encode())
    if not _tokens_last(made.tokens, tenant):
        tokens = {role: _token(made.signing_key, tenant, role) for role in ROLES}
        _write_private(made.tokens, json.dumps(tokens, indent=2).encode())
    return made


def read_tokens(file: Path) -> dict[str, str]:
    """Token by role."""
    tokens: dict[str, str] = json.loads(file.read_text())
    return tokens


def _token(signing: Path, tenant: str, role: str) -> str:
    now = int(time.time())
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "tenant": tenant,
        "sub": f"{tenant}-{role}",
        "roles": [role],
        "iat": now,
        "exp": now + TOKEN_DAYS * 86_400,
    }
    return sign(claims, signing.read_text(), _key_id(_signing_key(signing)))


def _tokens_last(file: Path, tenant: str) -> bool:
    if not file.exists():
        return False
    tokens = read_tokens(file)
    claims = [jwt.decode(token, options={"verify_signature": False}) for token in tokens.values()]
    fresh = all(c["exp"] > time.time() + 86_400 and c["tenant"] == tenant for c in claims)
    return fresh and set(tokens) == set(ROLES)


def _new_signing_key() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _signing_key(file: Path) -> Ed25519PrivateKey:
    key = serialization.load_pem_private_key(file.read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise TypeError(f"{file.name} does not hold an Ed25519 key")
    return key


def _key_id(key: Ed25519PrivateKey) -> str:
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return derived(raw.hex())[:16]


def _public_jwk(key: Ed25519PrivateKey) -> dict[str, object]:
    jwk = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return jwk | {"kid": _key_id(key), "use": "sig", "alg": "EdDSA"}


def _write_private(file: Path, content: bytes) -> None:
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
        output.write(content)
    draft.replace(file)
