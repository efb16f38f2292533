"""Approvals from a run's side: one decision counts, on what is true now, whenever and however it comes."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import WorkflowUpdateFailedError

from memory.reviews import review_digest, review_id
from perdure import names
from perdure.calls import ReviewRequest
from perdure.messages import DecisionOutcome, ReviewState, RunMessage
from tests.stage import Run, Stage, run_id_of


async def update(run: Run, decision: object) -> DecisionOutcome:
    return DecisionOutcome.model_validate(await run.execute_update(names.UPDATE_DECIDE, decision))


async def test_a_decision_for_another_version_or_digest_is_stale(stage: Stage) -> None:
    """The amount was amended: what was looked at before is not what is open now."""
    async with stage.working():
        run = await stage.start()
        old = await stage.review(run)
        await stage.send(run, amount="82.00")
        new = await stage.review(run, version=2)
        assert (await update(run, stage.decision(old))).refusal == "ReviewStale"
        assert (await update(run, stage.decision(new, digest="0" * 64))).refusal == "ReviewStale"
        assert (await update(run, stage.decision(new, version=1))).refusal == "ReviewStale"
        assert (await update(run, stage.decision(new))).accepted
        assert (await run.result()).outcome == "refunded"
    assert [refund["amount"] for refund in stage.provider.refunds.values()] == ["82.00"]


async def test_changed_evidence_opens_the_next_review(stage: Stage) -> None:
    """Evidence that changes before the decision withdraws the request; the amount makes a new version as well."""
    async with stage.working():
        run = await stage.start()
        old = await stage.review(run)
        await stage.send(run, "evidence", charge="ch_2")
        new = await stage.review(run, version=2)
        withdrawn = await stage.ledger.read_review(stage.principal, old.review_id)
        assert (withdrawn.status, withdrawn.cancelled_because) == ("cancelled", "evidence changed")
        assert new.object_id == "ch_2"
        kinds = [(owed.id, owed.closed) for owed in (await stage.waiting(run)).obligations]
        assert kinds == [("approve.1.1", "cancelled"), ("approve.1.2", None)]


async def test_evidence_that_comes_by_signal_alone_withdraws_the_review_too(stage: Stage) -> None:
    """An app that signals directly is no way around it."""
    async with stage.working():
        run = await stage.start()
        old = await stage.review(run)
        message = RunMessage(id="m1", kind="evidence", actor="app", fields={"charge": "ch_2"})
        await run.signal(names.SIGNAL_MESSAGE, message)
        await stage.review(run, version=2)
        assert (await update(run, stage.decision(old))).refusal == "ReviewStale"


async def test_a_message_that_the_run_refuses_leaves_a_review_open(stage: Stage) -> None:
    """The database withdrew the review when it committed the message; the run opens the same one again."""
    async with stage.working():
        run = await stage.start()
        old = await stage.review(run)
        await stage.send(run, "message", charge="ch_2")
        new = await stage.review(run)
        assert (new.version, new.review_id != old.review_id, new.object_id) == (1, True, "ch_1")
        assert (await update(run, stage.decision(new))).accepted
        assert (await run.result()).outcome == "refunded"


async def test_evidence_that_changes_after_the_approval_asks_again(stage: Stage) -> None:
    """An approved grant that was not used is taken back; nothing is done until the new version is approved."""
    async with stage.working():
        run = await stage.start()
        first = await stage.review(run)
        await stage.send(run, "hold")
        assert (await stage.ledger.decide(stage.approver, stage.decision(first))).accepted
        await stage.waiting(run, "resume")
        await stage.send(run, amount="82.00")
        await stage.send(run, "resume")
        second = await stage.review(run, version=2)
        assert stage.provider.attempts == 0
        assert (await update(run, stage.decision(second))).accepted
        assert (await run.result()).outcome == "refunded"
    assert [refund["amount"] for refund in stage.provider.refunds.values()] == ["82.00"]


async def test_of_two_decisions_at_once_one_is_accepted(stage: Stage) -> None:
    """The other is told the first; the run follows the accepted one."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        outcomes = await asyncio.gather(
            update(run, stage.decision(review, "approve")),
            stage.ledger.decide(stage.approver, stage.decision(review, "reject")),
        )
        accepted = [
            verdict for verdict, outcome in zip(("approve", "reject"), outcomes, strict=True) if outcome.accepted
        ]
        refused = [outcome for outcome in outcomes if not outcome.accepted]
        assert len(accepted) == 1
        assert [(o.refusal, o.first) for o in refused] == [("AlreadyDecided", accepted[0])]
        expected = {"approve": "refunded", "reject": "declined"}[accepted[0]]
        assert (await run.result()).outcome == expected
    assert len(stage.provider.refunds) == (1 if accepted == ["approve"] else 0)


