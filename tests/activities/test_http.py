"""The HTTP tool against a real server: one effect, or known to be unknown."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from activities.tools.http import HttpTarget
from perdure.attempt import attempt
from perdure.errors import AnswerLost, GrantExpired, ResultTooLarge, StepRefused, ToolRefused, ToolUnavailable
from perdure.messages import ToolCall
from perdure.toolfile import HttpTool
from tests.provider import Provider, tool_file


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient() as client:
        yield client


def target(
    provider: Provider, client: httpx.AsyncClient, tool: str = "payments.refund", *, lookup: bool = True
) -> HttpTarget:
    file = tool_file(provider.url, lookup=lookup)
    declared = file.tools[tool]
    assert isinstance(declared, HttpTool)
    return HttpTarget(tool, declared, file.servers, {}, client)


def refund_call(**changes: object) -> ToolCall:
    call = ToolCall(
        tenant="demo",
        run_id="r1",
        tool="payments.refund",
        arguments={"charge": "ch_1", "amount": "820.00", "currency": "EUR"},
        sets={"refund_id": "id"},
        timeout=timedelta(seconds=2),
        key="pk_1",
        not_after=datetime.now(UTC) + timedelta(minutes=1),
    )
    return call.model_copy(update=changes)


def find_call(**changes: object) -> ToolCall:
    call = ToolCall(
        tenant="demo",
        run_id="r1",
        tool="payments.find_charge",
        arguments={"order": "A-1"},
        sets={"amount": "charge.amount"},
        timeout=timedelta(seconds=2),
    )
    return call.model_copy(update=changes)


async def test_an_effect_is_confirmed_by_lookup(provider: Provider, client: httpx.AsyncClient) -> None:
    """A declared lookup is asked before a 2xx is believed."""
    result = await attempt(target(provider, client), refund_call(), 1)
    assert result.outcome == "done"
    assert result.fields == {"refund_id": "re_1"}
    assert provider.calls == ["POST /refunds", "GET /refunds/by-key/pk_1"]


async def test_an_answer_of_200_that_did_nothing_is_unknown(provider: Provider, client: httpx.AsyncClient) -> None:
    """When the lookup disagrees with a 2xx, nobody claims that it was done."""
    provider.do_nothing = True
    result = await attempt(target(provider, client), refund_call(), 1)
    assert result.outcome == "unknown"
    assert provider.refunds == {}


async def test_a_lost_answer_is_looked_up_before_anything_else(provider: Provider, client: httpx.AsyncClient) -> None:
    """Lost once: the next attempt asks, finds it, and sends nothing."""
    provider.drop_answers = 1
    with pytest.raises(AnswerLost):
        await attempt(target(provider, client), refund_call(), 1)
    result = await attempt(target(provider, client), refund_call(), 2)
    assert result.outcome == "done"
    assert result.fields == {"refund_id": "re_1"}
    assert provider.attempts == 1
    assert len(provider.refunds) == 1


async def test_an_answer_lost_twice_stays_one_effect(provider: Provider, client: httpx.AsyncClient) -> None:
    """The lookup's answer is lost too: still nothing is sent again."""
    provider.drop_answers, provider.drop_lookups = 1, 1
    for number in (1, 2):
        with pytest.raises(AnswerLost):
            await attempt(target(provider, client), refund_call(), number)
    result = await attempt(target(provider, client), refund_call(resumed=True), 1)
    assert result.outcome == "done"
    assert provider.attempts == 1


async def test_without_lookup_a_lost_answer_is_unknown_after_one_call(
    provider: Provider, client: httpx.AsyncClient
) -> None:
    """Nobody repeats what cannot be asked about."""
    provider.drop_answers = 1
    blind = target(provider, client, lookup=False)
    assert (await attempt(blind, refund_call(), 1)).outcome == "unknown"
    assert (await attempt(blind, refund_call(), 2)).outcome == "unknown"
    assert (await attempt(blind, refund_call(resumed=True), 1)).outcome == "unknown"
    assert provider.attempts == 1


async def test_a_status_that_means_not_executed(provider: Provider, client: httpx.AsyncClient) -> None:
    """Declared statuses promise that nothing was done: refused for good, or to be tried later."""
    provider.statuses = [422, 503, 500]
    assert (await attempt(target(provider, client), refund_call(), 1)).outcome == "not_executed"
    with pytest.raises(ToolUnavailable):
        await attempt(target(provider, client), refund_call(), 1)
    with pytest.raises(AnswerLost):
        await attempt(target(provider, client), refund_call(), 1)


async def test_nothing_is_sent_after_the_grant_expired(provider: Provider, client: httpx.AsyncClient) -> None:
    """Too late is too late, also for an attempt that was only delayed; the lookup may still tell."""
    late = refund_call(not_after=datetime.now(UTC) - timedelta(seconds=1))
    with pytest.raises(GrantExpired):
        await attempt(target(provider, client), late, 1)
    with pytest.raises(GrantExpired):
        await attempt(target(provider, client), late, 2)
    assert provider.attempts == 0


async def test_a_request_ends_when_the_grant_does(provider: Provider, client: httpx.AsyncClient) -> None:
    """The whole request fits in what is left of the grant."""
    provider.delay = 1.5
    soon = refund_call(not_after=datetime.now(UTC) + timedelta(seconds=0.3))
    began = datetime.now(UTC)
    with pytest.raises(AnswerLost):
        await attempt(target(provider, client), soon, 1)
    assert datetime.now(UTC) - began < timedelta(seconds=1.2)


async def test_nothing_listens(provider: Provider, client: httpx.AsyncClient) -> None:
    """A refused connection sent nothing, so it may be tried again."""
    provider.close()
    with pytest.raises(ToolUnavailable):
        await attempt(target(provider, client), refund_call(), 1)


async def test_a_large_answer_leaves_only_what_was_asked_for(provider: Provider, client: httpx.AsyncClient) -> None:
    """3 MB come back; a run carries the declared values."""
    provider.padding = 3_000_000
    result = await attempt(target(provider, client, "payments.find_charge"), find_call(), 1)
    assert result.fields == {"amount": "820.00"}
    assert len(result.model_dump_json()) < 500


async def test_a_declared_value_that_is_too_large_is_refused(provider: Provider, client: httpx.AsyncClient) -> None:
    """A reading step is refused; an effect stays done and says what is wrong with its answer."""
    provider.padding = 3_000_000
    with pytest.raises(ResultTooLarge):
        await attempt(target(provider, client, "payments.find_charge"), find_call(sets={"note": "note"}), 1)
    result = await attempt(target(provider, client), refund_call(sets={"note": "note", "refund_id": "id"}), 1)
    assert result.outcome == "done"
    assert result.fields == {"refund_id": "re_1"}
    assert result.reason is not None
    assert result.reason.startswith("ResultTooLarge")


async def test_an_answer_without_a_declared_value_is_refused(provider: Provider, client: httpx.AsyncClient) -> None:
    """A required value that is missing stops the step, and the message holds its path alone."""
    find = target(provider, client, "payments.find_charge")
    find.required = frozenset({"charge.fee"})
    with pytest.raises(StepRefused, match="charge.fee"):
        await attempt(find, find_call(sets={"fee": "charge.fee"}), 1)


async def test_a_reading_step_that_is_refused(provider: Provider, client: httpx.AsyncClient) -> None:
    """A tool that only reads raises the refusal."""
    provider.statuses = [404]
    with pytest.raises(ToolRefused):
        await attempt(target(provider, client), refund_call(key=None), 1)
