"""A token counts when a known public key signed it, it has not expired, and it says who and for which tenant."""

import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from perdure.errors import InvalidInput, NotAuthenticated
from perdure.messages import Decision, Principal
from perdure.proof import check_proof, make_proof
from perdure.tokens import JwksFile, StaticKey, Tokens, sign

KEY = Ed25519PrivateKey.generate()
PRIVATE = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
PUBLIC = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
STRANGER = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
TOKENS = Tokens(StaticKey(PUBLIC), "perdure", "perdure")


def _claims(**changes: Any) -> dict[str, Any]:
    claims = {"iss": "perdure", "aud": "perdure", "tenant": "demo", "sub": "anna", "roles": ["app"]}
    return {k: v for k, v in {**claims, "exp": int(time.time()) + 60, **changes}.items() if v is not None}


async def test_a_good_token_names_its_holder() -> None:
    caller = await TOKENS.read(sign(_claims(subject="customer:c1"), PRIVATE))
    assert caller.principal == Principal(tenant="demo", actor="anna", roles=("app",), identity="token")
    assert caller.subject == "customer:c1"


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": 1},
        {"exp": None},
        {"iss": "else"},
        {"aud": "else"},
        {"aud": None},
        {"tenant": None},
        {"tenant": "a:b"},
        {"tenant": ["demo"]},
        {"sub": None},
        {"roles": "app"},
        {"roles": [1]},
        {"subject": 5},
    ],
)
async def test_a_token_with_a_wrong_claim_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(NotAuthenticated):
        await TOKENS.read(sign(_claims(**changes), PRIVATE))


async def test_foreign_unsigned_and_shared_secret_tokens_are_refused() -> None:
    forged = [
        sign(_claims(), STRANGER),
        jwt.encode(_claims(), "", algorithm="none"),
        jwt.encode(_claims(), "x" * 64, algorithm="HS256"),
        "a.b.c",
        "",
        "x" * 10_000,
    ]
    for token in forged:
        with pytest.raises(NotAuthenticated):
            await TOKENS.read(token)


async def test_a_key_set_finds_keys_by_id_and_refuses_others(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    public = json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(KEY.public_key()))
    path.write_text(json.dumps({"keys": [{**public, "kid": "k1", "use": "sig", "alg": "EdDSA"}]}))
    tokens = Tokens(JwksFile(path), "perdure", "perdure")
    assert (await tokens.read(sign(_claims(), PRIVATE, "k1"))).principal.actor == "anna"
    assert (await tokens.read(sign(_claims(), PRIVATE))).principal.actor == "anna"
    with pytest.raises(NotAuthenticated):
        await tokens.read(sign(_claims(), PRIVATE, "k2"))


def test_keys_that_are_none_are_refused_without_being_quoted() -> None:
    with pytest.raises(InvalidInput) as refused:
        sign(_claims(), "-----BEGIN SECRET")
    assert "SECRET" not in str(refused.value)
    with pytest.raises(InvalidInput):
        StaticKey("no pem")


DECISION = Decision(review_id="rev_1", decision_id="d1", verdict="approve", version=2, digest="ab" * 32)
REVIEWER = Principal(tenant="demo", actor="boris", roles=("approver",))


async def test_a_proof_names_the_reviewer() -> None:
    proven = DECISION.model_copy(update={"proof": make_proof(DECISION, REVIEWER, PRIVATE)})
    assert await check_proof(proven, "demo", StaticKey(PUBLIC)) == REVIEWER.model_copy(update={"identity": "proof"})


@pytest.mark.parametrize(
    "changes", [{"review_id": "rev_2"}, {"version": 3}, {"digest": "cd" * 32}, {"verdict": "reject"}, {"proof": None}]
)
async def test_a_proof_is_for_one_decision_alone(changes: dict[str, Any]) -> None:
    proven = DECISION.model_copy(update={"proof": make_proof(DECISION, REVIEWER, PRIVATE), **changes})
    with pytest.raises(NotAuthenticated):
        await check_proof(proven, "demo", StaticKey(PUBLIC))


async def test_an_old_a_foreign_and_another_tenants_proof_are_refused() -> None:
    for proof, tenant in (
        (make_proof(DECISION, REVIEWER, PRIVATE, seconds=-60), "demo"),
        (make_proof(DECISION, REVIEWER, STRANGER), "demo"),
        (make_proof(DECISION, REVIEWER, PRIVATE), "other"),
        (sign(_claims(), PRIVATE), "demo"),
    ):
        with pytest.raises(NotAuthenticated):
            await check_proof(DECISION.model_copy(update={"proof": proof}), tenant, StaticKey(PUBLIC))


async def test_a_proof_is_no_token() -> None:
    with pytest.raises(NotAuthenticated):
        await TOKENS.read(make_proof(DECISION, REVIEWER, PRIVATE))
