"""Starting runs and telling them things: what does not fit is refused before anything is stored or sent."""

import logging
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from gateway.services import Services
from perdure.codec import sealed_for
from perdure.messages import Principal
from tests.gateway.conftest import ROUTE, Edge, opened_review, opened_run

CANARY = "Canary Vereshchagin"
GOOD: dict[str, Any] = {
    "route": "refund",
    "input": {"customer_id": "c1", "complaint": f"{CANARY}, anna@example.com"},
    "personal": [CANARY],
}


@pytest.fixture
async def installed(edge: Edge) -> None:
    answer = await edge.post("/v1/routes", "developer", ROUTE.encode(), key="route")
    assert answer.status_code == 201, answer.text


def _refused(answer: httpx.Response, kind: str, status: int) -> dict[str, Any]:
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["type"]) == (status, kind), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert CANARY not in answer.text
    return problem


@pytest.mark.usefixtures("installed")
async def test_a_start_is_masked_sealed_and_found_again_by_its_key(edge: Edge, services: Services) -> None:
    first = (await edge.post("/v1/runs", "app", GOOD)).json()
    again = (await edge.post("/v1/runs", "app", GOOD)).json()
    assert first == again
    assert first["workflow_id"] == f"run:{edge.tenant}:{first['run_id']}"
    history = await services.temporal.get_workflow_handle(first["workflow_id"]).fetch_history()
    [payload] = history.events[0].workflow_execution_started_event_attributes.input.payloads
    assert sealed_for(payload) == edge.tenant
    [decoded] = await services.temporal.data_converter.decode([payload])
    assert CANARY not in str(decoded)
    assert decoded["input"]["complaint"]["masked"] == "⟦PERSONAL_1⟧, ⟦EMAIL_1⟧"


@pytest.mark.usefixtures("installed")
async def test_a_run_that_no_worker_has_opened_is_shown_and_takes_messages_later(edge: Edge) -> None:
    started = (await edge.post("/v1/runs", "app", GOOD)).json()
    shown = (await edge.get(f"/v1/runs/{started['run_id']}", "app")).json()
    assert (shown["status"], shown["version"]) == ("running", None)
    _refused(await edge.post(f"/v1/runs/{started['run_id']}/cancel", "app", {}, key="c"), "Unavailable", 503)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"customer_id": "c1"}, "InvalidInput"),
        ({"customer_id": "c1", "complaint": "x", "extra": CANARY}, "InvalidInput"),
        ({"customer_id": 7, "complaint": "x"}, "InvalidInput"),
        ({"customer_id": CANARY, "complaint": "x"}, "InvalidInput"),
        ({"customer_id": "anna@example.com", "complaint": "x"}, "UnmaskedText"),
        ({"customer_id": "c1", "complaint": 5}, "UnmaskedText"),
        ({"customer_id": "c1", "complaint": {"masked": CANARY}}, "UnmaskedText"),
        ({"customer_id": "c1", "complaint": {"masked": CANARY, "detector": "x", "seal": "0" * 32}}, "UnmaskedText"),
        ({"customer_id": "c1", "complaint": "x" * 20_001}, "InvalidInput"),
        ({"customer_id": "c1", "complaint": "x", "urgent": "yes"}, "InvalidInput"),
        ({"customer_id": "c1", "complaint": "a\u0000b"}, "InvalidInput"),
        ({CANARY: "c1"}, "InvalidInput"),
    ],
)
async def test_input_that_does_not_fit_is_refused_without_an_echo(edge: Edge, fields: Any, kind: str) -> None:
    _refused(await edge.post("/v1/runs", "app", {"route": "refund", "input": fields}), kind, 422)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("place", ["body", "input"])
async def test_a_tenant_in_a_body_is_refused(edge: Edge, place: str) -> None:
    body: dict[str, Any] = {"route": "refund", "input": dict(GOOD["input"])}
    (body if place == "body" else body["input"])["tenant"] = "other"
    problem = _refused(await edge.post("/v1/runs", "app", body), "InvalidInput", 422)
    assert place == "input" or "tenant comes from the token" in problem["detail"]


@pytest.mark.usefixtures("installed")
async def test_a_key_is_needed_and_belongs_to_its_first_request(edge: Edge) -> None:
    problem = _refused(await edge.post("/v1/runs", "app", GOOD, key=None), "InvalidInput", 422)
    assert "Idempotency-Key" in problem["detail"]
    assert (await edge.post("/v1/runs", "app", GOOD)).status_code == 201
    other = GOOD | {"input": {"customer_id": "c2", "complaint": "x"}}
    _refused(await edge.post("/v1/runs", "app", other), "IdempotencyMismatch", 422)


@pytest.mark.usefixtures("installed")
async def test_an_end_users_token_is_bound_to_its_subject(edge: Edge) -> None:
    _refused(await edge.post("/v1/runs", "app", GOOD, subject="customer:c2"), "NotAuthorized", 403)
    assert (await edge.post("/v1/runs", "app", GOOD, subject="customer:c1")).status_code == 201


async def test_two_megabytes_are_not_read(edge: Edge) -> None:
    for path, body in (("/v1/routes", b"a" * 2_000_000), ("/v1/runs", {"route": "x" * 2_000_000})):
        _refused(await edge.post(path, "developer", body), "InvalidInput", 413)


