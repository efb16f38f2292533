"""Reserve and settle: the two ends of an effect, both in the ledger."""

from temporalio import activity

from memory.ledger import Ledger
from perdure import names
from perdure.calls import Reservation, ReserveRequest, SettleRequest
from perdure.messages import EffectResult


class EffectActivities:
    """The ledger as activities."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @activity.defn(name=names.ACTIVITY_RESERVE)
    async def reserve(self, request: ReserveRequest) -> Reservation:
        """Check the grant again and consume it, or say what became of the effect."""
        return await self._ledger.reserve(request)

    @activity.defn(name=names.ACTIVITY_SETTLE)
    async def settle(self, request: SettleRequest) -> EffectResult:
        """Store the final result; the first one stays."""
        return await self._ledger.settle(request)
