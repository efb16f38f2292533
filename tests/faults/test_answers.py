"""Answers that are lost, late, wrong or too large: nothing is done twice, and nothing stays stuck."""

import asyncio

from temporalio.api.history.v1 import HistoryEvent

from memory.objects import Objects
from perdure.messages import ObjectRef
from tests.provider import tool_file
from tests.stage import ROUTE, Run, Stage, run_id_of

LARGE = 3_000_000
LONG_FIELD = ROUTE.replace("state:\n", "state:\n  long: {type: string, set_by: [tool]}\n").replace(
    "currency: charge.currency}", "currency: charge.currency, long: note}"
)


async def approved(stage: Stage, run: Run) -> None:
    review = await stage.review(run)
    assert (await stage.ledger.decide(stage.approver, stage.decision(review))).accepted


async def test_a_dropped_answer_is_looked_up(stage: Stage) -> None:
    """The provider acted and its answer was lost: it is asked, and not told again."""
    stage.provider.drop_answers = 1
    async with stage.working():
        run = await stage.start()
        await approved(stage, run)
        assert (await run.result()).outcome == "refunded"
        assert (await stage.view(run)).state["refund_id"].value == "re_1"
    assert (stage.provider.attempts, len(stage.provider.refunds)) == (1, 1)


async def test_an_answer_lost_twice_is_one_effect(stage: Stage) -> None:
    """The first call ended in an error and did nothing, so it was sent again under the same key; lost again."""
    stage.provider.statuses, stage.provider.drop_answers = [500], 1
    async with stage.working():
        run = await stage.start()
        await approved(stage, run)
        assert (await run.result()).outcome == "refunded"
    assert (stage.provider.attempts, len(stage.provider.refunds)) == (2, 1)


async def test_a_lost_lookup_is_asked_again(stage: Stage) -> None:
    """The answer is lost and so are two lookups: what happened is found by the third."""
    stage.provider.drop_answers, stage.provider.drop_lookups = 1, 2
    async with stage.working():
        run = await stage.start()
        await approved(stage, run)
        assert (await run.result()).outcome == "refunded"
    assert (stage.provider.attempts, len(stage.provider.refunds)) == (1, 1)


async def test_an_effect_that_did_nothing_is_unknown(stage: Stage) -> None:
    """An answer of 200 that the lookup contradicts: nobody repeats it, a person owes the answer."""
    stage.provider.do_nothing = True
    async with stage.working():
        run = await stage.start()
        await approved(stage, run)
        await _is_unknown(stage, run)
    assert (stage.provider.attempts, stage.provider.refunds) == (1, {})


async def test_without_lookup_a_lost_answer_is_unknown(stage: Stage) -> None:
    """One call, and then nobody knows; a person has to find out."""
    stage.provider.drop_answers = 1
    async with stage.working(stage.tools(tool_file(stage.provider.url, lookup=False))):
        run = await stage.start()
        await approved(stage, run)
        await _is_unknown(stage, run)
    assert (stage.provider.attempts, len(stage.provider.refunds)) == (1, 1)


async def _is_unknown(stage: Stage, run: Run) -> None:
    result = await run.result()
    [effect] = await stage.ledger.effects(stage.principal, run_id_of(run))
    assert (result.outcome, effect.status, result.obligations_open) == ("handed_off", "unknown", (effect.key,))
    [owed] = [obligation for obligation in (await stage.view(run)).obligations if obligation.closed is None]
    assert (owed.kind, owed.owner) == ("unknown_effect", "support")


async def test_nothing_is_executed_after_the_grant_expired(stage: Stage) -> None:
    """Approved in time, and then every worker was down for too long."""
    await stage.install(ROUTE.replace("expires_after: 72h", "expires_after: 3s"))
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
    assert (await stage.ledger.decide(stage.approver, stage.decision(review))).accepted
    await asyncio.sleep(3)
    async with stage.working():
        result = await run.result()
    assert result.outcome == "handed_off"
    assert (result.reason or "").startswith("GrantExpired")
    assert stage.provider.attempts == 0


async def test_a_provider_that_is_away_past_the_expiry_is_left_alone(stage: Stage) -> None:
    """It said each time that nothing was done; when the grant expires that is the final answer."""
    await stage.install(ROUTE.replace("expires_after: 72h", "expires_after: 5s"))
    stage.provider.statuses = [503] * 50
    async with stage.working():
        run = await stage.start()
        await approved(stage, run)
        result = await run.result()
    assert result.outcome == "handed_off"
    assert (result.reason or "").startswith("GrantExpired")
    [effect] = await stage.ledger.effects(stage.principal, run_id_of(run))
    assert (effect.status, stage.provider.refunds) == ("not_executed", {})


async def test_a_large_answer_is_kept_beside_the_run(stage: Stage) -> None:
    """3 MB: the declared values go on, the whole answer is an object; reading and acting alike."""
    stage.provider.padding = LARGE
    async with stage.working():
        run = await stage.start()
        await approved(stage, run)
        assert (await run.result()).outcome == "refunded"
    history = await run.fetch_history()
    assert sum(event.ByteSize() for event in history.events) < 100_000
    stored = [ref for event in history.events if (ref := await _object_of(stage, event)) is not None]
    assert [ref.size > LARGE for ref in stored] == [True, True]
    objects = Objects(stage.parts.database, stage.parts.keys, stage.parts.settings.objects.url)
    assert len(await objects.get(stage.principal, stored[0].object_id)) == stored[0].size


async def test_a_large_field_hands_the_run_off(stage: Stage) -> None:
    """A declared value of 3 MB is refused by name; the run is not stuck."""
    await stage.install(LONG_FIELD)
    stage.provider.padding = LARGE
    async with stage.working():
        result = await (await stage.start()).result()
    assert result.outcome == "handed_off"
    assert (result.reason or "").startswith("ResultTooLarge: field 'long'")


async def test_personal_data_in_an_answer_hands_the_run_off(stage: Stage) -> None:
    """A tool puts an address into a field that is not personal: it is neither kept nor told."""
    stage.provider.currency = "anna.leak@example.com"
    async with stage.working():
        run = await stage.start()
        result = await run.result()
    assert result.outcome == "handed_off"
    assert (result.reason or "").startswith("UnmaskedText")
    assert "anna.leak" not in str(result)


async def _object_of(stage: Stage, event: HistoryEvent) -> ObjectRef | None:
    """The object that the result of an ordinary activity names."""
    payloads = event.activity_task_completed_event_attributes.result.payloads
    if not payloads:
        return None
    converter = stage.client.data_converter
    [result] = await converter.decode(payloads, [dict])
    found = result.get("object")
    return None if found is None else ObjectRef.model_validate(found)
