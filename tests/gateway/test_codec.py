"""The codec endpoint opens a tenant's own payloads for those who may, and never breaks the UI that asks."""

from typing import Any

import httpx
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from temporalio.api.common.v1 import Payload, Payloads

from perdure.codec import SealingCodec
from perdure.keyring import KeyRing
from tests.gateway.conftest import UI, Edge, token

PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"seen"')


async def _sealed(ring: KeyRing, tenant: str) -> dict[str, Any]:
    return MessageToDict(Payloads(payloads=await SealingCodec(ring, tenant).encode([PLAIN])))


def _payload(answer: httpx.Response) -> Payload:
    assert answer.status_code == 200, answer.text
    return ParseDict(answer.json(), Payloads()).payloads[0]


async def test_what_it_encodes_it_decodes(edge: Edge) -> None:
    body = MessageToDict(Payloads(payloads=[PLAIN]))
    sealed = await edge.post("/codec/encode", "operator", body, key=None)
    assert b"seen" not in _payload(sealed).data
    assert _payload(await edge.post("/codec/decode", "operator", sealed.json(), key=None)) == PLAIN


async def test_a_token_that_may_do_more_is_refused_in_a_path_and_an_inspector_everywhere_else(
    edge: Edge, codec_ring: KeyRing
) -> None:
    body = await _sealed(codec_ring, edge.tenant)
    powerful = await edge.http.post(f"/codec/t/{token(edge.tenant, 'operator')}/decode", json=body)
    assert powerful.status_code == 403
    assert (await edge.post("/codec/decode", "inspector", body, key=None)).status_code == 403
    for path in ("/v1/runs", "/v1/approvals", "/v1/approvals/rev_1", "/v1/routes"):
        assert (await edge.get(path, "inspector")).status_code == 403, path


async def test_the_ui_sends_its_token_in_the_path_from_its_own_origin(edge: Edge, codec_ring: KeyRing) -> None:
    path = f"/codec/t/{token(edge.tenant, 'inspector')}/decode"
    wanted = {"Origin": UI, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-namespace"}
    assert (await edge.http.options(path, headers=wanted)).headers["access-control-allow-origin"] == UI
    answer = await edge.http.post(path, headers={"Origin": UI}, json=await _sealed(codec_ring, edge.tenant))
    assert _payload(answer) == PLAIN
    assert answer.headers["access-control-allow-origin"] == UI
    elsewhere = await edge.http.options(path, headers=wanted | {"Origin": "https://elsewhere.example"})
    assert "access-control-allow-origin" not in elsewhere.headers


async def test_another_tenants_payload_stays_shut(edge: Edge, codec_ring: KeyRing) -> None:
    body = await _sealed(codec_ring, "somebody-else")
    assert b"another tenant" in _payload(await edge.post("/codec/decode", "operator", body, key=None)).data


async def test_a_relabelled_payload_stays_shut(edge: Edge, codec_ring: KeyRing) -> None:
    [payload] = await SealingCodec(codec_ring, "somebody-else").encode([PLAIN])
    payload.metadata["tenant"] = edge.tenant.encode()
    body = MessageToDict(Payloads(payloads=[payload]))
    assert b"SealBroken" in _payload(await edge.post("/codec/decode", "operator", body, key=None)).data


@pytest.mark.parametrize("key_id", ["codec1", "elsewhere"])
async def test_a_wrong_or_missing_key_is_said_plainly(edge: Edge, key_id: str) -> None:
    body = await _sealed(KeyRing.generate(key_id), edge.tenant)
    said = _payload(await edge.post("/codec/decode", "security", body, key=None)).data.decode()
    assert key_id in said
    assert "perdure" in said


async def test_nonsense_is_refused_and_plain_payloads_pass(edge: Edge) -> None:
    body = MessageToDict(Payloads(payloads=[PLAIN]))
    assert _payload(await edge.post("/codec/decode", "developer", body, key=None)) == PLAIN
    assert (await edge.post("/codec/decode", "developer", {"payloads": "x"}, key=None)).status_code == 422


@pytest.mark.parametrize("role", ["app", "approver", "analyst"])
async def test_only_some_roles_read_payloads(edge: Edge, role: str) -> None:
    assert (await edge.post("/codec/decode", role, {"payloads": []}, key=None)).status_code == 403
    assert (await edge.http.post("/codec/t/nonsense/decode", json={"payloads": []})).status_code == 401
