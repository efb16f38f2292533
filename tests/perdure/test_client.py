"""The client gives typed answers and the same errors as inside, and repeats only what is safe to repeat."""

import json
from collections.abc import Callable

import httpx
import pytest

from perdure import errors
from perdure.api import RunStarted
from perdure.client import Client
from perdure.errors import (
    AlreadyDecided,
    InvalidInput,
    PerdureError,
    ReviewStale,
    RouteInvalid,
    StoreUnavailable,
    Unavailable,
)

STARTED = {
    "run_id": "r1",
    "workflow_id": "run:demo:r1",
    "route": "refund",
    "version": 1,
    "links": {"api": "/v1/runs/r1", "temporal": None},
}


class Gateway(httpx.AsyncBaseTransport):
    """Answers in turn what it is told to, and keeps what it was asked."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def _problem(kind: str, status: int, **members: object) -> httpx.Response:
    body = {"type": kind, "title": "t", "status": status, "detail": "said so", **members}
    return httpx.Response(status, json=body, headers={"Content-Type": "application/problem+json"})


def _client(gateway: Gateway, tries: int = 3) -> Client:
    return Client("http://gateway", "token", tries=tries, transport=gateway)


async def test_an_answer_is_typed_and_the_request_carries_token_and_key() -> None:
    gateway = Gateway(httpx.Response(201, json=STARTED))
    async with _client(gateway) as client:
        started = await client.start("refund", {"order_id": "o1"}, key="k1", personal=["Anna"])
    assert started == RunStarted.model_validate(STARTED)
    asked = gateway.asked[0]
    assert asked.headers["Authorization"] == "Bearer token"
    assert asked.headers["Idempotency-Key"] == "k1"
    assert json.loads(asked.content)["personal"] == ["Anna"]


async def test_what_may_pass_later_is_tried_again_with_the_same_key() -> None:
    lost = httpx.ReadTimeout("no answer")
    gateway = Gateway(lost, _problem("StoreUnavailable", 503), httpx.Response(201, json=STARTED))
    async with _client(gateway) as client:
        await client.start("refund", {})
    assert len({request.headers["Idempotency-Key"] for request in gateway.asked}) == 1
    assert len(gateway.asked) == 3


async def test_it_gives_up_with_the_gateways_own_error() -> None:
    gateway = Gateway(*[_problem("StoreUnavailable", 503) for _ in range(2)])
    with pytest.raises(StoreUnavailable, match="said so"):
        async with _client(gateway, tries=2) as client:
            await client.runs()
    assert len(gateway.asked) == 2


@pytest.mark.parametrize("family", [e for e in errors.leaves(PerdureError) if not issubclass(e, Unavailable)])
async def test_every_other_error_comes_back_as_itself_after_one_try(family: type[PerdureError]) -> None:
    gateway = Gateway(_problem(family.__name__, family.status, review="rev_1"))
    with pytest.raises(PerdureError) as raised:
        async with _client(gateway) as client:
            await client.approval("rev_1")
    assert type(raised.value) is family
    assert len(gateway.asked) == 1


async def test_ids_of_a_problem_come_along() -> None:
    gateway = Gateway(_problem("AlreadyDecided", 409, first="approve"))
    with pytest.raises(AlreadyDecided) as raised:
        async with _client(gateway) as client:
            await client.approval("rev_1")
    assert raised.value.ids == {"first": "approve"}


async def test_a_bad_route_brings_its_problems() -> None:
    problems = [{"file": "body", "step": "a", "field": "b", "message": "m", "path": None}]
    gateway = Gateway(_problem("RouteInvalid", 422, problems=problems))
    with pytest.raises(RouteInvalid) as raised:
        async with _client(gateway) as client:
            await client.install_route("route: x")
    assert raised.value.problems == problems


@pytest.mark.parametrize(
    ("answer", "family"),
    [
        (httpx.Response(502, text="<html>"), Unavailable),
        (httpx.Response(413, text="too big"), errors.Refusal),
        (httpx.Response(500, text="oops"), PerdureError),
        (httpx.Response(200, text="<html>"), PerdureError),
        (httpx.Response(200, json={"other": 1}), PerdureError),
        (_problem("NewInThatVersion", 410), errors.Refusal),
        (_problem("ReviewStale", 410), ReviewStale),
        (_problem("InvalidInput", 413), InvalidInput),
        (httpx.Response(422, json=["not", "an", "object"]), errors.Refusal),
    ],
)
async def test_an_answer_of_something_else_gets_the_right_family(
    answer: httpx.Response, family: type[PerdureError]
) -> None:
    with pytest.raises(family) as raised:
        async with _client(Gateway(answer), tries=1) as client:
            await client.runs()
    assert type(raised.value) is family


@pytest.mark.parametrize("broken", [httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError, httpx.PoolTimeout])
async def test_a_gateway_that_cannot_be_reached_is_unavailable(broken: Callable[[str], Exception]) -> None:
    with pytest.raises(Unavailable):
        async with _client(Gateway(broken("x")), tries=1) as client:
            await client.runs()
