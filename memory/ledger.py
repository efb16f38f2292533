"""The ledger: intents, reviews, decisions, grants and effects, each step one transaction."""

from memory import decisions, effects, reviews
from memory.database import Database
from memory.effects import EffectRow
from memory.keys import Keys
from perdure.calls import Reservation, ReserveRequest, ReviewRequest, SettleRequest
from perdure.errors import PerdureError
from perdure.messages import Decision, DecisionOutcome, EffectResult, Principal, ReviewDetail, ReviewState


class Ledger:
    """The authority over what was approved and what was done. A refusal is committed before it is raised."""

    def __init__(self, database: Database, keys: Keys) -> None:
        self._database = database
        self._keys = keys

    async def open_review(self, request: ReviewRequest) -> ReviewState:
        """Ask for a decision on an intent as it is now. Raises ``NotFound`` and ``RunEnded``."""
        async with self._database.transaction(request.principal) as connection:
            return await reviews.open_review(connection, self._keys, request)

    async def read_review(self, principal: Principal, review_id: str) -> ReviewState:
        """Raises ``NotFound``."""
        async with self._database.transaction(principal) as connection:
            return await reviews.read(connection, self._keys, principal.tenant, review_id)

    async def review_detail(self, principal: Principal, review_id: str) -> ReviewDetail:
        """What a reviewer is shown. Raises ``NotFound``."""
        async with self._database.transaction(principal) as connection:
            return await reviews.detail(connection, self._keys, principal.tenant, review_id)

    async def list_reviews(
        self, principal: Principal, *, status: str | None = None, limit: int = 50, after: str | None = None
    ) -> list[ReviewState]:
        """Oldest first; ``after`` is the last review id of the page before."""
        async with self._database.transaction(principal) as connection:
            return await reviews.page(connection, self._keys, principal.tenant, status=status, limit=limit, after=after)

    async def decide(self, principal: Principal, decision: Decision) -> DecisionOutcome:
        """Accept or refuse a decision. Raises ``NotFound`` alone."""
        async with self._database.transaction(principal) as connection:
            return await decisions.decide(connection, self._keys, principal, decision)

    async def close_review(self, principal: Principal, review_id: str, status: str, because: str) -> ReviewState:
        """Close a review as ``expired`` or ``cancelled`` unless it was decided. Raises ``NotFound``."""
        async with self._database.transaction(principal) as connection:
            return await reviews.close(connection, self._keys, principal, review_id, status, because)

    async def warn(self, principal: Principal, review_id: str) -> None:
        """Write down, once, that a pending review is about to expire. Raises ``NotFound``."""
        async with self._database.transaction(principal) as connection:
            await reviews.warn(connection, self._keys, principal, review_id)

    async def reserve(self, request: ReserveRequest) -> Reservation:
        """Consume the grant for one effect, or tell what became of it.

        Raises ``GrantExceeded``, ``GrantExpired``, ``SubjectHeld``, ``RunEnded`` and ``NotFound``.
        """
        async with self._database.transaction(request.principal) as connection:
            answer = await effects.reserve(connection, self._keys, request)
        if isinstance(answer, PerdureError):
            raise answer
        return answer

    async def settle(self, request: SettleRequest) -> EffectResult:
        """Store the final result, or return the first. Raises ``LeaseLost`` and ``NotFound``."""
        async with self._database.transaction(request.principal) as connection:
            return await effects.settle(connection, self._keys, request)

    async def effects(self, principal: Principal, run_id: str) -> list[EffectRow]:
        """The effects of a run, oldest first."""
        async with self._database.transaction(principal) as connection:
            return await effects.of_run(connection, principal.tenant, run_id)