async def test_a_bad_route_lists_its_problems(edge: Edge) -> None:
    problem = _refused(await edge.post("/v1/routes", "developer", b"route: x\nnonsense: 1"), "RouteInvalid", 422)
    assert problem["problems"]
    _refused(await edge.post("/v1/routes", "developer", b"\xff\xfe"), "RouteInvalid", 422)


async def test_a_route_with_personal_data_in_its_texts_is_refused(edge: Edge) -> None:
    route = """
route: hello
summary: Ask anna.leak@example.com about it.
start: done
steps: {done: {kind: end, outcome: done}}
handoff: {owner: operator}
"""
    problem = _refused(await edge.post("/v1/routes", "developer", route.encode()), "UnmaskedText", 422)
    assert "anna.leak" not in str(problem)


@pytest.mark.parametrize("kind", ["messages", "evidence", "hold", "resume", "cancel"])
async def test_what_a_run_is_told_is_committed_once(
    edge: Edge, services: Services, principal: Principal, kind: str
) -> None:
    await opened_run(services, principal, "r1")
    body = {"fields": {"amount": "410.00"}} if kind in ("messages", "evidence") else {}
    role = "operator" if kind in ("hold", "resume") else "app"
    first, again = [await edge.post(f"/v1/runs/r1/{kind}", role, body) for _ in range(2)]
    assert first.status_code == 202, first.text
    assert first.json() == again.json()


async def test_evidence_withdraws_the_review_that_rests_on_it(
    edge: Edge, services: Services, principal: Principal
) -> None:
    await opened_run(services, principal, "r1")
    review = await opened_review(services, principal, "r1")
    await edge.post("/v1/runs/r1/evidence", "app", {"fields": {"amount": "410.00"}}, key="e")
    body = {"verdict": "approve", "version": review.version, "digest": review.digest}
    _refused(await edge.post(f"/v1/approvals/{review.review_id}/decision", "approver", body), "ReviewStale", 410)


@pytest.mark.parametrize(
    ("kind", "fields", "refusal", "status"),
    [
        ("messages", {"amount": 1.5}, "InvalidInput", 422),
        ("messages", {"amount": CANARY}, "InvalidInput", 422),
        ("messages", {"customer_id": "c2"}, "NotAuthorized", 403),
        ("messages", {"unknown": CANARY}, "InvalidInput", 422),
        ("messages", {"order": "call +7 916 123-45-67"}, "UnmaskedText", 422),
        ("evidence", {"note": "x"}, "NotAuthorized", 403),
        ("messages", {}, "InvalidInput", 422),
        ("messages", {"amount": "1", "tenant": "other"}, "InvalidInput", 422),
    ],
)
async def test_a_message_that_the_route_does_not_allow_is_refused_before_it_is_stored(
    edge: Edge, services: Services, principal: Principal, kind: str, fields: Any, refusal: str, status: int
) -> None:
    await opened_run(services, principal, "r1")
    _refused(await edge.post(f"/v1/runs/r1/{kind}", "app", {"fields": fields}), refusal, status)


async def test_another_tenants_run_answers_like_an_unknown_one(
    edge: Edge, other: Callable[[str], Edge], services: Services, principal: Principal
) -> None:
    await opened_run(services, principal, "r1")
    stranger = other(f"{principal.tenant}x")
    theirs, unknown = await stranger.get("/v1/runs/r1", "operator"), await edge.get("/v1/runs/r2", "operator")
    assert theirs.json() | {"run": "r2"} == unknown.json()
    _refused(await stranger.post("/v1/runs/r1/hold", "operator", {}), "NotFound", 404)


@pytest.mark.parametrize(
    ("path", "role"),
    [("/v1/runs", "approver"), ("/v1/routes", "app"), ("/v1/runs/r1/hold", "app"), ("/v1/runs/r1/messages", "analyst")],
)
async def test_each_role_does_its_own(edge: Edge, path: str, role: str) -> None:
    body: Any = ROUTE.encode() if path == "/v1/routes" else {"route": "refund", "input": {}}
    if "r1" in path:
        body = {"fields": {"amount": "1"}} if "messages" in path else {}
    _refused(await edge.post(path, role, body), "NotAuthorized", 403)


async def test_without_a_good_token_nothing_is_told(edge: Edge) -> None:
    for headers in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic eA=="}):
        answer = await edge.http.get("/v1/runs", headers=headers)
        _refused(answer, "NotAuthenticated", 401)
        assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.usefixtures("installed")
async def test_the_canary_is_in_no_log(edge: Edge, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await edge.post("/v1/runs", "app", GOOD)
        await edge.post("/v1/runs", "app", GOOD | {"nonsense": CANARY}, key="k2")
    assert CANARY not in caplog.text
    assert "anna@" not in caplog.text


async def test_the_edge_is_alive_ready_and_counted(edge: Edge) -> None:
    assert (await edge.http.get("/healthz")).json() == {"status": "ok", "parts": {}}
    assert (await edge.http.get("/readyz")).json() == {"status": "ok", "parts": {"database": "ok", "temporal": "ok"}}
    await edge.get("/v1/runs/secret-run-id", "app")
    figures = (await edge.http.get("/metrics")).text
    assert 'route="/v1/runs/{run_id}",status="404"' in figures
    assert "secret-run-id" not in figures
