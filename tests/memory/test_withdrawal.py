"""What a change undoes: open reviews and unused grants that rest on it, in the change's own transaction."""

import asyncio

import pytest

from memory import journal
from memory.database import Database, many
from memory.keys import Keys
from memory.ledger import Ledger
from memory.routes import Routes
from memory.runs import Runs
from perdure.calls import SettleRequest
from perdure.errors import GrantExceeded, IdempotencyMismatch
from perdure.messages import EffectResult, Principal, RunMessage, RunResult
from perdure.names import Event, Stream
from tests.memory.scene import Scene, decision, open_scene


@pytest.fixture
async def scene(ledger: Ledger, runs: Runs, routes: Routes, principal: Principal) -> Scene:
    return await open_scene(ledger, runs, routes, principal)


async def told(scene: Scene, kind: str, id_: str = "m1", **fields: str) -> None:
    message = RunMessage.model_validate({"id": id_, "kind": kind, "actor": "app", "fields": fields})
    await scene.runs.receive(scene.principal, "r1", message)


async def status(scene: Scene, review_id: str) -> tuple[str, str | None]:
    state = await scene.ledger.read_review(scene.principal, review_id)
    return state.status, state.cancelled_because


async def revoked(database: Database, scene: Scene) -> dict[str, str | None]:
    async with database.transaction(scene.principal) as connection:
        rows = await many(connection, "SELECT grant_id, revoked_because FROM perdure.grants")
    return {row["grant_id"]: row["revoked_because"] for row in rows}


async def events(database: Database, keys: Keys, scene: Scene, review_id: str) -> list[Event]:
    async with database.transaction(scene.principal) as connection:
        stream = await journal.read(connection, keys, scene.principal.tenant, Stream.REVIEW, review_id)
    return [event.type for event in stream]


@pytest.mark.parametrize(("kind", "because"), [("evidence", "evidence changed"), ("message", "fields changed")])
async def test_a_change_of_what_it_rests_on_undoes_a_review_and_a_grant(
    scene: Scene, database: Database, keys: Keys, kind: str, because: str
) -> None:
    pending = await scene.opened("ask.1.1", visit=1)
    granted = await scene.approved("ask.2.1", visit=2)
    await told(scene, kind, amount="1.00")
    assert await status(scene, pending.review_id) == ("cancelled", because)
    assert await status(scene, granted.review_id) == ("approved", None)
    assert await revoked(database, scene) == {granted.grant_id: because}
    assert (await events(database, keys, scene, pending.review_id))[-1] == Event.REVIEW_CANCELLED
    assert (await events(database, keys, scene, granted.review_id))[-1] == Event.GRANT_REVOKED


async def test_only_what_rests_on_the_field_is_undone(scene: Scene, database: Database) -> None:
    here = await scene.opened("ask.1.1", visit=1, rests_on=("amount",))
    there = await scene.opened("ask.2.1", visit=2, rests_on=("address",))
    await told(scene, "message", amount="1.00", note="x")
    assert (await status(scene, here.review_id))[0] == "cancelled"
    assert (await status(scene, there.review_id))[0] == "pending"


@pytest.mark.parametrize("kind", ["hold", "resume"])
async def test_a_message_without_fields_undoes_nothing(scene: Scene, database: Database, kind: str) -> None:
    pending, granted = await scene.opened("ask.1.1", visit=1), await scene.approved("ask.2.1", visit=2)
    await told(scene, kind)
    assert (await status(scene, pending.review_id))[0] == "pending"
    assert await revoked(database, scene) == {granted.grant_id: None}


async def test_a_used_grant_is_not_revoked_nor_its_effect_touched(scene: Scene, database: Database) -> None:
    granted = await scene.approved()
    held = await scene.reserved(granted)
    await told(scene, "evidence", charge_id="c2")
    assert await revoked(database, scene) == {granted.grant_id: None}
    result = EffectResult(outcome="done")
    request = SettleRequest(principal=scene.principal, run_id="r1", key=held.key, fence=held.fence, result=result)
    assert await scene.ledger.settle(request) == result


async def test_a_repeat_undoes_nothing_that_came_after_it(scene: Scene) -> None:
    await told(scene, "message", amount="1.00")
    later = await scene.opened(amount="1.00")
    await told(scene, "message", amount="1.00")
    assert (await status(scene, later.review_id))[0] == "pending"
    with pytest.raises(IdempotencyMismatch):
        await told(scene, "message", amount="2.00")
    assert (await status(scene, later.review_id))[0] == "pending"


async def test_a_newer_opening_supersedes_the_older_whatever_became_of_it(scene: Scene, database: Database) -> None:
    first = await scene.opened("ask.1.1", "1.00")
    second = await scene.approved("ask.1.2", "2.00")
    third = await scene.opened("ask.1.3", "3.00")
    assert await status(scene, first.review_id) == ("cancelled", "superseded")
    assert await revoked(database, scene) == {second.grant_id: "superseded"}
    assert [s.version for s in (first, second, third)] == [1, 2, 3]
    with pytest.raises(GrantExceeded):
        await scene.reserved(second, amount="2.00")


