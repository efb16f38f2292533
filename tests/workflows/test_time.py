"""Hours and days, on a server that skips time: expiry warns first and hands off after, and nothing waits for ever."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from embedded import SEARCH_ATTRIBUTES, Postgres, executable
from memory.database import Database
from memory.journal import read
from memory.keys import Keys
from perdure import names
from perdure.keyring import KeyRing
from perdure.messages import RunMessage
from perdure.temporal import data_converter
from tests.stage import ROUTE, Run, Stage, staged

WAIT = """
route: ask
input: {topic: {type: identifier}}
state:
  answer: {type: string, set_by: [user]}
start: ask
steps:
  ask: {kind: wait, sets: [answer], timeout: 48h, next: answered}
  answered: {kind: end, outcome: answered}
handoff: {owner: support}
"""

WARNED = ROUTE.replace("expires_after: 72h", "expires_after: 72h\n    warn_before: 4h")


@pytest.fixture
async def stage(
    codec_ring: KeyRing, database: Database, relay_database: Database, keys: Keys, postgres: Postgres, tmp_path: Path
) -> AsyncIterator[Stage]:
    """A stage on a server that skips time while a result is awaited."""
    environment = await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=executable("temporal-test-server"), data_converter=data_converter(codec_ring)
    )
    async with environment:
        await _add_search_attributes(environment.client)
        async with staged(environment.client, database, relay_database, keys, postgres, tmp_path) as stage:
            yield stage


async def _add_search_attributes(client: Client) -> None:
    kinds = dict.fromkeys(SEARCH_ATTRIBUTES, IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD)
    request = AddSearchAttributesRequest(namespace="default", search_attributes=kinds)
    await client.operator_service.add_search_attributes(request)


async def events_of(stage: Stage, review_id: str) -> list[str]:
    async with stage.parts.database.transaction(stage.principal) as connection:
        tenant = stage.principal.tenant
        events = await read(connection, stage.parts.keys, tenant, names.Stream.REVIEW, review_id)
    return [event.type.value for event in events]


async def test_an_approval_that_nobody_gives_is_handed_off(stage: Stage) -> None:
    """Expiry is no denial: a warning before, a hand-off after, and a late decision is told so."""
    await stage.install(WARNED)
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        result = await run.result()
        assert (result.outcome, result.step) == ("handed_off", "approve")
        assert result.reason is not None
        assert result.reason.startswith("ReviewExpired")
        view = await stage.view(run)
    assert [(owed.kind, owed.closed) for owed in view.obligations] == [("approval", "expired"), ("handoff", None)]
    assert await events_of(stage, review.review_id) == ["review.opened", "review.expiry_warned", "review.expired"]
    late = await stage.ledger.decide(stage.approver, stage.decision(review))
    assert not late.accepted
    assert stage.provider.attempts == 0


async def test_a_decision_counts_though_nobody_told_the_run(stage: Stage) -> None:
    """The row is the authority: when the run looks, it finds the decision, and warns nobody."""
    await stage.install(WARNED)
    async with stage.parts.worker():
        run = await stage.start()
        review = await stage.review(run)
        assert (await stage.ledger.decide(stage.approver, stage.decision(review))).accepted
        assert (await run.result()).outcome == "refunded"
    assert await events_of(stage, review.review_id) == ["review.opened", "review.decided"]


async def test_a_decision_found_at_expiry_is_too_late_to_act_on(stage: Stage) -> None:
    """The grant ends with the review: the effect that has not happened yet is stopped, and the run is handed off."""
    async with stage.parts.worker():
        run = await stage.start()
        review = await stage.review(run)
        assert (await stage.ledger.decide(stage.approver, stage.decision(review))).accepted
        result = await run.result()
    assert result.outcome == "handed_off"
    assert result.reason is not None
    assert result.reason.startswith("GrantExpired")
    assert stage.provider.attempts == 0


async def test_a_wait_ends_in_a_hand_off(stage: Stage) -> None:
    """Without another way the run is handed off when nobody answers."""
    await stage.install(WAIT)
    async with stage.working():
        result = await (await stage.start("ask", topic="x")).result()
    assert (result.outcome, result.reason) == ("handed_off", "StepRefused: nobody answered step ask in time")


async def test_a_wait_that_times_out_may_go_another_way(stage: Stage) -> None:
    """The route says where to; the obligation is closed as expired."""
    other = WAIT.replace("next: answered}", "next: answered, on_timeout: silent}")
    await stage.install(other.replace("handoff:", "  silent: {kind: end, outcome: silent}\nhandoff:"))
    async with stage.working():
        run = await stage.start("ask", topic="x")
        assert (await run.result()).outcome == "silent"
        assert [(o.kind, o.closed) for o in (await stage.view(run)).obligations] == [("wait", "expired")]


async def test_a_wait_takes_an_answer(stage: Stage) -> None:
    """Also one that came before the wait began."""
    await stage.install(WAIT)
    run = await stage.start("ask", topic="x")
    await answer(run)
    async with stage.working():
        assert (await run.result()).outcome == "answered"


async def answer(run: Run) -> None:
    message = RunMessage(id="m1", kind="message", actor="user", fields={"answer": "yes"})
    await run.signal(names.SIGNAL_MESSAGE, message)


async def test_working_memory_has_an_end(stage: Stage) -> None:
    """A run that is on hold for longer than its memory may live is handed off."""
    await stage.install(WAIT + "compliance: {working_memory: 24h}\n")
    async with stage.working():
        result = await (await stage.start("ask", topic="x")).result()
    assert result.outcome == "handed_off"
    assert result.reason is not None
    assert "working memory" in result.reason


async def test_a_model_that_stays_away_is_handed_off(stage: Stage) -> None:
    """A step that only asks gives up after a while."""
    script = stage.parts.settings.model.script
    assert script is not None
    script.write_text("[]")
    async with stage.working():
        result = await (await stage.start()).result()
    assert (result.outcome, result.step) == ("handed_off", "classify")
    assert result.reason is not None
    assert result.reason.startswith("ModelUnavailable")
