"""An approval step: one review after another until a person has decided on what is true now."""

from datetime import timedelta

from temporalio import workflow

from memory.reducer import arguments_of
from perdure.calls import Approved, CloseReview, ReviewRequest
from perdure.errors import ReviewExpired
from perdure.ids import digest
from perdure.messages import EvidenceRef, ReviewState
from perdure.route import ApprovalStep, Argument
from workflows import errands
from workflows.journey import Journey

MESSAGE_ON_ITS_WAY = timedelta(minutes=10)
"""How long to wait for the message whose arrival in the database withdrew a review."""


async def seek(run: Journey, name: str, step: ApprovalStep) -> str:
    """Return the next step once a person decided. Raises ``ReviewExpired`` when nobody did in time."""
    while True:
        request = _request(run, name, step)
        touched, seen = run.touched(request.rests_on), fingerprint(run, request.rests_on)
        state = await errands.open_review(request)
        run.opened_review(state.review_id)
        run.owe("approval", request.opening, " or ".join(step.approvers), state.expires_at)
        run.review = state
        state = await _decided(run, name, state, request.rests_on, touched)
        run.review = None
        run.openings[name] = run.openings.get(name, 1) + 1
        if state.status != "cancelled":
            changed = run.touched(request.rests_on) != touched
            return _settled(run, name, step, request, state, None if changed else seen)
        run.close(request.opening, "cancelled")


def _settled(
    run: Journey, name: str, step: ApprovalStep, request: ReviewRequest, state: ReviewState, seen: str | None
) -> str:
    """``seen`` is what the decision rests on; None when that has changed since."""
    if state.status == "expired":
        run.close(request.opening, "expired")
        raise ReviewExpired(f"review {state.review_id} expired before anybody decided", review=state.review_id)
    comment = None if state.comment is None else state.comment.model_dump(mode="json")
    run.record("approval", name, {step.comment: comment} if step.comment and comment else {})
    if state.status == "rejected":
        run.close(request.opening, "refused")
        return step.rejected
    run.close(request.opening, "done")
    run.approved[name] = Approved(
        step=name,
        review_id=state.review_id,
        grant_id=state.grant_id or "",
        intent_id=state.intent_id,
        version=state.version,
        action=request.action,
        tool=request.tool,
        object_type=request.object_type,
        object_id=request.object_id,
        arguments=request.arguments,
        amount=request.amount,
        currency=request.currency,
        rests_on=request.rests_on,
        fingerprint=seen,
    )
    return step.approved


async def _decided(run: Journey, name: str, state: ReviewState, rests_on: tuple[str, ...], touched: int) -> ReviewState:
    """The review once it is no longer pending. The row is the authority: timers and messages only make us look."""
    review = state.review_id

    def news() -> bool:
        return review in run.mail.decided or run.touched(rests_on) != touched

    while state.status == "pending":
        warned = state.warn_at is None or review in run.warned
        due = state.expires_at if warned or state.warn_at is None else state.warn_at
        if not await run.wait(f"approval:{name}", news, due):
            state = await _overdue(run, state, warned)
        elif run.touched(rests_on) != touched:
            state = await errands.close_review(_closing(run, review, "cancelled", "evidence changed"))
        else:
            run.mail.decided.discard(review)
            state = await errands.read_review(run.principal, review)
    if state.status == "cancelled":
        until = workflow.now() + MESSAGE_ON_ITS_WAY
        await run.wait("message", lambda: run.touched(rests_on) != touched, until)
    return state


async def _overdue(run: Journey, state: ReviewState, warned: bool) -> ReviewState:
    if warned:
        return await errands.close_review(_closing(run, state.review_id, "expired", "nobody decided in time"))
    run.warned.append(state.review_id)
    return await errands.warn(run.principal, state.review_id)


def _closing(run: Journey, review_id: str, status: str, because: str) -> CloseReview:
    return CloseReview.model_validate(
        {"principal": run.principal, "review_id": review_id, "status": status, "because": because}
    )


def _request(run: Journey, name: str, step: ApprovalStep) -> ReviewRequest:
    intent, visit = step.intent, run.visit(name)
    evidence = tuple(_evidence(run, field) for field in step.evidence)
    return ReviewRequest(
        principal=run.principal,
        run_id=run.start.run_id,
        route=run.route.route,
        route_version=run.opened.version,
        step=name,
        opening=f"{name}.{visit}.{run.openings.get(name, 1)}",
        intent_id=f"int_{run.start.run_id}_{name}_{visit}",
        action=intent.action,
        tool=intent.tool,
        object_type=intent.object.type,
        object_id=str(run.value(intent.object.id)),
        arguments=arguments_of(intent.arguments, run.process),
        amount=None if intent.amount is None else str(run.value(intent.amount)),
        currency=None if intent.currency is None else str(run.value(intent.currency)),
        uses=intent.uses,
        evidence=evidence,
        rests_on=rests_on(step),
        future_uses=step.future_uses,
        approvers=step.approvers,
        expires_after=step.expires_after,
        warn_before=step.warn_before,
    )


def rests_on(step: ApprovalStep) -> tuple[str, ...]:
    """Every field that the intent or its evidence is built from, each once, in the order of the route."""
    intent = step.intent
    named = [source for source in intent.arguments.values() if not isinstance(source, Argument)]
    limits = [field for field in (intent.amount, intent.currency) if field is not None]
    return tuple(dict.fromkeys([intent.object.id, *named, *limits, *step.evidence]))


def _evidence(run: Journey, field: str) -> EvidenceRef:
    value = run.value(field)
    return EvidenceRef(field=field, event_id=run.event_of(field), digest=digest(value), value=value)


def fingerprint(run: Journey, fields: tuple[str, ...]) -> str:
    """Digest of what the fields hold now."""
    return digest({field: run.value(field) for field in fields})
