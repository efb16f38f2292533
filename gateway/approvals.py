"""Approvals over HTTP: what waits for a decision, what would change, and the decision."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from gateway.authentication import Anyone, Role
from gateway.idempotency import Key
from gateway.intake import Intake
from gateway.problems import RESPONSES
from gateway.services import Use
from perdure import errors
from perdure.api import ApprovalList, Decided, DecideReview
from perdure.errors import NotAuthorized, PerdureError
from perdure.ids import Identifier, derived
from perdure.messages import Decision, DecisionOutcome, ReviewDetail, ReviewState
from perdure.tokens import Caller

ReviewInPath = Annotated[Identifier, Path(description="The review's id")]
Status = Literal["pending", "approved", "rejected", "expired", "cancelled"]

_BY_NAME = {error.__name__: error for error in errors.leaves(PerdureError)}

router = APIRouter(prefix="/v1/approvals", tags=["approvals"], responses=RESPONSES)


@router.get("")
async def list_approvals(
    caller: Anyone,
    services: Use,
    status: Status | None = "pending",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    after: Annotated[Identifier | None, Query()] = None,
) -> ApprovalList:
    """Reviews whose approvers include a role of the caller, oldest first; an operator sees all."""
    page = await services.ledger.list_reviews(caller.principal, status=status, limit=limit, after=after)
    shown = tuple(review for review in page if _concerns(caller, review))
    return ApprovalList(items=shown, next=page[-1].review_id if len(page) == limit else None)


@router.get("/{review_id}")
async def show(review_id: ReviewInPath, caller: Anyone, services: Use) -> ReviewDetail:
    """The reviewer's screen: a short list of changes, the evidence, the limits and the expiry."""
    detail = await services.ledger.review_detail(caller.principal, review_id)
    if not _concerns(caller, detail.state):
        raise NotAuthorized("this review is for other roles", review=review_id)
    return detail


@router.post("/{review_id}/decision")
async def decide(review_id: ReviewInPath, body: DecideReview, key: Key, caller: Anyone, services: Use) -> Decided:
    """Approve or reject what was looked at. The answer means that it is committed; the run is told after.

    The review itself remembers the decision and its key, so a repeat is answered by the same transaction.
    """
    principal = caller.principal
    intake = Intake(services.masker, services.seals, principal, body.personal)
    comment = None if body.comment is None else await intake.text("comment", body.comment)
    decision = Decision(
        review_id=review_id,
        decision_id=f"dec_{derived(principal.tenant, review_id, key)}",
        verdict=body.verdict,
        version=body.version,
        digest=body.digest,
        comment=comment,
    )
    outcome = await services.ledger.decide(principal, decision)
    if not outcome.accepted:
        raise _refusal(outcome)
    return Decided(
        review_id=review_id, decision_id=outcome.decision_id, verdict=body.verdict, grant_id=outcome.grant_id
    )


def _concerns(caller: Caller, review: ReviewState) -> bool:
    roles = set(caller.principal.roles)
    return Role.OPERATOR in roles or bool(roles & set(review.approvers))


def _refusal(outcome: DecisionOutcome) -> PerdureError:
    error = _BY_NAME.get(outcome.refusal or "", errors.Refusal)
    ids = {"review": outcome.review_id} | ({"first": outcome.first} if outcome.first else {})
    return error(outcome.message, **ids)
