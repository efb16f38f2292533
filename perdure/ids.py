"""Identifiers and digests: derived from inputs, so that a repeat finds the same thing."""

import hashlib
import json
from typing import Annotated, Any

from pydantic import StringConstraints

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$")]
"""1 to 128 characters of ``A-Z a-z 0-9 _ . : -``, the first a letter or digit."""
Tenant = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.%-]{0,63}$")]
"""1 to 64 characters; no colon, since a tenant is part of workflow ids."""
RunId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
"""1 to 64 characters; no colon."""


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces, UTF-8. Floats are refused: amounts are strings.

    Raises ``ValueError`` for floats (NaN too) and ``TypeError`` for what is not JSON.
    """
    _refuse_floats(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _refuse_floats(value: Any) -> None:
    if isinstance(value, float):
        raise ValueError("a float has no canonical form; use a string")
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        _refuse_floats(child)


def digest(value: Any) -> str:
    """SHA-256 of the canonical form, 64 hex digits."""
    return hashlib.sha256(canonical(value)).hexdigest()


def derived(*parts: str) -> str:
    """32 hex digits that depend on the parts and their order alone."""
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def effect_key(tenant: str, process: str, action: str, business_object: str, intent: str) -> str:
    """The idempotency key of an effect: ``pk_`` and 40 hex digits.

    ``process`` is the route's name, ``business_object`` is ``type:id``, ``intent`` is ``intent id@version``. A model
    has no part in it.
    """
    parts = "\x1f".join((tenant, process, action, business_object, intent))
    return "pk_" + hashlib.sha256(parts.encode()).hexdigest()[:40]
