"""What a run shows of itself, and decisions that come by signal."""

import uuid

from perdure import names
from perdure.messages import RunInput, RunResult
from tests.stage import ROUTE, Run, Stage, run_id_of, until
from tests.workflows.test_approval import foreseen


async def panel(run: Run) -> str:
    return str((await run.query("__temporal_workflow_metadata")).current_details)


async def refused(stage: Stage, run: Run) -> tuple[str, ...]:
    return (await stage.view(run)).refused_messages


async def attributes(run: Run) -> dict[str, object]:
    return {pair.key.name: pair.value for pair in (await run.describe()).typed_search_attributes}


async def test_a_signal_with_a_proof_counts(stage: Stage) -> None:
    """As a decision by API does; recorded as known by proof."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        await run.signal(names.SIGNAL_DECIDE, stage.decision(review))
        assert (await run.result()).outcome == "refunded"
    decided = await stage.ledger.read_review(stage.principal, review.review_id)
    assert (decided.identity, decided.decided_by) == ("proof", "boss")


async def test_a_signal_without_a_proof_is_shown_as_refused(stage: Stage) -> None:
    """It changes nothing; the query and the panel name it, and the run waits on."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        unproven = stage.decision(review).model_copy(update={"proof": None, "actor": "boss", "roles": ("approver",)})
        await run.signal(names.SIGNAL_DECIDE, unproven)
        [entry] = await until(lambda: refused(stage, run))
        assert entry == f"decision {unproven.decision_id}: NotAuthorized"
        assert entry in await panel(run)
        assert (await stage.ledger.read_review(stage.principal, review.review_id)).status == "pending"
        assert (await stage.waiting(run)).status == "waiting"
    assert stage.provider.attempts == 0


async def test_a_decision_that_somebody_copied_does_not_push_out_the_real_one(stage: Stage) -> None:
    """Both carry the same id and both come before the review opens; the one with a proof counts."""
    async with stage.working():
        seen = await stage.review(await stage.start())
    run = await stage.start()
    real = stage.decision(await foreseen(stage, seen, run))
    await run.signal(names.SIGNAL_DECIDE, real.model_copy(update={"proof": None}))
    await run.signal(names.SIGNAL_DECIDE, real)
    async with stage.working():
        assert (await run.result()).outcome == "refunded"
    assert len(stage.provider.refunds) == 1


async def test_a_decision_that_starts_the_run_counts_once(stage: Stage) -> None:
    """Signal-with-start: the decision is there before the run is, and again after; one effect."""
    async with stage.working():
        seen = await stage.review(await stage.start())
        known = await stage.start()
        run_id = uuid.uuid4().hex
        future = stage.client.get_workflow_handle(names.workflow_id(stage.principal.tenant, run_id))
        decision = stage.decision(await foreseen(stage, seen, future))
        run = await stage.client.start_workflow(
            names.WORKFLOW_AGENT_RUN,
            RunInput(
                tenant=stage.principal.tenant,
                run_id=run_id,
                route="refund",
                actor="app",
                input={"customer": "cus_1", "order": "A-1"},
            ),
            id=future.id,
            task_queue=stage.parts.settings.task_queue,
            result_type=RunResult,
            start_signal=names.SIGNAL_DECIDE,
            start_signal_args=[decision],
        )
        assert (await run.result()).outcome == "refunded"
        assert (await stage.waiting(known)).status == "waiting"
    assert len(stage.provider.refunds) == 1
    assert run_id_of(run) == run_id


async def test_what_a_run_waits_for_is_cleared(stage: Stage) -> None:
    """The search attribute and the row say it while the run waits, and nothing when it has ended."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        await stage.waiting(run)
        row = await stage.runs.get(stage.principal, run_id_of(run))
        assert (row.status, row.step, row.waiting_for) == ("waiting", "approve", "approval:approve")
        await stage.ledger.decide(stage.approver, stage.decision(review))
        await run.result()
        found = await attributes(run)
        assert names.SEARCH_WAITING_FOR not in found
        assert (found[names.SEARCH_TENANT], found[names.SEARCH_ROUTE]) == (stage.principal.tenant, "refund")
        assert "**ended** as `refunded`" in await panel(run)
    row = await stage.runs.get(stage.principal, run_id_of(run))
    assert (row.status, row.waiting_for) == ("ended", None)


async def test_the_same_subject_has_the_same_token(stage: Stage) -> None:
    """Runs of one customer can be found together, by a token that does not tell who it is."""
    async with stage.working():
        runs = [await stage.start(customer=customer) for customer in ("cus_1", "cus_1", "cus_2")]
        for run in runs:
            await stage.waiting(run)
        first, second, other = [(await attributes(run))[names.SEARCH_SUBJECT] for run in runs]
    assert first == second != other
    assert "cus" not in str(first)


async def test_a_newer_route_is_for_newer_runs(stage: Stage) -> None:
    """One that started before keeps its version to the end; one that starts after takes the new one."""
    async with stage.working():
        old = await stage.start()
        await stage.waiting(old)
        await stage.install(ROUTE.replace("outcome: refunded", "outcome: paid"))
        new = await stage.start()
        for run, version, outcome in ((old, 1, "refunded"), (new, 2, "paid")):
            assert (await stage.waiting(run)).version == version
            await run.signal(names.SIGNAL_DECIDE, stage.decision(await stage.review(run)))
            assert (await run.result()).outcome == outcome
