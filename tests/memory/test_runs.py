"""A run is opened once, receives each message once, and nothing reaches it after its end."""

import asyncio

import pytest

from memory import journal
from memory.database import Database, many
from memory.keys import Keys
from memory.ledger import Ledger
from memory.routes import Routes
from memory.runs import Runs
from perdure.errors import IdempotencyMismatch, NotFound, RunEnded
from perdure.messages import Obligation, Principal, RunInput, RunMessage, RunResult
from perdure.names import Event, Stream
from tests.memory.scene import Scene, decision, open_scene

END = RunResult(outcome="refunded", step="done")


@pytest.fixture
async def scene(ledger: Ledger, runs: Runs, routes: Routes, principal: Principal) -> Scene:
    return await open_scene(ledger, runs, routes, principal)


async def opened(scene: Scene, run_id: str, order: str = "o1", route: str = "refund") -> None:
    start = RunInput(tenant=scene.principal.tenant, run_id=run_id, route=route, actor="app", input={"order_id": order})
    stored = await scene.routes.get(scene.principal, "refund")
    await scene.runs.open(scene.principal, start, stored, "execution", None)


async def history(database: Database, keys: Keys, scene: Scene, run_id: str = "r1") -> list[journal.JournalEvent]:
    async with database.transaction(scene.principal) as connection:
        return await journal.read(connection, keys, scene.principal.tenant, Stream.RUN, run_id)


async def topics(database: Database, scene: Scene) -> list[str]:
    async with database.transaction(scene.principal) as connection:
        return [row["topic"] for row in await many(connection, "SELECT topic FROM perdure.outbox")]


def message(id_: str = "m1", kind: str = "message", **fields: str) -> RunMessage:
    return RunMessage.model_validate({"id": id_, "kind": kind, "actor": "app", "fields": fields})


async def test_a_run_is_opened_once(scene: Scene, database: Database, keys: Keys) -> None:
    await asyncio.gather(*(opened(scene, "r2") for _ in range(5)))
    row = await scene.runs.get(scene.principal, "r2")
    assert (row.status, row.held, row.route_version, row.started_by) == ("running", False, 1, "app")
    assert row.sealed_for == ("run", "r2")
    assert [e.type for e in await history(database, keys, scene, "r2")] == [Event.RUN_STARTED]


async def test_another_input_or_route_with_its_id_is_refused(scene: Scene) -> None:
    for order, route in (("o2", "refund"), ("o1", "other")):
        with pytest.raises(IdempotencyMismatch):
            await opened(scene, "r1", order, route)
    assert (await scene.runs.get(scene.principal, "r1")).route == "refund"


async def test_a_message_is_received_once(scene: Scene, database: Database, keys: Keys) -> None:
    sent = message(note="x")
    events = await asyncio.gather(*(scene.runs.receive(scene.principal, "r1", sent) for _ in range(5)))
    assert len(set(events)) == 1
    assert await scene.runs.message(scene.principal, events[0]) == sent
    assert [e.type for e in await history(database, keys, scene)] == [Event.RUN_STARTED, Event.RUN_MESSAGE]
    assert await topics(database, scene) == ["message"]


async def test_another_content_with_its_id_is_refused(scene: Scene, database: Database) -> None:
    await scene.runs.receive(scene.principal, "r1", message(note="x"))
    for other in (message(note="y"), message(kind="evidence", note="x"), message(kind="hold")):
        with pytest.raises(IdempotencyMismatch):
            await scene.runs.receive(scene.principal, "r1", other)
    assert await topics(database, scene) == ["message"]
    assert not (await scene.runs.get(scene.principal, "r1")).held


async def test_two_runs_may_get_the_same_message(scene: Scene) -> None:
    await opened(scene, "r2")
    received = [await scene.runs.receive(scene.principal, run, message(note="x")) for run in ("r1", "r2")]
    assert received[0] != received[1]


async def test_an_unknown_run_or_message_is_not_there(scene: Scene) -> None:
    foreign = scene.principal.model_copy(update={"tenant": f"{scene.principal.tenant}x"})
    event = await scene.runs.receive(scene.principal, "r1", message(note="x"))
    for who, run in ((scene.principal, "r9"), (foreign, "r1")):
        with pytest.raises(NotFound):
            await scene.runs.receive(who, run, message())
        with pytest.raises(NotFound):
            await scene.runs.get(who, run)
    for who, name in ((scene.principal, "unknown"), (foreign, event)):
        with pytest.raises(NotFound):
            await scene.runs.message(who, name)


