"""An approved effect is reserved once and settled once, whoever asks and however often."""

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
from perdure.calls import Reservation, SettleRequest
from perdure.errors import GrantExceeded, GrantExpired, LeaseLost, NotFound, RunEnded, SubjectHeld
from perdure.ids import effect_key
from perdure.messages import EffectResult, Principal, RunMessage, RunResult
from perdure.names import Event, Stream
from tests.memory.scene import Scene, open_scene

DONE = EffectResult(outcome="done", fields={"refund_id": "re_1"}, digest="a" * 64)
SHORT = timedelta(milliseconds=20)


@pytest.fixture
async def scene(ledger: Ledger, runs: Runs, routes: Routes, principal: Principal) -> Scene:
    return await open_scene(ledger, runs, routes, principal)


async def settled(scene: Scene, held: Reservation, **changed: Any) -> EffectResult:
    values = {"principal": scene.principal, "run_id": scene.run_id, "key": held.key, "fence": held.fence}
    return await scene.ledger.settle(SettleRequest.model_validate(values | {"result": DONE} | changed))


async def history(database: Database, keys: Keys, scene: Scene, key: str) -> list[tuple[Event, dict[str, Any]]]:
    async with database.transaction(scene.principal) as connection:
        stream = await journal.read(connection, keys, scene.principal.tenant, Stream.EFFECT, key)
    return [(event.type, event.payload) for event in stream]


async def left(database: Database, scene: Scene, grant_id: str | None) -> tuple[int, str]:
    async with database.transaction(scene.principal) as connection:
        row = await one(
            connection, "SELECT uses_left, amount_left FROM perdure.grants WHERE grant_id = :id", id=grant_id
        )
    assert row is not None
    return row["uses_left"], str(row["amount_left"])


async def test_ten_times_the_approved_amount_is_refused_and_written_down(
    scene: Scene, database: Database, keys: Keys
) -> None:
    state = await scene.approved(amount="82000.00")
    with pytest.raises(GrantExceeded):
        await scene.ledger.reserve(scene.reserving(state, "820000.00"))
    assert await left(database, scene, state.grant_id) == (1, "82000.00")
    assert await scene.ledger.effects(scene.principal, "r1") == []
    intent = f"{state.intent_id}@{state.version}"
    key = effect_key(scene.principal.tenant, "refund", "refund", "order:o1", intent)
    refused = {"refusal": "GrantExceeded", "grant": state.grant_id}
    assert await history(database, keys, scene, key) == [(Event.EFFECT_REFUSED, refused)]
    assert (await scene.reserved(state)).status == "fresh"


@pytest.mark.parametrize(
    "changed",
    [
        {"amount": "82000.01"},
        {"amount": "82000"},
        {"amount": None},
        {"currency": "USD"},
        {"action": "charge"},
        {"tool": "payments.other"},
        {"object_id": "o2"},
        {"object_type": "customer"},
        {"route": "other"},
        {"intent_id": "int_other"},
        {"intent_version": 2},
        {"arguments": {"charge_id": "c2", "amount": "82000.00", "currency": "RUB"}},
        {"arguments": {"charge_id": "c1", "amount": "82000.00", "currency": "RUB", "more": "x"}},
    ],
)
async def test_anything_but_what_was_approved_is_refused(scene: Scene, changed: dict[str, Any]) -> None:
    state = await scene.approved()
    with pytest.raises(GrantExceeded):
        await scene.reserved(state, **changed)
    assert await scene.ledger.effects(scene.principal, "r1") == []


async def test_after_the_effect_the_same_key_with_other_arguments_is_refused(scene: Scene) -> None:
    state = await scene.approved()
    await settled(scene, await scene.reserved(state))
    with pytest.raises(GrantExceeded):
        await scene.ledger.reserve(scene.reserving(state, "820000.00"))


async def test_two_equal_refunds_are_two_effects_and_a_retry_of_either_is_none(scene: Scene) -> None:
    first = await scene.approved("ask.1.1", visit=1)
    second = await scene.approved("ask.2.1", visit=2)
    kept = [await scene.reserved(state, holder=f"e/{n}") for n, state in enumerate((first, second))]
    assert kept[0].key != kept[1].key
    for held in kept:
        await settled(scene, held)
    for state in (first, second):
        again = await scene.reserved(state, holder="another")
        assert (again.status, again.result) == ("final", DONE)
    assert [row.status for row in await scene.ledger.effects(scene.principal, "r1")] == ["done", "done"]


