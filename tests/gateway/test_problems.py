"""Whatever is sent, the answer is a result or a problem document, and never quotes what was sent."""

import json
import logging
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway import problems
from perdure.api import StartRun
from perdure.errors import PerdureError, leaves
from tests.gateway.conftest import Edge

CANARY = "canary-4f1d"
_leaf = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | st.just(CANARY)
_json = st.recursive(
    _leaf, lambda of: st.lists(of, max_size=3) | st.dictionaries(st.text(max_size=8), of, max_size=3), max_leaves=6
)
_known = st.sampled_from(["route", "input", "version", "personal", "fields", "verdict", "digest", "comment", "tenant"])
_bodies = _json | st.dictionaries(_known, _json, max_size=4)
_posts = st.sampled_from(
    [
        ("/v1/routes", "developer"),
        ("/v1/runs", "app"),
        ("/v1/runs/r1/messages", "app"),
        ("/v1/runs/r1/evidence", "app"),
        ("/v1/runs/r1/hold", "operator"),
        ("/v1/runs/r1/cancel", "app"),
        ("/v1/approvals/rev1/decision", "approver"),
        ("/codec/encode", "operator"),
        ("/codec/decode", "operator"),
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(post=_posts, body=_bodies, raw=st.none() | st.binary(max_size=40))
async def test_no_body_breaks_it_or_is_quoted(edge: Edge, post: tuple[str, str], body: Any, raw: bytes | None) -> None:
    path, role = post
    sent = raw if raw is not None else json.dumps(body).encode()
    answer = await edge.post(path, role, sent, key="k")
    assert answer.status_code < 500 or answer.json()["type"] == "Unavailable", answer.text
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert CANARY not in answer.text


@pytest.mark.parametrize("path", ["/nowhere", "/v1/runs/%00", "/v1/runs/" + "x" * 65, "/v1/runs?limit=canary-4f1d"])
async def test_a_wrong_address_is_a_problem_too(edge: Edge, path: str) -> None:
    answer = await edge.get(path, "app")
    assert 400 <= answer.status_code < 500
    assert answer.json()["type"] in ("NotFound", "InvalidInput")
    assert CANARY not in answer.text


async def test_the_unforeseen_is_told_without_details(caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI()
    problems.install(app)

    @app.get("/")
    async def broken() -> None:
        raise ZeroDivisionError(CANARY)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        with caplog.at_level(logging.DEBUG):
            answer = await client.get("/")
    assert (answer.status_code, answer.json()["type"]) == (500, "PerdureError")
    assert "ZeroDivisionError" in caplog.text
    assert CANARY not in answer.text + caplog.text


@pytest.mark.parametrize("error", leaves(PerdureError))
def test_every_error_has_a_problem_document(error: type[PerdureError]) -> None:
    body = json.loads(bytes(problems.problem(error(None)).body))
    assert body["type"] == error.__name__
    assert body["status"] == error.status
    assert body["detail"]


async def test_the_description_names_every_call_and_holds_examples(edge: Edge) -> None:
    described = (await edge.http.get("/openapi.json")).json()
    calls = {(method.upper(), path) for path, item in described["paths"].items() for method in item}
    assert calls >= {
        ("POST", "/v1/routes"),
        ("GET", "/v1/routes"),
        ("GET", "/v1/routes/{route}"),
        ("GET", "/v1/routes/{route}/{version}"),
        ("POST", "/v1/runs"),
        ("GET", "/v1/runs"),
        ("GET", "/v1/runs/{run_id}"),
        *{("POST", f"/v1/runs/{{run_id}}/{what}") for what in ("messages", "evidence", "hold", "resume", "cancel")},
        ("GET", "/v1/approvals"),
        ("GET", "/v1/approvals/{review_id}"),
        ("POST", "/v1/approvals/{review_id}/decision"),
        ("POST", "/codec/{direction}"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
    }
    for example in described["components"]["schemas"]["StartRun"]["examples"]:
        StartRun.model_validate(example)
    for path, item in described["paths"].items():
        if "post" in item and not path.startswith("/codec"):
            assert "Idempotency-Key" in [parameter["name"] for parameter in item["post"]["parameters"]], path
