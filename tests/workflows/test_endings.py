"""Every way to end leaves nothing open: reviews are closed, grants taken back, obligations closed or owned."""

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from memory import journal
from perdure import names
from perdure.messages import RunMessage
from tests.provider import tool_file
from tests.stage import Run, Stage, run_id_of, until

LOOP = """
route: loop
input: {topic: {type: identifier}}
state:
  answer: {type: string, set_by: [user], choices: [again, done]}
start: ask
steps:
  ask: {kind: wait, sets: [answer], timeout: 48h, next: judge, max_visits: 3}
  judge:
    kind: model
    prompt: Enough?
    reads: [answer]
    sets: [verdict]
    next:
      - {go: ask, when: {field: answer, equals: again}}
      - {go: over}
  over: {kind: end, outcome: over}
handoff: {owner: support}
""".replace("state:\n", "state:\n  verdict: {type: string, set_by: [model]}\n")


async def run_events(stage: Stage, run: Run) -> list[str]:
    async with stage.parts.database.transaction(stage.principal) as connection:
        events = await journal.read(
            connection, stage.parts.keys, stage.principal.tenant, names.Stream.RUN, run_id_of(run)
        )
    return [event.type.value for event in events]


async def test_the_end_of_a_run_is_written_down_once(stage: Stage) -> None:
    """Start and end stand in the journal, and every obligation is closed as done."""
    async with stage.working():
        run = await stage.start()
        await run.signal(names.SIGNAL_DECIDE, stage.decision(await stage.review(run)))
        assert (await run.result()).obligations_open == ()
        assert [owed.closed for owed in (await stage.view(run)).obligations] == ["done"]
    assert await run_events(stage, run) == ["run.started", "run.ended"]


async def test_a_rejection_takes_its_branch_with_the_comment(stage: Stage) -> None:
    """The masked comment is in the field that the route names, set by the approval; nothing is done."""
    comment = await stage.masked("not for ⟦PERSON_1⟧")
    async with stage.working():
        run = await stage.start()
        decision = stage.decision(await stage.review(run), "reject", comment=comment)
        assert (await run.execute_update(names.UPDATE_DECIDE, decision))["accepted"]
        assert (await run.result()).outcome == "declined"
        view = await stage.view(run)
    assert view.state["comment"].value["masked"] == "not for ⟦PERSON_1⟧"
    assert view.state["comment"].set_by == "approval"
    assert [owed.closed for owed in view.obligations] == ["refused"]
    assert stage.provider.attempts == 0


async def test_a_tool_that_has_nothing_hands_the_run_off(stage: Stage) -> None:
    """A 404 in a step that only reads is a refusal, not something to wait for."""
    async with stage.working(stage.tools(tool_file(f"{stage.provider.url}/nowhere"))):
        run = await stage.start()
        result = await run.result()
    assert (result.outcome, result.step) == ("handed_off", "find")
    assert result.reason is not None
    assert result.reason.startswith("ToolRefused")
    assert await run_events(stage, run) == ["run.started", "run.handed_off"]


async def test_a_loop_ends_where_the_route_bounds_it(stage: Stage) -> None:
    """A step is visited as often as the route allows and no more; then somebody owns the run."""
    await stage.install(LOOP)
    script = stage.parts.settings.model.script
    assert script is not None
    script.write_text("- {route: loop, step: judge, fields: {verdict: more}}\n")
    async with stage.working():
        run = await stage.start("loop", topic="x")
        for number in range(3):
            await stage.waiting(run, "message:ask")
            message = RunMessage(id=f"m{number}", kind="message", actor="user", fields={"answer": "again"})
            await run.signal(names.SIGNAL_MESSAGE, message)
        result = await run.result()
        owed = [o for o in (await stage.view(run)).obligations if o.closed is None]
    assert (result.outcome, [o.kind for o in owed]) == ("handed_off", ["handoff"])
    assert result.reason is not None
    assert "visited 3 times" in result.reason


@pytest.mark.parametrize("by", ["message", "temporal"])
async def test_a_cancelled_run_leaves_nothing_open(stage: Stage, by: str) -> None:
    """Whoever cancels: the review is withdrawn, the obligations are closed, the row has ended."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        await stage.waiting(run)
        if by == "message":
            await stage.send(run, "cancel")
            assert (await run.result()).outcome == "cancelled"
        else:
            await run.cancel()
            with pytest.raises(WorkflowFailureError):
                await run.result()
        assert [owed.closed for owed in (await stage.view(run)).obligations] == ["cancelled"]
    assert (await stage.ledger.read_review(stage.principal, review.review_id)).status == "cancelled"
    row = await stage.runs.get(stage.principal, run_id_of(run))
    assert (row.status, row.outcome, row.waiting_for) == ("ended", "cancelled", None)


async def test_a_cancellation_waits_for_the_effect_under_way(stage: Stage) -> None:
    """What was begun is settled: the refund that the provider made is written down as done."""
    stage.provider.delay = 1.0
    async with stage.working():
        run = await stage.start()
        await run.execute_update(names.UPDATE_DECIDE, stage.decision(await stage.review(run)))
        await until(lambda: _attempted(stage))
        await stage.send(run, "cancel")
        assert (await run.result()).outcome == "cancelled"
    [effect] = await stage.ledger.effects(stage.principal, run_id_of(run))
    assert (effect.status, len(stage.provider.refunds)) == ("done", 1)


async def _attempted(stage: Stage) -> bool:
    return stage.provider.attempts > 0


async def test_a_decision_for_a_terminated_run_is_taken_back(stage: Stage) -> None:
    """The decision is accepted before anybody knows; telling the run shows that it is gone, and nothing is done."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        await run.terminate()
        assert (await stage.ledger.decide(stage.approver, stage.decision(review))).accepted

        async def gone() -> bool:
            return (await stage.runs.get(stage.principal, run_id_of(run))).status == "terminated"

        await until(gone)
    assert await grant(stage, review.review_id) == (1, True)
    assert await run_events(stage, run) == ["run.started", "run.abandoned"]
    assert stage.provider.attempts == 0


async def grant(stage: Stage, review_id: str) -> tuple[Any, ...]:
    async with stage.parts.database.transaction(stage.principal) as connection:
        found = await connection.exec_driver_sql(
            "SELECT uses_left, revoked_at IS NOT NULL FROM perdure.grants WHERE review_id = %(id)s", {"id": review_id}
        )
        return tuple(found.one())


async def test_runs_that_are_refused_do_not_quote_what_they_were_given(stage: Stage) -> None:
    """Raw text is in no failure and no history, as exported without the key."""
    raw = "Anna Petrova +79120000000"
    async with stage.working():
        runs = await asyncio.gather(*(stage.start(**given) for given in ({"complaint": raw}, {"customer": [raw]})))
        for run in runs:
            result = await run.result()
            assert (result.outcome, raw in str(result)) == ("refused", False)
            assert "Anna" not in (await run.fetch_history()).to_json()
            assert await run_events(stage, run) == ["run.refused"]
