"""The panel of a run in Temporal's UI: where it stands, in markdown; ids and masked values only."""

from datetime import datetime

from perdure.messages import Obligation, ProcessView, ReviewState


def render(view: ProcessView, review: ReviewState | None) -> str:
    """The whole panel."""
    outcome = "" if view.outcome is None else f" as `{view.outcome}`"
    lines = [f"**{view.status}**{outcome} · route `{view.route}` version {view.version} · step `{view.step}`"]
    if view.waiting_for is not None and view.since is not None:
        lines.append(f"\nWaits for `{view.waiting_for}` since {_time(view.since)}.")
    if review is not None:
        lines += _review(review)
    owed = [obligation for obligation in view.obligations if obligation.closed is None]
    if owed:
        lines += ["\n**Owed**\n", *(f"- {o.kind} by `{o.owner}`{_due(o)}{_because(o)}" for o in owed)]
    if view.refused_messages:
        lines += ["\n**Refused**\n", *(f"- {entry}" for entry in view.refused_messages)]
    return "\n".join(lines)


def _review(review: ReviewState) -> list[str]:
    amount = "" if review.amount is None else f", at most {review.amount} {review.currency or ''}".rstrip()
    return [
        f"\n- review `{review.review_id}`: {review.action} on {review.object_type} `{review.object_id}`{amount}",
        f"- intent version {review.version}, digest `{review.digest[:12]}`",
        f"- expires {_time(review.expires_at)}",
    ]


def _due(obligation: Obligation) -> str:
    return "" if obligation.due_at is None else f", due {_time(obligation.due_at)}"


def _because(obligation: Obligation) -> str:
    return f": {obligation.reason}" if obligation.reason else ""


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")
