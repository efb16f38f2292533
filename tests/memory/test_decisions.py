"""One decision on what was looked at, or a refusal that is written down and changes nothing."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from memory import journal
from memory.database import Database, one
from memory.keys import Keys
from memory.ledger import Ledger
from memory.routes import Routes
from memory.runs import Runs
from perdure.errors import NotFound
from perdure.masked import MaskedText
from perdure.messages import Principal, RunMessage, RunResult
from perdure.names import Event, Stream
from tests.memory.scene import Scene, decision, open_scene


@pytest.fixture
async def scene(ledger: Ledger, runs: Runs, routes: Routes, principal: Principal) -> Scene:
    return await open_scene(ledger, runs, routes, principal)


async def events(database: Database, keys: Keys, scene: Scene, review_id: str) -> list[Event]:
    async with database.transaction(scene.principal) as connection:
        stream = await journal.read(connection, keys, scene.principal.tenant, Stream.REVIEW, review_id)
    return [event.type for event in stream]


async def outbox(database: Database, scene: Scene) -> int:
    async with database.transaction(scene.principal) as connection:
        row = await one(connection, "SELECT count(*) AS n FROM perdure.outbox WHERE topic = 'decided'")
    assert row is not None
    return int(row["n"])


async def test_an_approval_makes_a_grant_an_event_and_a_wake_up(
    scene: Scene, approver: Principal, database: Database, keys: Keys
) -> None:
    state = await scene.opened()
    comment = MaskedText(masked="ok", detector="standin-1", seal="0" * 32)
    outcome = await scene.ledger.decide(approver, decision(state, comment=comment))
    assert outcome.accepted
    read = await scene.ledger.read_review(approver, state.review_id)
    assert (read.status, read.decided_by, read.identity, read.comment) == ("approved", "boss", "token", comment)
    assert read.grant_id == outcome.grant_id
    assert await events(database, keys, scene, state.review_id) == [Event.REVIEW_OPENED, Event.REVIEW_DECIDED]
    assert await outbox(database, scene) == 1


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [({"version": 2}, "ReviewStale"), ({"digest": "0" * 64}, "ReviewStale"), ({"version": 0}, "ReviewStale")],
)
async def test_another_version_or_digest_is_stale(
    scene: Scene, approver: Principal, database: Database, keys: Keys, changed: dict[str, Any], refusal: str
) -> None:
    state = await scene.opened()
    outcome = await scene.ledger.decide(approver, decision(state, **changed))
    assert (outcome.accepted, outcome.refusal) == (False, refusal)
    assert (await scene.ledger.read_review(approver, state.review_id)).status == "pending"
    assert (await events(database, keys, scene, state.review_id))[-1] == Event.REVIEW_DECISION_REFUSED
    assert await outbox(database, scene) == 0


async def test_the_same_decision_again_is_the_same_answer(
    scene: Scene, approver: Principal, database: Database
) -> None:
    state = await scene.opened()
    once = decision(state)
    first = await scene.ledger.decide(approver, once)
    assert await scene.ledger.decide(approver, once) == first
    assert await outbox(database, scene) == 1


async def test_a_second_decision_is_told_the_first(scene: Scene, approver: Principal) -> None:
    state = await scene.opened()
    assert (await scene.ledger.decide(approver, decision(state))).accepted
    second = await scene.ledger.decide(approver, decision(state, "reject"))
    assert (second.accepted, second.refusal, second.first) == (False, "AlreadyDecided", "approve")


async def test_the_same_decision_id_with_another_verdict_is_not_a_repeat(scene: Scene, approver: Principal) -> None:
    state = await scene.opened()
    once = decision(state)
    assert (await scene.ledger.decide(approver, once)).accepted
    turned = await scene.ledger.decide(approver, once.model_copy(update={"verdict": "reject"}))
    assert (turned.accepted, turned.first) == (False, "approve")


async def test_of_many_decisions_at_once_exactly_one_is_accepted(scene: Scene, approver: Principal) -> None:
    for round_ in range(10):
        state = await scene.opened(f"ask.1.{round_ + 1}", f"{100 + round_}.00")
        outcomes = await asyncio.gather(
            *(scene.ledger.decide(approver, decision(state, v)) for v in ("approve", "reject") * 3)
        )
        accepted = [o for o in outcomes if o.accepted]
        assert len(accepted) == 1
        final = await scene.ledger.read_review(approver, state.review_id)
        told = {"approved": "approve", "rejected": "reject"}[final.status]
        assert {o.first for o in outcomes if not o.accepted} == {told}
        assert (final.grant_id is not None) == (told == "approve")


async def test_after_the_expiry_nothing_is_decided(scene: Scene, approver: Principal) -> None:
    state = await scene.opened(expires_after=timedelta(milliseconds=20))
    await asyncio.sleep(0.05)
    assert (await scene.ledger.decide(approver, decision(state))).refusal == "ReviewExpired"
    closed = await scene.ledger.close_review(scene.principal, state.review_id, "expired", "nobody came")
    assert closed.status == "expired"
    assert (await scene.ledger.decide(approver, decision(state))).refusal == "ReviewExpired"


async def test_without_the_role_nothing_is_decided_or_told(scene: Scene, approver: Principal) -> None:
    state = await scene.opened()
    stranger = approver.model_copy(update={"roles": ("operator", "Approver")})
    assert (await scene.ledger.decide(stranger, decision(state))).refusal == "NotAuthorized"
    assert (await scene.ledger.decide(approver, decision(state))).accepted
    late = await scene.ledger.decide(stranger, decision(state))
    assert (late.refusal, late.first) == ("NotAuthorized", None)


async def test_another_tenant_hears_what_an_unknown_id_hears(scene: Scene, approver: Principal) -> None:
    state = await scene.opened()
    foreign = approver.model_copy(update={"tenant": scene.principal.tenant + "x"})
    answers = []
    for name in (state.review_id, "rev_unknown"):
        with pytest.raises(NotFound) as refused:
            await scene.ledger.decide(foreign, decision(state, review_id=name))
        answers.append(str(refused.value).replace(name, "…") + repr(sorted(refused.value.ids)))
        with pytest.raises(NotFound):
            await scene.ledger.read_review(foreign, name)
        with pytest.raises(NotFound):
            await scene.ledger.review_detail(foreign, name)
    assert answers[0] == answers[1]
    assert await scene.ledger.list_reviews(foreign) == []


async def test_after_the_run_ended_nothing_is_decided(scene: Scene, approver: Principal) -> None:
    state = await scene.opened()
    await scene.runs.end(scene.principal, "r1", RunResult(outcome="cancelled", step="ask"), ())
    assert (await scene.ledger.decide(approver, decision(state))).refusal == "RunEnded"


async def test_an_abandoned_run_loses_its_grants(scene: Scene, approver: Principal, database: Database) -> None:
    state = await scene.approved()
    await scene.runs.abandon(scene.principal, "r1", "its workflow is gone")
    async with database.transaction(scene.principal) as connection:
        row = await one(
            connection, "SELECT revoked_because FROM perdure.grants WHERE grant_id = :id", id=state.grant_id
        )
    assert row is not None and dict(row) == {"revoked_because": "its workflow is gone"}
    assert (await scene.runs.get(scene.principal, "r1")).status == "terminated"


async def test_changed_evidence_cancels_the_review_before_the_decision(scene: Scene, approver: Principal) -> None:
    state = await scene.opened()
    message = RunMessage(id="m1", kind="evidence", actor="app", fields={"charge_id": "c2"})
    await scene.runs.receive(scene.principal, "r1", message)
    assert (await scene.ledger.decide(approver, decision(state))).refusal == "ReviewStale"
    after = await scene.ledger.read_review(approver, state.review_id)
    assert (after.status, after.cancelled_because) == ("cancelled", "evidence changed")


async def test_a_message_about_something_else_leaves_the_review(scene: Scene, approver: Principal) -> None:
    state = await scene.opened()
    await scene.runs.receive(
        scene.principal, "r1", RunMessage(id="m1", kind="message", actor="app", fields={"note": "x"})
    )
    assert (await scene.ledger.decide(approver, decision(state))).accepted


async def test_decisions_and_messages_at_once_never_lock_each_other_out(scene: Scene, approver: Principal) -> None:
    for round_ in range(10):
        state = await scene.opened(f"ask.1.{round_ + 1}", f"{100 + round_}.00")
        message = RunMessage(id=f"m{round_}", kind="message", actor="app", fields={"amount": "1.00"})
        outcome, _ = await asyncio.gather(
            scene.ledger.decide(approver, decision(state)), scene.runs.receive(scene.principal, "r1", message)
        )
        assert outcome.accepted or outcome.refusal == "ReviewStale"
