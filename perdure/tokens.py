"""Who is speaking: signed tokens (JWT) and the public keys that check them."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx
import jwt
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from pydantic import ValidationError

from perdure.errors import InvalidInput, NotAuthenticated, Unavailable
from perdure.messages import Principal

ALGORITHMS = ["EdDSA", "ES256", "RS256"]
"""Signatures with a public half alone: a shared secret could be used to make tokens as well."""
LONGEST_TOKEN = 8_000
REREAD_SECONDS = 30.0
FETCH_SECONDS = 5.0
REMEMBERED_SECONDS = 10.0
REMEMBERED_TOKENS = 1_000


@dataclass(frozen=True)
class Caller:
    """Who calls, by a token. ``subject`` (``type:id``) is set on an end user's token: it is bound to that subject."""

    principal: Principal
    subject: str | None = None


class KeySource(Protocol):
    """Public keys by id."""

    async def find(self, key_id: str | None) -> Any:
        """The key, or None when there is none. Raises ``Unavailable``."""
        ...


class StaticKey:
    """One public key (PEM), whatever id a token names."""

    def __init__(self, pem: str) -> None:
        try:
            self._key = load_pem_public_key(pem.encode())
        except ValueError:
            raise InvalidInput("the public key is not PEM") from None

    async def find(self, key_id: str | None) -> Any:
        """The one key."""
        return self._key


class JwksFile:
    """Keys from a JWKS file, read again when a token names a key that is not known (at most twice a minute)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys = _keys_of(_text_of(path))
        self._read_at = time.monotonic()

    async def find(self, key_id: str | None) -> Any:
        """The key of that id; the only key when a token names none."""
        if _chosen(self._keys, key_id) is None and time.monotonic() - self._read_at > REREAD_SECONDS:
            self._keys, self._read_at = _keys_of(_text_of(self._path)), time.monotonic()
        return _chosen(self._keys, key_id)


class JwksUrl:
    """Keys from a JWKS address; fetched at first use and when a token names a key that is not known."""

    def __init__(self, url: str, http: httpx.AsyncClient) -> None:
        self._url = url
        self._http = http
        self._keys: dict[str | None, Any] = {}
        self._read_at: float | None = None

    async def find(self, key_id: str | None) -> Any:
        """The key of that id; the only key when a token names none."""
        stale = self._read_at is None or time.monotonic() - self._read_at > REREAD_SECONDS
        if _chosen(self._keys, key_id) is None and stale:
            self._keys = _keys_of(await self._fetch())
            self._read_at = time.monotonic()
        return _chosen(self._keys, key_id)

    async def _fetch(self) -> str:
        try:
            answer = await self._http.get(self._url, timeout=FETCH_SECONDS)
            answer.raise_for_status()
        except httpx.HTTPError:
            raise Unavailable("the key set that checks tokens does not answer") from None
        return answer.text


def key_source(
    http: httpx.AsyncClient, *, file: Path | None = None, url: str | None = None, public_key: str | None = None
) -> KeySource:
    """Keys from exactly one of a JWKS file, a JWKS address and a PEM. Raises ``InvalidInput``."""
    match (file, url, public_key):
        case (Path() as path, None, None):
            return JwksFile(path)
        case (None, str() as address, None):
            return JwksUrl(address, http)
        case (None, None, str() as pem):
            return StaticKey(pem)
        case _:
            raise InvalidInput("tokens are checked by one of a JWKS file, a JWKS address or a public key")


class Tokens:
    """Checks tokens with claims ``iss``, ``aud``, ``exp``, ``tenant``, ``sub``, ``roles`` and perhaps ``subject``.

    A token that was good is taken as good for a few seconds more, never past its expiry, without checking it again.
    """

    def __init__(self, keys: KeySource, issuer: str, audience: str) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._good: dict[str, tuple[Caller, float]] = {}

    async def read(self, token: str) -> Caller:
        """Who holds the token. Raises ``NotAuthenticated``, and never says which part of a token is wrong."""
        known = self._good.get(token)
        if known is not None and time.time() < known[1]:
            return known[0]
        caller, expires = await self._check(token)
        if len(self._good) >= REMEMBERED_TOKENS:
            self._good.clear()
        self._good[token] = caller, min(expires, time.time() + REMEMBERED_SECONDS)
        return caller

    async def _check(self, token: str) -> tuple[Caller, float]:
        claims = await signed_claims(
            token,
            self._keys,
            required=["exp", "iss", "aud", "sub", "tenant"],
            issuer=self._issuer,
            audience=self._audience,
        )
        try:
            subject = claims.get("subject")
            if subject is not None and not isinstance(subject, str):
                raise NotAuthenticated("the token is not valid")
            return Caller(principal_of(claims, "token"), subject), float(claims["exp"])
        except ValidationError:
            raise NotAuthenticated("the token is not valid") from None


async def signed_claims(token: str, keys: KeySource, *, required: list[str], **checks: Any) -> dict[str, Any]:
    """The claims of a token whose signature and times hold. Raises ``NotAuthenticated``."""
    if len(token) > LONGEST_TOKEN:
        raise NotAuthenticated("the token is not valid")
    try:
        key = await keys.find(jwt.get_unverified_header(token).get("kid"))
        if key is None:
            raise NotAuthenticated("the token is signed by a key that is not known here")
        claims = jwt.decode(token, key, algorithms=ALGORITHMS, options={"require": required}, leeway=5, **checks)
    except jwt.ExpiredSignatureError:
        raise NotAuthenticated("the token has expired") from None
    except (jwt.PyJWTError, TypeError, ValueError):
        raise NotAuthenticated("the token is not valid") from None
    return dict(claims)


def principal_of(claims: dict[str, Any], identity: str) -> Principal:
    """The principal that claims describe. Raises pydantic's ``ValidationError``."""
    return Principal.model_validate(
        {"tenant": claims["tenant"], "actor": claims["sub"], "roles": claims.get("roles", ()), "identity": identity}
    )


def sign(claims: dict[str, Any], private_key_pem: str, key_id: str | None = None) -> str:
    """A compact JWS (EdDSA) over claims. Raises ``InvalidInput`` when the key is not an Ed25519 key in PEM."""
    try:
        return jwt.encode(claims, private_key_pem, algorithm="EdDSA", headers={"kid": key_id} if key_id else None)
    except (jwt.PyJWTError, TypeError, ValueError):
        raise InvalidInput("the signing key is not an Ed25519 private key in PEM") from None


def _chosen(keys: dict[str | None, Any], key_id: str | None) -> Any:
    if key_id is None and len(keys) == 1:
        return next(iter(keys.values()))
    return keys.get(key_id)


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        raise InvalidInput(f"the key set {path.name} cannot be read") from None


def _keys_of(text: str) -> dict[str | None, Any]:
    try:
        return {key.key_id: key.key for key in jwt.PyJWKSet.from_dict(json.loads(text)).keys}
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError, KeyError):
        raise Unavailable("the key set that checks tokens cannot be read") from None