async def test_the_same_holder_again_is_fresh_with_its_lease_renewed(scene: Scene) -> None:
    state = await scene.approved()
    first, second = await scene.reserved(state), await scene.reserved(state)
    assert (second.status, second.fence, second.key) == ("fresh", first.fence, first.key)
    assert second.leased_until > first.leased_until
    assert second.not_after == first.not_after == state.expires_at


async def test_another_holder_waits_until_the_lease_is_over(scene: Scene) -> None:
    state = await scene.approved()
    first = await scene.reserved(state)
    other = await scene.reserved(state, holder="other")
    assert (other.status, other.fence, other.leased_until) == ("in_flight", 1, first.leased_until)
    assert (await settled(scene, first)) == DONE


async def test_a_lapsed_effect_is_resumed_and_stays_resumed(scene: Scene, database: Database, keys: Keys) -> None:
    state = await scene.approved()
    first = await scene.reserved(state, lease_for=SHORT)
    await asyncio.sleep(0.05)
    taken = await scene.reserved(state, holder="other")
    assert (taken.status, taken.fence) == ("resumed", 2)
    again = await scene.reserved(state, holder="other")
    assert (again.status, again.fence) == ("resumed", 2)
    assert (await scene.reserved(state)).status == "in_flight"
    events = [event for event, _ in await history(database, keys, scene, first.key)]
    assert events == [Event.EFFECT_RESERVED, Event.EFFECT_RESERVED]
    assert await left(database, scene, state.grant_id) == (0, "0.00")


async def test_an_old_fence_stores_nothing(scene: Scene, database: Database, keys: Keys) -> None:
    state = await scene.approved()
    slept = await scene.reserved(state, lease_for=SHORT)
    await asyncio.sleep(0.05)
    taken = await scene.reserved(state, holder="other")
    with pytest.raises(LeaseLost):
        await settled(scene, slept)
    assert [row.status for row in await scene.ledger.effects(scene.principal, "r1")] == ["reserved"]
    assert Event.EFFECT_SETTLED not in [event for event, _ in await history(database, keys, scene, slept.key)]
    unknown = EffectResult(outcome="unknown", reason="no lookup")
    assert await settled(scene, taken, result=unknown) == unknown


async def test_the_first_result_stays(scene: Scene, database: Database, keys: Keys) -> None:
    held = await scene.reserved(await scene.approved())
    assert await settled(scene, held) == DONE
    assert await settled(scene, held, result=EffectResult(outcome="not_executed")) == DONE
    assert await settled(scene, held, fence=7) == DONE
    events = [event for event, _ in await history(database, keys, scene, held.key)]
    assert events == [Event.EFFECT_RESERVED, Event.EFFECT_SETTLED]


async def test_an_unknown_effect_or_one_of_another_run_is_not_settled(scene: Scene) -> None:
    held = await scene.reserved(await scene.approved())
    for changed in ({"key": "pk_unknown"}, {"run_id": "r2"}):
        with pytest.raises(NotFound):
            await settled(scene, held, **changed)
    foreign = scene.principal.model_copy(update={"tenant": scene.principal.tenant + "x"})
    with pytest.raises(NotFound):
        await settled(scene, held, principal=foreign)


async def test_without_an_approval_there_is_nothing_to_reserve(scene: Scene) -> None:
    state = await scene.opened()
    with pytest.raises(NotFound):
        await scene.reserved(state, grant_id="grant_guessed")


async def test_an_expired_grant_is_not_used(scene: Scene, database: Database, keys: Keys) -> None:
    state = await scene.approved(expires_after=timedelta(milliseconds=150))
    await asyncio.sleep(0.2)
    with pytest.raises(GrantExpired):
        await scene.reserved(state)
    assert await left(database, scene, state.grant_id) == (1, "82000.00")


async def test_a_revoked_grant_is_not_used(scene: Scene) -> None:
    state = await scene.approved()
    changed = RunMessage(id="m1", kind="message", actor="app", fields={"amount": "1.00"})
    await scene.runs.receive(scene.principal, "r1", changed)
    with pytest.raises(GrantExceeded, match="revoked"):
        await scene.reserved(state)


