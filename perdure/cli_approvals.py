"""``perdure approvals | approve | reject | proof``: look at the changes, then decide on exactly those."""

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.prompt import Confirm

from perdure.cli_screen import Screen, facts, moment, plain, screen_of, table, text_of
from perdure.errors import InvalidInput
from perdure.messages import Decision, Principal, ReviewDetail
from perdure.proof import PROOF_SECONDS, make_proof

Verdict = Literal["approve", "reject"]
ReviewId = Annotated[str, typer.Argument(help="The review's id.")]
Comment = Annotated[str | None, typer.Option(help="Why; masked before it is stored.")]
Personal = Annotated[list[str] | None, typer.Option(help="A value to mask in the comment. Repeatable.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Key = Annotated[str | None, typer.Option(help="Idempotency key; a repeat with the same key is one decision.")]


def approvals(
    context: typer.Context,
    status: Annotated[str, typer.Option(help="pending, approved, rejected, expired or cancelled")] = "pending",
    limit: Annotated[int, typer.Option(min=1, max=200)] = 50,
) -> None:
    """List the reviews that you may decide."""
    screen = screen_of(context)
    found = screen.call(lambda client: client.approvals(status=status, limit=limit))

    def drawn() -> Iterable[Any]:
        rows = table("review", "action", "object", "limit", "version", "status", "expires", "run")
        for review in found.items:
            rows.add_row(
                review.review_id,
                review.action,
                plain(f"{review.object_type}:{review.object_id}"),
                plain(f"{review.amount or ''} {review.currency or ''}".strip()),
                str(review.version),
                review.status,
                moment(review.expires_at),
                review.run_id,
            )
        yield rows if found.items else "nothing waits for you"

    screen.show(found, drawn)


def approve(
    context: typer.Context,
    review: ReviewId,
    comment: Comment = None,
    personal: Personal = None,
    yes: Yes = False,
    key: Key = None,
) -> None:
    """Show what would change and approve exactly that."""
    _decide(screen_of(context), review, "approve", comment, personal or [], yes, key)


def reject(
    context: typer.Context,
    review: ReviewId,
    comment: Comment = None,
    personal: Personal = None,
    yes: Yes = False,
    key: Key = None,
) -> None:
    """Show what would change and reject it."""
    _decide(screen_of(context), review, "reject", comment, personal or [], yes, key)


def proof(
    context: typer.Context,
    review: ReviewId,
    signing_key: Annotated[Path, typer.Option(help="Ed25519 private key (PEM) whose public half the service knows.")],
    tenant: Annotated[str, typer.Option()],
    actor: Annotated[str, typer.Option(help="Who decides.")],
    role: Annotated[list[str], typer.Option(help="A role of the one who decides. Repeatable.")],
    verdict: Annotated[str, typer.Option(help="approve or reject")] = "approve",
    version: Annotated[int | None, typer.Option(help="Default: the version that is open now.")] = None,
    digest: Annotated[str | None, typer.Option(help="Default: the digest that is open now.")] = None,
    key_id: Annotated[str | None, typer.Option(help="The key's id in the JWKS.")] = None,
    seconds: Annotated[int, typer.Option(min=1, max=86_400)] = PROOF_SECONDS,
) -> None:
    """Print a decision with its proof: the input of the Temporal signal or update ``decide``."""
    if verdict not in ("approve", "reject"):
        raise InvalidInput("a verdict is approve or reject")
    screen = screen_of(context)
    if version is None or digest is None:
        state = screen.call(lambda client: client.approval(review)).state
        version, digest = version or state.version, digest or state.digest
    decision = Decision(
        review_id=review,
        decision_id=f"dec_{uuid.uuid4().hex}",
        verdict="approve" if verdict == "approve" else "reject",
        version=version,
        digest=digest,
    )
    reviewer = Principal(tenant=tenant, actor=actor, roles=tuple(role))
    signed = make_proof(decision, reviewer, text_of(signing_key), key_id=key_id, seconds=seconds)
    typer.echo(decision.model_copy(update={"proof": signed}).model_dump_json(exclude_defaults=True))


def _decide(
    screen: Screen, review: str, verdict: Verdict, comment: str | None, personal: list[str], yes: bool, key: str | None
) -> None:
    detail = screen.call(lambda client: client.approval(review))
    if not screen.machine:
        for part in _drawn(detail):
            screen.console.print(part)
    if not yes and not Confirm.ask(f"{verdict} version {detail.state.version}?", console=screen.errors, default=False):
        raise typer.Exit(1)
    decided = screen.call(
        lambda client: client.decide(detail.state, verdict, comment=comment, personal=personal, key=key)
    )
    said = "approved" if verdict == "approve" else "rejected"
    screen.show(decided, lambda: [f"[bold]{said}[/] version {detail.state.version} of {detail.state.intent_id}"])


def _drawn(detail: ReviewDetail) -> Iterable[Any]:
    state = detail.state
    yield facts(
        {
            "review": state.review_id,
            "what": f"{state.action} on {state.object_type}:{state.object_id}",
            "limit": f"{state.amount or ''} {state.currency or ''}".strip(),
            "uses": state.uses,
            "version": state.version
            if detail.previous_version is None
            else f"{state.version}, was {detail.previous_version}",
            "status": state.status,
            "expires": state.expires_at,
            "then used for": ", ".join(detail.future_uses),
        }
    )
    changes = table("field", "before", "now", title="Changes")
    for change in detail.changes:
        before = plain("" if change.previous is None else change.previous)
        changes.add_row(plain(change.field), before, plain(change.proposed))
    yield changes
    if detail.evidence:
        evidence = table("field", "value", "event", title="Rests on")
        for item in detail.evidence:
            evidence.add_row(plain(item.field), plain(item.value), item.event_id)
        yield evidence
