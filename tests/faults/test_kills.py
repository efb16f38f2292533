"""A worker killed at any moment of an effect: the next one goes on, and the world sees one effect."""

import pytest

from tests.faults.conftest import Mortals
from tests.stage import Stage, run_id_of

MOMENTS = [
    "before reserve_effect",
    "after reserve_effect",
    "before call_tool",
    "during call_tool",
    "after call_tool",
    "before settle_effect",
    "after settle_effect",
]


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_killed_worker_leaves_one_effect(stage: Stage, mortals: Mortals, moment: str) -> None:
    """SIGKILL at each boundary of reserve, execute and settle; what is left is looked up, never repeated."""
    stage.provider.delay = 0.4 if moment.startswith("during") else 0
    doomed = mortals.start(moment)
    run = await mortals.start_run()
    review = await stage.review(run)
    assert (await stage.ledger.decide(stage.approver, stage.decision(review))).accepted
    await mortals.died(doomed)
    stage.provider.delay = 0
    await mortals.forget_the_dead(run)
    mortals.start()
    assert (await run.result()).outcome == "refunded"
    assert [refund["amount"] for refund in stage.provider.refunds.values()] == ["820.00"]
    assert stage.provider.attempts == 1
    [effect] = await stage.ledger.effects(stage.principal, run_id_of(run))
    assert (effect.status, [effect.key]) == ("done", list(stage.provider.refunds))