async def test_a_held_run_does_nothing_until_it_is_resumed(scene: Scene) -> None:
    state = await scene.approved()
    await scene.runs.receive(scene.principal, "r1", RunMessage(id="h", kind="hold", actor="app"))
    with pytest.raises(SubjectHeld):
        await scene.reserved(state)
    await scene.runs.receive(scene.principal, "r1", RunMessage(id="r", kind="resume", actor="app"))
    assert (await scene.reserved(state)).status == "fresh"


async def test_a_hold_stops_a_reservation_that_waits(scene: Scene, database: Database) -> None:
    """The hold was acknowledged while the reservation waited for its grant: nothing is begun after that."""
    state = await scene.approved()
    async with database.transaction(scene.principal) as connection:
        await one(connection, "SELECT 1 AS x FROM perdure.grants WHERE grant_id = :id FOR UPDATE", id=state.grant_id)
        waiting = asyncio.create_task(scene.reserved(state))
        await asyncio.sleep(0.2)
        await scene.runs.receive(scene.principal, "r1", RunMessage(id="h", kind="hold", actor="app"))
    with pytest.raises(SubjectHeld):
        await waiting


async def test_an_ended_run_does_nothing_more_and_still_tells_what_it_did(scene: Scene) -> None:
    done, unused = await scene.approved("ask.1.1", visit=1), await scene.approved("ask.2.1", visit=2)
    await settled(scene, await scene.reserved(done))
    await scene.runs.end(scene.principal, "r1", RunResult(outcome="refunded", step="done"), ())
    with pytest.raises(RunEnded):
        await scene.reserved(unused)
    final = await scene.reserved(done, holder="after a reset")
    assert (final.status, final.result) == ("final", DONE)


async def test_what_was_under_way_when_a_run_was_abandoned_is_unknown_for_good(scene: Scene) -> None:
    held = await scene.reserved(await scene.approved())
    await scene.runs.abandon(scene.principal, "r1", "its workflow is gone")
    assert (await settled(scene, held)).outcome == "unknown"
    assert [row.status for row in await scene.ledger.effects(scene.principal, "r1")] == ["unknown"]


async def test_fifty_reservations_at_once_are_one_effect(scene: Scene, database: Database) -> None:
    state = await scene.approved()
    answers = await asyncio.gather(*(scene.reserved(state, holder=f"h{n}") for n in range(50)))
    assert sorted({a.status for a in answers}) == ["fresh", "in_flight"]
    assert [a.status for a in answers].count("fresh") == 1
    assert {a.fence for a in answers} == {1}
    assert len(await scene.ledger.effects(scene.principal, "r1")) == 1
    assert await left(database, scene, state.grant_id) == (0, "0.00")


async def test_fifty_takeovers_at_once_have_one_new_holder(scene: Scene) -> None:
    state = await scene.approved()
    await scene.reserved(state, lease_for=SHORT)
    await asyncio.sleep(0.05)
    answers = await asyncio.gather(*(scene.reserved(state, holder=f"h{n}") for n in range(50)))
    assert [a.status for a in answers].count("resumed") == 1
    assert [a.status for a in answers].count("in_flight") == 49
    assert {a.fence for a in answers} == {2}


async def test_one_intent_version_is_one_effect_even_when_its_grant_has_more_uses(
    scene: Scene, database: Database
) -> None:
    state = await scene.approved(uses=3)
    for _ in range(3):
        await settled(scene, await scene.reserved(state))
    assert len(await scene.ledger.effects(scene.principal, "r1")) == 1
    assert await left(database, scene, state.grant_id) == (2, "0.00")


async def test_an_older_version_has_no_grant_once_a_newer_one_was_opened(scene: Scene) -> None:
    old = await scene.approved("ask.1.1", "82000.00")
    new = await scene.approved("ask.1.2", "80000.00")
    assert (old.intent_id, old.version, new.version) == (new.intent_id, 1, 2)
    with pytest.raises(GrantExceeded):
        await scene.reserved(old)
    with pytest.raises(GrantExceeded):
        await scene.ledger.reserve(scene.reserving(new, "82000.00"))
    assert (await scene.ledger.reserve(scene.reserving(new, "80000.00"))).status == "fresh"