async def test_the_same_arguments_again_are_the_same_version_with_a_review_of_its_own(scene: Scene) -> None:
    first = await scene.opened("ask.1.1")
    second = await scene.opened("ask.1.2")
    assert first.review_id != second.review_id
    assert (first.version, second.version, first.digest) == (1, 1, second.digest)
    again = await scene.opened("ask.1.2")
    assert again == second


async def test_a_review_tells_what_changed_since_the_version_before(scene: Scene) -> None:
    await scene.opened("ask.1.1", "82000.00")
    state = await scene.opened("ask.1.2", "80000.00")
    detail = await scene.ledger.review_detail(scene.principal, state.review_id)
    assert detail.previous_version == 1
    changes = {change.field: (change.previous, change.proposed) for change in detail.changes}
    assert changes == {"amount": ("82000.00", "80000.00"), "limit.amount": ("82000.00", "80000.00")}
    assert [ref.value for ref in detail.evidence] == ["c1"]


async def test_the_end_of_a_run_undoes_everything_that_stands_open_in_it_and_nothing_else(
    scene: Scene, database: Database, ledger: Ledger, runs: Runs, routes: Routes
) -> None:
    other = await open_scene(ledger, runs, routes, scene.principal, "r2")
    elsewhere = await other.opened()
    pending, granted = await scene.opened("ask.1.1", visit=1), await scene.approved("ask.2.1", visit=2)
    await scene.runs.end(scene.principal, "r1", RunResult(outcome="refunded", step="done"), ())
    assert await status(scene, pending.review_id) == ("cancelled", "the run ended")
    assert await revoked(database, scene) == {granted.grant_id: "the run ended"}
    assert (await status(scene, elsewhere.review_id))[0] == "pending"


async def test_a_closed_review_stays_as_it_was_closed(scene: Scene, database: Database, keys: Keys) -> None:
    state = await scene.opened()
    for wanted in ("expired", "cancelled"):
        closed = await scene.ledger.close_review(scene.principal, state.review_id, wanted, "nobody came")
        assert closed.status == "expired"
    await told(scene, "message", amount="1.00")
    assert (await status(scene, state.review_id))[0] == "expired"
    assert await events(database, keys, scene, state.review_id) == [Event.REVIEW_OPENED, Event.REVIEW_EXPIRED]


async def test_a_review_that_was_decided_meanwhile_is_not_closed(scene: Scene) -> None:
    state = await scene.approved()
    closed = await scene.ledger.close_review(scene.principal, state.review_id, "expired", "late")
    assert (closed.status, closed.grant_id) == ("approved", state.grant_id)


async def test_a_warning_is_written_down_once(scene: Scene, database: Database, keys: Keys) -> None:
    state = await scene.opened()
    for _ in range(2):
        await scene.ledger.warn(scene.principal, state.review_id)
    assert await events(database, keys, scene, state.review_id) == [Event.REVIEW_OPENED, Event.REVIEW_WARNED]


async def test_a_reservation_and_a_change_at_once_are_one_after_the_other(scene: Scene, database: Database) -> None:
    """Either the grant was used before the change, or the change revoked it before it was used."""
    for n in range(10):
        state = await scene.approved(f"ask.{n}.1", visit=n)
        answers = await asyncio.gather(
            scene.reserved(state), told(scene, "message", f"m{n}", amount="1.00"), return_exceptions=True
        )
        assert answers[1] is None
        because = (await revoked(database, scene))[state.grant_id or ""]
        if isinstance(answers[0], GrantExceeded):
            assert because == "fields changed"
        else:
            assert not isinstance(answers[0], BaseException) and because is None


async def test_everything_at_once_never_locks_anybody_out(scene: Scene, approver: Principal) -> None:
    for n in range(5):
        state = await scene.opened(f"ask.{n}.1", visit=n)
        answers = await asyncio.gather(
            scene.ledger.decide(approver, decision(state)),
            scene.ledger.close_review(scene.principal, state.review_id, "expired", "late"),
            told(scene, "message", f"m{n}", amount="1.00"),
            scene.opened(f"ask.{n}.2", "3.00", visit=n),
            scene.ledger.warn(scene.principal, state.review_id),
            return_exceptions=True,
        )
        assert [a for a in answers if isinstance(a, BaseException)] == []


async def test_a_cancelled_run_has_nothing_left_to_approve_or_to_use(scene: Scene, approver: Principal) -> None:
    """From the commit of the cancellation on, not from when the run hears of it."""
    approved = await scene.approved()
    pending = await scene.opened("ask.2.1", "5.00", visit=2)
    await scene.runs.receive(scene.principal, scene.run_id, RunMessage(id="stop", kind="cancel", actor="app"))
    assert (await scene.ledger.decide(approver, decision(pending))).refusal == "ReviewStale"
    with pytest.raises(GrantExceeded):
        await scene.reserved(approved)
