"""Reviews from a run's side: open, read, close, warn; and decisions that came over Temporal."""

from temporalio import activity

from memory.ledger import Ledger
from perdure import names
from perdure.calls import CloseReview, DecideReview, Note, ReadReview, ReviewRequest
from perdure.errors import NotAuthenticated, NotFound
from perdure.messages import Decision, DecisionOutcome, Principal, ReviewState
from perdure.proof import check_proof
from perdure.tokens import KeySource
from pii.seal import Seals


class ApprovalActivities:
    """The ledger's reviews as activities."""

    def __init__(self, ledger: Ledger, seals: Seals, keys: KeySource, *, allow_asserted: bool) -> None:
        self._ledger = ledger
        self._seals = seals
        self._keys = keys
        self._allow_asserted = allow_asserted

    @activity.defn(name=names.ACTIVITY_OPEN_REVIEW)
    async def open_review(self, request: ReviewRequest) -> ReviewState:
        """Open, or find the one that this opening made."""
        return await self._ledger.open_review(request)

    @activity.defn(name=names.ACTIVITY_READ_REVIEW)
    async def read_review(self, request: ReadReview) -> ReviewState:
        """The row as it is now."""
        return await self._ledger.read_review(request.principal, request.review_id)

    @activity.defn(name=names.ACTIVITY_CLOSE_REVIEW)
    async def close_review(self, request: CloseReview) -> ReviewState:
        """Close it unless it was decided meanwhile."""
        return await self._ledger.close_review(request.principal, request.review_id, request.status, request.because)

    @activity.defn(name=names.ACTIVITY_NOTE)
    async def warn(self, request: Note) -> ReviewState:
        """Write down that its expiry is near, unless it was decided meanwhile; the answer says so."""
        await self._ledger.warn(request.principal, request.review_id)
        return await self._ledger.read_review(request.principal, request.review_id)

    @activity.defn(name=names.ACTIVITY_DECIDE)
    async def decide(self, request: DecideReview) -> DecisionOutcome:
        """Decide for whoever the proof names; without one, for nobody, and the ledger writes the refusal down."""
        principal = await self._who(request.tenant, request.decision)
        if (await self._ledger.read_review(principal, request.decision.review_id)).run_id != request.run_id:
            raise NotFound("there is no such review in this run", review=request.decision.review_id)
        if request.decision.comment is not None:
            await self._seals.verify(principal, request.decision.comment, "comment")
        return await self._ledger.decide(principal, request.decision)

    async def _who(self, tenant: str, decision: Decision) -> Principal:
        actor = decision.actor or "nobody"
        if decision.proof is None and self._allow_asserted:
            return Principal(tenant=tenant, actor=actor, roles=decision.roles, identity="asserted")
        try:
            return await check_proof(decision, tenant, self._keys)
        except NotAuthenticated:
            return Principal(tenant=tenant, actor=actor, roles=(), identity="asserted")
