"""The relay: what a transaction left for a run reaches it, in order, at least once."""

from datetime import UTC, datetime, timedelta

from memory.database import Database, one
from memory.outbox import Outbox, enqueue
from perdure import names
from tests.faults.test_engine import reservation
from tests.stage import Stage, run_id_of, until


async def test_messages_of_one_run_arrive_in_order(stage: Stage) -> None:
    """Hold and resume, many times over: the run ends as the last one says."""
    async with stage.parts.worker():
        run = await stage.start()
        await stage.waiting(run)
        for _ in range(10):
            await stage.send(run, "hold")
            await stage.send(run, "resume")
        await stage.send(run, "hold")
        await stage.parts.relay().drain()

        async def settled() -> bool:
            view = await stage.view(run)
            return view.status == "held" and view.events >= 21

        await until(settled)


async def test_a_message_delivered_twice_counts_once(stage: Stage) -> None:
    """A relay that died between the signal and its note delivers again; the run knows the message."""
    outbox = Outbox(stage.parts.relay_database)
    async with stage.parts.worker():
        run = await stage.start()
        before = (await stage.waiting(run)).events
        await stage.send(run, amount="1.00")
        claimed = [row for row in await outbox.claim(50, 0.05) if row.tenant == stage.principal.tenant]
        for row in claimed:
            message = await stage.runs.message(stage.principal, row.reference["event_id"])
            await run.signal(names.SIGNAL_MESSAGE, message)

        async def again() -> bool:
            return await stage.parts.relay().drain() > 0

        await until(again)
        await stage.review(run, version=2)
        view = await stage.waiting(run)
        assert [owed.id for owed in view.obligations] == ["approve.1.1", "approve.1.2"]
        assert view.events <= before + 4


async def test_the_relay_wakes_when_something_is_written(stage: Stage) -> None:
    """A committed decision reaches a waiting run well before the next look at the clock."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        await stage.ledger.decide(stage.approver, stage.decision(review))

        async def ended() -> bool:
            return (await stage.view(run)).status == "ended"

        await until(ended, seconds=3)


async def test_a_row_that_cannot_be_delivered_stops_no_other_and_stays(stage: Stage, database: Database) -> None:
    """A reference that leads nowhere waits in the outbox; what came after it arrives."""
    principal = stage.principal
    async with stage.parts.worker():
        run = await stage.start()
        await stage.waiting(run)
        reference = {"run_id": "gone", "event_id": "nothing"}
        async with database.transaction(principal) as connection:
            await enqueue(connection, principal.tenant, "nothing", "message", reference)
        await stage.send(run, "hold")
        await stage.parts.relay().drain()

        async def held() -> bool:
            return (await stage.view(run)).status == "held"

        await until(held)
    async with database.transaction(principal) as connection:
        row = await one(connection, "SELECT delivered_at FROM perdure.outbox WHERE event_id = 'nothing'")
    assert row is not None and row["delivered_at"] is None


async def test_a_terminated_run_is_found_and_what_it_was_doing_is_unknown(stage: Stage) -> None:
    """Nothing was sent to it: the sweep finds it, closes its review, and calls an effect under way unknown."""
    async with stage.working():
        waits, acts = await stage.start(), await stage.start()
        review = await stage.review(waits)
        doing = await stage.review(acts)
    outcome = await stage.ledger.decide(stage.approver, stage.decision(doing))
    await stage.ledger.reserve(reservation(stage, acts, doing, outcome.grant_id or "", "somebody"))
    for run in (waits, acts):
        await run.terminate("by hand")

    async def over() -> bool:
        await stage.parts.relay().sweep(datetime.now(UTC) - timedelta(hours=1))
        rows = await stage.runs.list(stage.principal)
        return {row.status for row in rows} == {"terminated"}

    await until(over)
    assert (await stage.ledger.decide(stage.approver, stage.decision(review))).refusal == "RunEnded"
    [effect] = await stage.ledger.effects(stage.principal, run_id_of(acts))
    assert effect.status == "unknown"
