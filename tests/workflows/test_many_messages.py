"""More messages than one execution takes in: a run starts afresh and loses none, counts none twice."""

import asyncio
from typing import Any

from perdure import names
from perdure.messages import RunMessage
from tests.stage import Run, Stage, until
from workflows.journey import MESSAGES_PER_EXECUTION

NOTES = """
route: notes
input: {topic: {type: identifier}}
state:
  note: {type: string, set_by: [user]}
  answer: {type: string, set_by: [user]}
start: ask
steps:
  ask: {kind: wait, sets: [answer], timeout: 48h, next: answered}
  answered: {kind: end, outcome: answered}
handoff: {owner: support}
"""
MANY = MESSAGES_PER_EXECUTION + 20


async def tell(run: Run, name: str, **fields: Any) -> None:
    message = RunMessage(id=name, kind="message", actor="user", fields=fields)
    await run.signal(names.SIGNAL_MESSAGE, message)


async def test_every_message_is_worked_in_once_across_a_fresh_start(stage: Stage) -> None:
    """More than 200 signals, each sent twice and all at once: each makes one event; the run goes on in a new
    execution, whose answer still counts."""
    await stage.install(NOTES)
    async with stage.working():
        run = await stage.start("notes", topic="x")
        before = (await stage.waiting(run, "message:ask")).events
        handle = stage.client.get_workflow_handle(run.id)
        await asyncio.gather(*(tell(handle, f"m{n % MANY}", note=f"n{n % MANY}") for n in range(2 * MANY)))

        async def all_in() -> bool:
            return (await stage.view(run)).events >= before + MANY

        await until(all_in, 60)
        view = await stage.view(run)
        assert (view.events, view.refused_messages) == (before + MANY, ())
        assert (await handle.describe()).run_id != run.first_execution_run_id
        await tell(handle, "last", answer="yes")
        assert (await stage.latest(run).result()).outcome == "answered"
        entered = 1
        assert (await stage.view(run)).events == before + MANY + 1 + entered