async def test_the_same_decision_twice_is_one(stage: Stage) -> None:
    """A repeat, by signal and by update, finds the first."""
    async with stage.working():
        run = await stage.start()
        decision = stage.decision(await stage.review(run))
        await stage.send(run, "hold")
        await stage.waiting(run)
        await asyncio.gather(
            run.signal(names.SIGNAL_DECIDE, decision), run.signal(names.SIGNAL_DECIDE, decision), update(run, decision)
        )
        await stage.waiting(run, "resume")
        await stage.send(run, "resume")
        assert (await run.result()).outcome == "refunded"
    assert len(stage.provider.refunds) == 1


async def test_a_decision_by_signal_before_the_review_opens_is_kept(stage: Stage) -> None:
    """It is tried when its review opens, and counts if it names what is open then."""
    async with stage.working():
        seen = await stage.review(await stage.start())
    right, wrong = await stage.start(), await stage.start()
    await right.signal(names.SIGNAL_DECIDE, stage.decision(await foreseen(stage, seen, right)))
    blind = (await foreseen(stage, seen, wrong)).model_copy(update={"digest": seen.digest})
    await wrong.signal(names.SIGNAL_DECIDE, stage.decision(blind))
    async with stage.working():
        assert (await right.result()).outcome == "refunded"
        refused = (await stage.waiting(wrong)).refused_messages
        assert [entry.split(": ")[1] for entry in refused] == ["ReviewStale"]
    assert len(stage.provider.refunds) == 1


async def foreseen(stage: Stage, seen: ReviewState, run: Run) -> ReviewState:
    """The review that this run will open, worked out from one that another run opened on the same facts."""
    detail = await stage.ledger.review_detail(stage.principal, seen.review_id)
    arguments = {change.field: change.proposed for change in detail.changes}
    request = ReviewRequest(
        principal=stage.principal,
        run_id=run_id_of(run),
        route=seen.route,
        route_version=1,
        step=seen.step,
        opening="approve.1.1",
        intent_id=seen.intent_id.replace(seen.run_id, run_id_of(run)),
        action=seen.action,
        tool="payments.refund",
        object_type=seen.object_type,
        object_id=seen.object_id,
        arguments={name: arguments[name] for name in ("charge", "amount", "currency")},
        amount=seen.amount,
        currency=seen.currency,
        evidence=detail.evidence,
        approvers=seen.approvers,
        expires_after=timedelta(hours=72),
    )
    opened = {"review_id": review_id(stage.principal.tenant, request.run_id, request.opening)}
    return seen.model_copy(update=opened | {"digest": review_digest(request, 1)})


async def test_a_decision_without_authority_changes_nothing(stage: Stage) -> None:
    """No proof, a proof by an unknown key, a proof for something else, the wrong role: refused, shown, written down."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        unproven = stage.decision(review).model_copy(update={"proof": None, "actor": "boss", "roles": ("approver",)})
        forged = stage.decision(review, signer=stage.rogue)
        other = stage.decision(review, "reject").model_copy(update={"verdict": "approve"})
        for decision in (unproven, forged, other, stage.decision(review, roles=("app",))):
            assert (await update(run, decision)).refusal == "NotAuthorized"
            await run.signal(names.SIGNAL_DECIDE, decision)
        assert (await stage.ledger.read_review(stage.principal, review.review_id)).status == "pending"
        assert len((await stage.waiting(run)).refused_messages) >= 4
        assert (await update(run, stage.decision(review))).accepted
        assert (await run.result()).outcome == "refunded"


async def test_asserted_identity_counts_only_where_it_is_allowed(stage: Stage) -> None:
    """Where the operator allows it, a decision without a proof counts and is recorded as asserted."""
    auth = stage.parts.settings.auth.model_copy(update={"allow_asserted": True})
    lenient = stage.with_settings(auth=auth)
    async with stage.working(lenient):
        run = await stage.start()
        review = await stage.review(run)
        named = stage.decision(review).model_copy(update={"proof": None, "actor": "boss", "roles": ("approver",)})
        assert (await update(run, named)).accepted
        assert (await run.result()).outcome == "refunded"
    assert (await stage.ledger.read_review(stage.principal, review.review_id)).identity == "asserted"


async def test_a_decision_for_an_unknown_review_is_not_found(stage: Stage) -> None:
    """The same answer as for a review of another tenant."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        unknown = review.model_copy(update={"review_id": "rev_unknown"})
        with pytest.raises(WorkflowUpdateFailedError) as failure:
            await update(run, stage.decision(unknown))
        assert getattr(failure.value.cause, "type", None) == "NotFound"


async def test_a_comment_is_kept_masked(stage: Stage) -> None:
    """It goes to the field that the route names; one that masking did not make is refused."""
    comment = await stage.masked("asked ⟦PERSON_1⟧, fine")
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
        with pytest.raises(WorkflowUpdateFailedError) as failure:
            await update(run, stage.decision(review, comment=comment.model_copy(update={"masked": "Анна said yes"})))
        assert getattr(failure.value.cause, "type", None) == "UnmaskedText"
        assert (await update(run, stage.decision(review, comment=comment))).accepted
        await run.result()
        value = (await stage.view(run)).state["comment"].value
    assert value["masked"] == "asked ⟦PERSON_1⟧, fine"
