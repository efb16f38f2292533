"""A run that has taken in many messages starts afresh: nothing is lost and nothing counts twice."""

import asyncio

from perdure import names
from perdure.messages import RunMessage
from tests.stage import ROUTE, Run, Stage, until
from workflows.journey import MESSAGES_PER_EXECUTION

COUNTING = ROUTE.replace("state:", "state:\n  note_no: {type: integer, set_by: [user]}")


async def say(run: Run, number: int) -> None:
    message = RunMessage(id=f"n{number}", kind="message", actor="user", fields={"note_no": number})
    await run.signal(names.SIGNAL_MESSAGE, message)


async def executions(stage: Stage, run: Run) -> int:
    found = [w async for w in stage.client.list_workflows(f"WorkflowId = '{run.id}'")]
    return len(found)


async def test_messages_around_a_fresh_start_each_count_once(stage: Stage) -> None:
    """200 signals at the very moment, most of them twice: each is worked in once, in one run that waits on."""
    await stage.install(COUNTING)
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        before = (await stage.waiting(run)).events
        latest = stage.latest(run)
        for number in range(MESSAGES_PER_EXECUTION - 20):
            await say(latest, number)
        numbers = range(MESSAGES_PER_EXECUTION - 20, MESSAGES_PER_EXECUTION + 180)
        await asyncio.gather(*(say(latest, number) for number in numbers), *(say(latest, n) for n in numbers[:150]))
        total = MESSAGES_PER_EXECUTION + 180

        async def worked_in() -> bool:
            return (await stage.view(run)).events >= before + total

        await until(worked_in)
        await until(lambda: _at_least_two(stage, run))
        view = await stage.waiting(run)
        assert view.events == before + total
        assert view.refused_messages == ()
        assert (await stage.review(run)).review_id == review.review_id
        await latest.signal(names.SIGNAL_DECIDE, stage.decision(review))
        assert (await latest.result()).outcome == "refunded"
    assert len(stage.provider.refunds) == 1


async def _at_least_two(stage: Stage, run: Run) -> bool:
    return await executions(stage, run) >= 2


async def test_a_decision_again_after_a_fresh_start_is_the_same_one(stage: Stage) -> None:
    """Twice across continue-as-new is once, and a hold survives it."""
    await stage.install(COUNTING)
    async with stage.working():
        run = await stage.start()
        decision = stage.decision(await stage.review(run))
        await stage.send(run, "hold")
        latest = stage.latest(run)
        await latest.signal(names.SIGNAL_DECIDE, decision)
        await stage.waiting(run, "resume")
        await asyncio.gather(*(say(latest, number) for number in range(MESSAGES_PER_EXECUTION)))
        await until(lambda: _at_least_two(stage, run))
        await latest.signal(names.SIGNAL_DECIDE, decision)
        view = await stage.waiting(run, "resume")
        assert view.status == "held"
        await stage.send(run, "resume")
        assert (await latest.result()).outcome == "refunded"
    assert len(stage.provider.refunds) == 1


async def test_a_change_around_a_fresh_start_still_withdraws_the_review(stage: Stage) -> None:
    """The message that fills the execution also amends the amount, and comes by signal alone."""
    await stage.install(COUNTING)
    async with stage.working():
        run = await stage.start()
        old = await stage.review(run)
        latest = stage.latest(run)
        amend = RunMessage(id="amend", kind="message", actor="user", fields={"amount": "82.00"})
        await asyncio.gather(
            *(say(latest, number) for number in range(MESSAGES_PER_EXECUTION)),
            latest.signal(names.SIGNAL_MESSAGE, amend),
        )
        new = await stage.review(run, version=2)
        await until(lambda: _at_least_two(stage, run))
        assert (await stage.ledger.decide(stage.approver, stage.decision(old))).refusal == "ReviewStale"
        assert (await stage.ledger.decide(stage.approver, stage.decision(new))).accepted
        assert (await latest.result()).outcome == "refunded"
    assert [refund["amount"] for refund in stage.provider.refunds.values()] == ["82.00"]
