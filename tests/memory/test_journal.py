"""Everything that happened is in the journal once, in order, and no personal value is to be read in any table."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from embedded import Postgres
from memory import journal
from memory.database import Database, many
from memory.keys import Keys
from memory.ledger import Ledger
from memory.objects import Objects
from memory.routes import Routes
from memory.runs import Runs
from perdure.calls import SettleRequest
from perdure.errors import VersionConflict
from perdure.ids import digest
from perdure.masked import MaskedText
from perdure.messages import EffectResult, EvidenceRef, Principal, RunInput, RunMessage, RunResult
from perdure.names import Event, Stream
from tests.memory.scene import ROUTE, Scene, decision

CANARIES = ("Анна Смирнова-Канарейкина", "+7 912 555-01-99", "canary.anna@example.test")
WHO = ("customer", "cus_1")


async def noted(
    database: Database, keys: Keys, principal: Principal, payload: dict[str, Any] | None = None, **options: Any
) -> tuple[str, int]:
    async with database.transaction(principal) as connection:
        return await journal.append(
            connection, keys, principal, Stream.RUN, "r1", Event.RUN_MESSAGE, payload or {}, WHO,
            process="refund", **options,
        )  # fmt: skip


async def stream(database: Database, keys: Keys, principal: Principal) -> list[journal.JournalEvent]:
    async with database.transaction(principal) as connection:
        return await journal.read(connection, keys, principal.tenant, Stream.RUN, "r1")


async def test_events_are_read_in_order_as_they_were_written(
    database: Database, keys: Keys, principal: Principal
) -> None:
    for n in range(3):
        assert (await noted(database, keys, principal, {"n": n, "text": "ёж"}))[1] == n + 1
    read = await stream(database, keys, principal)
    assert [(e.version, e.payload, e.actor) for e in read] == [(n + 1, {"n": n, "text": "ёж"}, "app") for n in range(3)]


async def test_a_repeat_of_an_event_id_is_the_first_event(database: Database, keys: Keys, principal: Principal) -> None:
    first = await noted(database, keys, principal, {"n": 1}, event_id="e1")
    await noted(database, keys, principal, {"n": 2})
    assert await noted(database, keys, principal, {"n": 3}, event_id="e1") == first == ("e1", 1)
    assert await noted(database, keys, principal, {"n": 3}, event_id="e1", expected_version=0) == first
    assert [e.payload["n"] for e in await stream(database, keys, principal)] == [1, 2]


async def test_a_stream_at_another_version_is_a_conflict(database: Database, keys: Keys, principal: Principal) -> None:
    assert (await noted(database, keys, principal, expected_version=0))[1] == 1
    for wrong in (0, 2):
        with pytest.raises(VersionConflict):
            await noted(database, keys, principal, expected_version=wrong)
    assert (await noted(database, keys, principal, expected_version=1))[1] == 2


async def test_of_two_at_once_one_is_a_conflict_and_no_version_is_there_twice(
    database: Database, keys: Keys, principal: Principal
) -> None:
    await noted(database, keys, principal)
    answers = await asyncio.gather(*(noted(database, keys, principal) for _ in range(10)), return_exceptions=True)
    assert [a for a in answers if isinstance(a, BaseException) and not isinstance(a, VersionConflict)] == []
    versions = [e.version for e in await stream(database, keys, principal)]
    assert versions == list(range(1, len(versions) + 1))
    assert len(versions) == 1 + len([a for a in answers if isinstance(a, tuple)])


async def test_an_event_of_another_tenant_is_not_there(database: Database, keys: Keys, principal: Principal) -> None:
    await noted(database, keys, principal, event_id="e1")
    other = principal.model_copy(update={"tenant": f"{principal.tenant}x"})
    assert await stream(database, keys, other) == []
    async with database.transaction(other) as connection:
        assert await journal.find(connection, keys, other.tenant, "e1") is None
    assert await noted(database, keys, other, event_id="e1") == ("e1", 1)


@pytest.fixture
async def told(
    ledger: Ledger, runs: Runs, routes: Routes, principal: Principal, database: Database, keys: Keys, tmp_path: Path
) -> None:
    """A whole run that was told personal values wherever it takes values at all."""
    secret = " / ".join(CANARIES)
    developer = principal.model_copy(update={"roles": ("developer",)})
    await routes.install(developer, ROUTE, digest(ROUTE.model_dump(mode="json")))
    start = RunInput(tenant=principal.tenant, run_id="r1", route="refund", actor="app", input={"order_id": secret})
    await runs.open(principal, start, await routes.get(principal, "refund"), "execution", WHO)
    scene = Scene(ledger, runs, routes, principal, "r1")
    evidence = (EvidenceRef(field="charge_id", event_id="e", digest="d", value=secret),)
    arguments = {"charge_id": secret, "amount": "82000.00", "currency": "RUB"}
    state = await scene.opened(arguments=arguments, evidence=evidence, future_uses=(secret,))
    comment = MaskedText(masked=secret, detector="none", seal="0" * 32)
    boss = principal.model_copy(update={"roles": ("approver",)})
    assert (await ledger.decide(boss, decision(state, comment=comment))).accepted
    held = await scene.reserved(await ledger.read_review(principal, state.review_id), arguments=arguments)
    result = EffectResult(outcome="done", fields={"receipt": secret}, reason=secret)
    await ledger.settle(SettleRequest(principal=principal, run_id="r1", key=held.key, fence=held.fence, result=result))
    for kind in ("message", "evidence"):
        message = RunMessage.model_validate({"id": kind, "kind": kind, "actor": "app", "fields": {"note": secret}})
        await runs.receive(principal, "r1", message)
    await Objects(database, keys, f"file://{tmp_path}").put(principal, WHO, secret.encode(), "text/plain")
    await runs.end(principal, "r1", RunResult(outcome="refunded", step="done"), ())


@pytest.mark.usefixtures("told")
async def test_no_table_holds_a_personal_value(postgres: Postgres, tmp_path: Path) -> None:
    everything = tmp_path / "dump.sql"
    await asyncio.to_thread(postgres.dump, everything)
    content = everything.read_bytes()
    assert b"82000.00" in content  # the dump is of rows
    for canary in CANARIES:
        plain = canary.encode()
        escaped = json.dumps(canary).strip('"').encode()
        for shape in (plain, escaped, plain.hex().encode(), plain.hex().upper().encode(), *_base64(plain)):
            assert shape not in content
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert not any(canary.encode() in file.read_bytes() for canary in CANARIES)


def _base64(plain: bytes) -> list[bytes]:
    """The middle of the value as base64 has it, wherever it begins."""
    shifted = [base64.b64encode(b"x" * shift + plain)[4:-4] for shift in range(3)]
    assert all(len(part) > 12 for part in shifted)
    return shifted


@pytest.mark.usefixtures("told")
async def test_the_journal_still_tells_them_to_those_who_may_read(
    database: Database, keys: Keys, principal: Principal
) -> None:
    read = await stream(database, keys, principal)
    assert [e.type for e in read] == [Event.RUN_STARTED, Event.RUN_MESSAGE, Event.RUN_EVIDENCE, Event.RUN_ENDED]
    assert all(CANARIES[0] in json.dumps(e.payload, ensure_ascii=False) for e in read[:3])
    async with database.transaction(principal) as connection:
        rows = await many(connection, "SELECT DISTINCT subject_type, subject_id FROM perdure.journal")
    assert {(r["subject_type"], r["subject_id"]) for r in rows} == {WHO, ("route", "refund")}
