"""An effect that another holder began and never settled: it is taken over by asking, never by doing it again."""

import asyncio
from datetime import timedelta

import httpx
import pytest

from perdure.calls import Reservation, ReserveRequest
from perdure.messages import ReviewState
from perdure.toolfile import ToolFile
from tests.provider import tool_file
from tests.stage import ROUTE, Run, Stage, run_id_of

ARGUMENTS = {"charge": "ch_1", "amount": "820.00", "currency": "EUR"}


async def begun_elsewhere(stage: Stage, seconds: float = 0.2) -> tuple[Run, Reservation]:
    """A run with a decision that it has not seen yet, and a holder that has begun the effect and then vanished."""
    async with stage.working():
        run = await stage.start()
        review = await stage.review(run)
    outcome = await stage.ledger.decide(stage.approver, stage.decision(review))
    return run, await stage.ledger.reserve(reservation(stage, run, review, outcome.grant_id or "", seconds))


def reservation(stage: Stage, run: Run, review: ReviewState, grant: str, seconds: float) -> ReserveRequest:
    return ReserveRequest(
        principal=stage.principal,
        run_id=run_id_of(run),
        route="refund",
        grant_id=grant,
        intent_id=review.intent_id,
        intent_version=review.version,
        action="refund",
        tool="payments.refund",
        object_type="charge",
        object_id="ch_1",
        arguments=ARGUMENTS,
        amount="820.00",
        currency="EUR",
        holder="vanished",
        lease_for=timedelta(seconds=seconds),
    )


async def act(stage: Stage, key: str) -> None:
    async with httpx.AsyncClient() as client:
        await client.post(f"{stage.provider.url}/refunds", json=ARGUMENTS, headers={"Idempotency-Key": key})


async def test_what_another_holder_did_is_found(stage: Stage) -> None:
    """It had acted before it vanished: the run waits for its lease to end, asks, and settles what it finds."""
    run, begun = await begun_elsewhere(stage, seconds=2)
    await act(stage, begun.key)
    async with stage.working():
        assert (await run.result()).outcome == "refunded"
    assert (stage.provider.attempts, list(stage.provider.refunds)) == (1, [begun.key])


async def test_what_another_holder_did_not_do_is_done(stage: Stage) -> None:
    """It vanished before it acted, and the target says so."""
    run, begun = await begun_elsewhere(stage)
    async with stage.working():
        assert (await run.result()).outcome == "refunded"
    assert stage.provider.calls[-3:] == [
        f"GET /refunds/by-key/{begun.key}",
        "POST /refunds",
        f"GET /refunds/by-key/{begun.key}",
    ]
    assert len(stage.provider.refunds) == 1


async def test_without_lookup_what_another_holder_began_is_unknown(stage: Stage) -> None:
    """Nobody can ask, so nobody acts."""
    run, begun = await begun_elsewhere(stage)
    async with stage.working(stage.tools(tool_file(stage.provider.url, lookup=False))):
        result = await run.result()
    assert (result.outcome, result.obligations_open) == ("handed_off", (begun.key,))
    assert stage.provider.attempts == 0


@pytest.mark.slow
async def test_what_another_holder_did_is_not_denied_because_nobody_can_ask(stage: Stage) -> None:
    """It had acted; the grant is over and the tool's own worker is away: that is unknown, and not `not_executed`."""
    await stage.install(ROUTE.replace("expires_after: 72h", "expires_after: 3s"))
    tools = away(stage)
    async with stage.working(stage.tools(tools)):
        run = await stage.start()
        review = await stage.review(run)
    outcome = await stage.ledger.decide(stage.approver, stage.decision(review))
    begun = await stage.ledger.reserve(reservation(stage, run, review, outcome.grant_id or "", 0.2))
    await act(stage, begun.key)
    await asyncio.sleep(3)
    async with stage.working(stage.tools(tools)):
        result = await run.result()
    [effect] = await stage.ledger.effects(stage.principal, run_id_of(run))
    assert (effect.status, result.obligations_open) == ("unknown", (begun.key,))


async def test_what_another_holder_did_is_not_denied_because_the_tool_is_gone(stage: Stage) -> None:
    """No worker knows the tool any more: that says nothing about what was done before."""
    run, begun = await begun_elsewhere(stage)
    await act(stage, begun.key)
    async with stage.working(stage.tools(toolless(stage))):
        result = await run.result()
    [effect] = await stage.ledger.effects(stage.principal, run_id_of(run))
    assert (effect.status, result.obligations_open) == ("unknown", (begun.key,))


def toolless(stage: Stage) -> ToolFile:
    """The tools without the refund."""
    file = tool_file(stage.provider.url)
    return file.model_copy(update={"tools": {"payments.find_charge": file.tools["payments.find_charge"]}})


def away(stage: Stage) -> ToolFile:
    """The refund as a hosted tool that no worker hosts now."""
    file = tool_file(stage.provider.url).model_dump(mode="json")
    declared = file["tools"]["payments.refund"]
    kept = {name: declared[name] for name in ("effect", "parameters", "result")}
    file["tools"]["payments.refund"] = {
        "kind": "hosted", "task_queue": "nobody", "lookup": True, "timeout": "PT1S", **kept,
    }  # fmt: skip
    return ToolFile.model_validate(file)
