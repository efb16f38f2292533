"""The proof of a decision that travels through Temporal: a compact JWS over what was looked at and what was decided."""

import time
from typing import Any

from pydantic import ValidationError

from perdure.errors import NotAuthenticated
from perdure.messages import Decision, Principal
from perdure.tokens import KeySource, principal_of, sign, signed_claims

PROOF_SECONDS = 300
_DECIDED = ("review", "version", "digest", "verdict")


def make_proof(
    decision: Decision,
    reviewer: Principal,
    private_key_pem: str,
    *,
    key_id: str | None = None,
    seconds: int = PROOF_SECONDS,
) -> str:
    """The ``proof`` of a ``Decision``: it counts for this review, version, digest and verdict, for ``seconds``.

    ``private_key_pem`` is the Ed25519 key whose public half the service knows (its JWKS). Raises ``InvalidInput``.
    """
    who = {"tenant": reviewer.tenant, "sub": reviewer.actor, "roles": list(reviewer.roles)}
    return sign({**who, **_decided(decision), "exp": int(time.time()) + seconds}, private_key_pem, key_id)


async def check_proof(decision: Decision, tenant: str, keys: KeySource) -> Principal:
    """Who decided, with identity ``proof``. ``tenant`` is the run's.

    Raises ``NotAuthenticated`` when there is no proof, it does not verify, has expired, or is for something else.
    """
    if decision.proof is None:
        raise NotAuthenticated("the decision carries no proof", review=decision.review_id)
    claims = await signed_claims(decision.proof, keys, required=["exp", "tenant", "sub", *_DECIDED])
    if claims["tenant"] != tenant or any(claims[name] != value for name, value in _decided(decision).items()):
        raise NotAuthenticated("the proof is for another decision", review=decision.review_id)
    try:
        return principal_of(claims, "proof")
    except ValidationError:
        raise NotAuthenticated("the proof is not valid", review=decision.review_id) from None


def _decided(decision: Decision) -> dict[str, Any]:
    return {
        "review": decision.review_id,
        "version": decision.version,
        "digest": decision.digest,
        "verdict": decision.verdict,
    }
