"""One run of each kind, told in the fewest words; what they do is recorded and replayed."""

import asyncio
from collections.abc import Awaitable, Callable

from perdure import names
from perdure.messages import RunMessage
from tests.stage import ROUTE, Run, Stage
from workflows.journey import MESSAGES_PER_EXECUTION

WAITING = """
route: talk
input: {order: {type: identifier}}
state:
  answer: {type: string, set_by: [user]}
start: ask
steps:
  ask: {kind: wait, sets: [answer], timeout: 24h, next: done, on_timeout: silent}
  done: {kind: end, outcome: answered}
  silent: {kind: end, outcome: silent}
handoff: {owner: support}
"""


async def approved(stage: Stage) -> Run:
    run = await stage.start()
    await run.execute_update(names.UPDATE_DECIDE, stage.decision(await stage.review(run)))
    return run


async def decided_elsewhere(stage: Stage) -> Run:
    run = await stage.start()
    await stage.ledger.decide(stage.approver, stage.decision(await stage.review(run)))
    return run


async def rejected(stage: Stage) -> Run:
    run = await stage.start()
    await run.signal(names.SIGNAL_DECIDE, stage.decision(await stage.review(run), "reject"))
    return run


async def amended(stage: Stage) -> Run:
    run = await stage.start()
    await stage.review(run)
    await stage.send(run, amount="82.00")
    await run.execute_update(names.UPDATE_DECIDE, stage.decision(await stage.review(run, version=2)))
    return run


async def expired(stage: Stage) -> Run:
    await stage.install(ROUTE.replace("expires_after: 72h", "expires_after: 3s\n    warn_before: 1s"))
    return await stage.start()


async def held(stage: Stage) -> Run:
    run = await stage.start()
    review = await stage.review(run)
    await stage.send(run, "hold")
    await stage.ledger.decide(stage.approver, stage.decision(review))
    await stage.waiting(run, "resume")
    await stage.send(run, "resume")
    return run


async def cancelled(stage: Stage) -> Run:
    run = await stage.start()
    await stage.review(run)
    await stage.send(run, "cancel")
    return run


async def refused(stage: Stage) -> Run:
    return await stage.start(order=7)


async def answer_lost(stage: Stage) -> Run:
    stage.provider.drop_answers = 1
    return await approved(stage)


async def unknown_effect(stage: Stage) -> Run:
    stage.provider.do_nothing = True
    return await approved(stage)


async def tool_refused(stage: Stage) -> Run:
    stage.provider.statuses = [422]
    return await approved(stage)


async def waited(stage: Stage) -> Run:
    await stage.install(WAITING)
    run = await stage.start("talk", order="A-1")
    await stage.waiting(run, "message:ask")
    await stage.send(run, answer="yes")
    return run


async def continued(stage: Stage) -> Run:
    """The last execution of a run that started afresh."""
    run = await stage.start()
    review = await stage.review(run)
    for number in range(MESSAGES_PER_EXECUTION):
        odd = RunMessage(id=f"odd{number}", kind="message", actor="user", fields={"nothing": number})
        await run.signal(names.SIGNAL_MESSAGE, odd)
    fresh = stage.latest(run)
    while (await fresh.describe()).run_id == run.result_run_id:
        await asyncio.sleep(0.02)
    await fresh.execute_update(names.UPDATE_DECIDE, stage.decision(review))
    return fresh


SCENARIOS: dict[str, Callable[[Stage], Awaitable[Run]]] = {
    scenario.__name__: scenario
    for scenario in (
        approved,
        decided_elsewhere,
        rejected,
        amended,
        expired,
        held,
        cancelled,
        refused,
        answer_lost,
        unknown_effect,
        tool_refused,
        waited,
        continued,
    )
}
