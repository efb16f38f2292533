"""Decisions over HTTP: one is accepted, for exactly what was looked at, by someone who may; all else is told why."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from gateway.services import Services
from perdure.messages import Principal, ReviewState
from tests.gateway.conftest import Edge, opened_review, opened_run


@pytest.fixture
async def review(services: Services, principal: Principal) -> ReviewState:
    await opened_run(services, principal, "r1")
    return await opened_review(services, principal, "r1")


def _body(review: ReviewState, verdict: str = "approve", **changes: Any) -> dict[str, Any]:
    return {"verdict": verdict, "version": review.version, "digest": review.digest, **changes}


def _path(review: ReviewState) -> str:
    return f"/v1/approvals/{review.review_id}/decision"


def _kind(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"]


async def test_the_reviewer_sees_a_short_list_of_changes(edge: Edge, review: ReviewState) -> None:
    [listed] = (await edge.get("/v1/approvals", "approver")).json()["items"]
    assert listed["review_id"] == review.review_id
    shown = (await edge.get(f"/v1/approvals/{review.review_id}", "approver")).json()
    assert {change["field"]: change["proposed"] for change in shown["changes"]}["amount"] == "820.00"


async def test_other_roles_see_no_review_that_is_not_theirs(edge: Edge, review: ReviewState) -> None:
    assert (await edge.get("/v1/approvals", "analyst")).json()["items"] == []
    assert _kind(await edge.get(f"/v1/approvals/{review.review_id}", "analyst")) == (403, "NotAuthorized")
    assert len((await edge.get("/v1/approvals", "operator")).json()["items"]) == 1


async def test_a_decision_is_committed_once_and_its_comment_is_masked(edge: Edge, review: ReviewState) -> None:
    body = _body(review, comment="Checked with Anna, anna@example.com", personal=["Anna"])
    first, again = [await edge.post(_path(review), "approver", body) for _ in range(2)]
    assert first.status_code == 200, first.text
    assert first.json() == again.json()
    state = (await edge.get(f"/v1/approvals/{review.review_id}", "approver")).json()["state"]
    assert state["status"] == "approved"
    assert state["comment"]["masked"] == "Checked with ⟦PERSONAL_1⟧, ⟦EMAIL_1⟧"


async def test_a_second_decision_is_told_the_first(edge: Edge, review: ReviewState) -> None:
    await edge.post(_path(review), "approver", _body(review))
    late = await edge.post(_path(review), "approver", _body(review, "reject"), key="k2")
    assert _kind(late) == (409, "AlreadyDecided")
    assert late.json()["first"] == "approve"


async def test_of_two_at_once_exactly_one_is_accepted(edge: Edge, review: ReviewState) -> None:
    both = await asyncio.gather(
        edge.post(_path(review), "approver", _body(review), key="a"),
        edge.post(_path(review), "approver", _body(review, "reject"), key="b"),
    )
    assert sorted(answer.status_code for answer in both) == [200, 409]


@pytest.mark.parametrize("changes", [{"version": 2}, {"digest": "ab" * 32}])
async def test_a_decision_on_something_else_is_stale(edge: Edge, review: ReviewState, changes: Any) -> None:
    assert _kind(await edge.post(_path(review), "approver", _body(review, **changes))) == (410, "ReviewStale")


async def test_the_old_version_cannot_be_approved_after_an_amendment(
    edge: Edge, services: Services, principal: Principal, review: ReviewState
) -> None:
    newer = await opened_review(services, principal, "r1", amount="410.00", opening=2)
    assert _kind(await edge.post(_path(review), "approver", _body(review))) == (410, "ReviewStale")
    assert (await edge.post(_path(newer), "approver", _body(newer), key="k2")).status_code == 200


async def test_an_expired_review_cannot_be_decided(edge: Edge, services: Services, principal: Principal) -> None:
    await opened_run(services, principal, "r1")
    review = await opened_review(services, principal, "r1", seconds=0.05)
    await asyncio.sleep(0.1)
    assert _kind(await edge.post(_path(review), "approver", _body(review))) == (410, "ReviewExpired")


async def test_nothing_is_decided_in_a_run_that_is_over(
    edge: Edge, services: Services, principal: Principal, review: ReviewState
) -> None:
    await services.runs.abandon(principal, "r1", "terminated")
    assert _kind(await edge.post(_path(review), "approver", _body(review))) == (410, "RunEnded")


async def test_without_the_role_nothing_is_decided(edge: Edge, review: ReviewState) -> None:
    assert _kind(await edge.post(_path(review), "operator", _body(review))) == (403, "NotAuthorized")


async def test_another_tenants_review_answers_like_an_unknown_one(
    edge: Edge, other: Callable[[str], Edge], review: ReviewState
) -> None:
    theirs = await other(f"{edge.tenant}x").post(_path(review), "approver", _body(review))
    unknown = await edge.post("/v1/approvals/rev_none/decision", "approver", _body(review))
    assert _kind(theirs) == _kind(unknown) == (404, "NotFound")
    assert theirs.json() | {"review": "rev_none"} == unknown.json()