async def test_after_the_end_only_a_repeat_is_answered(scene: Scene, database: Database) -> None:
    first = await scene.runs.receive(scene.principal, "r1", message(note="x"))
    await scene.runs.end(scene.principal, "r1", END, ())
    assert await scene.runs.receive(scene.principal, "r1", message(note="x")) == first
    for kind in ("message", "evidence", "hold", "resume", "cancel"):
        with pytest.raises(RunEnded):
            await scene.runs.receive(scene.principal, "r1", message(kind, kind))
    assert await topics(database, scene) == ["message"]


async def test_a_held_run_says_so_until_it_is_resumed(scene: Scene, approver: Principal) -> None:
    state = await scene.opened()
    assert (await scene.runs.get(scene.principal, "r1")).status == "waiting"
    await scene.runs.receive(scene.principal, "r1", message("h", "hold"))
    row = await scene.runs.get(scene.principal, "r1")
    assert (row.status, row.held, row.waiting_for) == ("held", True, "approval:ask")
    assert [r.run_id for r in await scene.runs.list(scene.principal, status="held")] == ["r1"]
    assert (await scene.ledger.decide(approver, decision(state))).accepted
    await scene.runs.receive(scene.principal, "r1", message("r", "resume"))
    row = await scene.runs.get(scene.principal, "r1")
    assert (row.status, row.held, row.waiting_for) == ("running", False, None)


async def test_the_end_is_written_once_with_what_was_owed(scene: Scene, database: Database, keys: Keys) -> None:
    state = await scene.opened()
    owed = Obligation(id="o", kind="approval", owner="operator", opened_at=state.opened_at, closed="cancelled")
    for result in (END, RunResult(outcome="cancelled", step="ask")):
        await scene.runs.end(scene.principal, "r1", result, (owed,))
    row = await scene.runs.get(scene.principal, "r1")
    assert (row.status, row.outcome, row.step, row.waiting_for) == ("ended", "refunded", "done", None)
    assert row.ended_at is not None
    last = (await history(database, keys, scene))[-1]
    assert (last.type, last.payload["obligations"][0]["owner"]) == (Event.RUN_ENDED, "operator")
    assert (await scene.ledger.read_review(scene.principal, state.review_id)).status == "cancelled"
    await scene.runs.abandon(scene.principal, "r1", "late")
    assert (await scene.runs.get(scene.principal, "r1")).status == "ended"


async def test_a_hand_off_is_written_down_as_one(scene: Scene, database: Database, keys: Keys) -> None:
    await scene.runs.end(scene.principal, "r1", RunResult(outcome="handed_off", step="ask", reason="expired"), ())
    assert (await history(database, keys, scene))[-1].type == Event.RUN_HANDED_OFF


async def test_a_run_that_could_not_begin_is_written_down_once(scene: Scene, database: Database, keys: Keys) -> None:
    for _ in range(2):
        await scene.runs.refuse(scene.principal, "r7", RunResult(outcome="refused", step="-", reason="NotFound"))
    assert [e.type for e in await history(database, keys, scene, "r7")] == [Event.RUN_REFUSED]
    with pytest.raises(NotFound):
        await scene.runs.get(scene.principal, "r7")


async def test_an_abandoned_run_is_over(scene: Scene, database: Database, keys: Keys) -> None:
    state = await scene.opened()
    for because in ("its workflow is gone", "again"):
        await scene.runs.abandon(scene.principal, "r1", because)
    row = await scene.runs.get(scene.principal, "r1")
    assert (row.status, row.reason) == ("terminated", "its workflow is gone")
    assert (await scene.ledger.read_review(scene.principal, state.review_id)).status == "cancelled"
    assert [e.type for e in await history(database, keys, scene)].count(Event.RUN_ABANDONED) == 1
    with pytest.raises(RunEnded):
        await scene.runs.receive(scene.principal, "r1", message())
    await scene.runs.abandon(scene.principal, "unknown", "nothing happens")


async def test_runs_are_listed_newest_first_page_by_page(scene: Scene) -> None:
    for n in range(2, 8):
        await opened(scene, f"r{n}")
    await scene.runs.end(scene.principal, "r3", END, ())
    everything = [row.run_id for row in await scene.runs.list(scene.principal)]
    assert everything == ["r7", "r6", "r5", "r4", "r3", "r2", "r1"]
    paged: list[str] = []
    while rows := await scene.runs.list(scene.principal, limit=3, after=paged[-1] if paged else None):
        paged += [row.run_id for row in rows]
    assert paged == everything
    assert [row.run_id for row in await scene.runs.list(scene.principal, status="ended")] == ["r3"]
    assert await scene.runs.list(scene.principal, route="other") == []
    assert await scene.runs.list(scene.principal, after="unknown") == []
    foreign = scene.principal.model_copy(update={"tenant": f"{scene.principal.tenant}x"})
    assert await scene.runs.list(foreign) == []
