"""Whatever several holders do in whatever order: one holder for a fence, one result for a key, nothing unapproved."""

import asyncio
import itertools
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory.database import Database, change, many
from memory.keys import Keys
from memory.ledger import Ledger
from memory.routes import Routes
from memory.runs import Runs
from perdure.calls import Reservation, ReserveRequest, SettleRequest
from perdure.errors import LeaseLost, Refusal
from perdure.messages import EffectResult, Principal, ReviewState, RunMessage
from tests.memory.scene import Scene, decision, open_scene

AMOUNTS = ("82000.00", "820000.00")
HOLDERS = ("a", "b", "c")
PICKS = st.integers(0, 5)
ACTIONS = st.one_of(
    st.tuples(st.just("open"), st.integers(1, 2), st.sampled_from(AMOUNTS)),
    st.tuples(st.just("decide"), PICKS, st.sampled_from(("approve", "approve", "approve", "reject"))),
    st.tuples(st.just("reserve"), PICKS, st.sampled_from(HOLDERS)),
    st.tuples(st.just("reserve"), PICKS, st.sampled_from(HOLDERS)),
    st.tuples(st.just("overreach"), PICKS, st.sampled_from(HOLDERS)),
    st.tuples(st.just("settle"), PICKS, st.sampled_from(("done", "not_executed", "unknown"))),
    st.tuples(st.just("lapse"), st.none(), st.none()),
    st.tuples(st.just("overtake"), PICKS, st.sampled_from(HOLDERS)),
    st.tuples(st.just("change"), st.none(), st.none()),
)
BEGIN = [[("open", 1, AMOUNTS[0])], [("decide", 0, "approve")], [("reserve", 0, "a")]]
HISTORIES = st.lists(st.lists(ACTIONS, min_size=1, max_size=3), min_size=3, max_size=14).map(lambda h: BEGIN + h)
tenants = itertools.count()


@dataclass
class History:
    """What was done in one run, and what the ledger said to it."""

    scene: Scene
    database: Database
    openings: int = 0
    asked: list[tuple[ReviewState, str]] = field(default_factory=list)
    approved: list[tuple[ReviewState, str]] = field(default_factory=list)
    held: list[Reservation] = field(default_factory=list)
    holders: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    fresh: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    versions: dict[str, tuple[str, int]] = field(default_factory=dict)
    results: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    settled: dict[str, int] = field(default_factory=dict)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def open(self, visit: int, amount: str) -> None:
        self.openings += 1
        self.asked.append((await self.scene.opened(f"ask.{self.openings}", amount, visit=visit), amount))

    async def decide(self, which: int, verdict: str) -> None:
        if self.asked:
            state, amount = self.asked[-1 - which % len(self.asked)]
            boss = Principal(tenant=self.scene.principal.tenant, actor="boss", roles=("approver",))
            outcome = await self.scene.ledger.decide(boss, decision(state, verdict))
            if outcome.accepted and outcome.grant_id is not None:
                self.approved.append((state.model_copy(update={"grant_id": outcome.grant_id}), amount))

    async def reserve(self, which: int, holder: str) -> None:
        if self.approved:
            state, amount = self.approved[-1 - which % len(self.approved)]
            await self._reserve(self.scene.reserving(state, amount, holder=holder))

    async def overreach(self, which: int, holder: str) -> None:
        """Ask for the other amount with this grant."""
        if self.approved:
            state, amount = self.approved[-1 - which % len(self.approved)]
            other = AMOUNTS[1 - AMOUNTS.index(amount)]
            assert not await self._reserve(self.scene.reserving(state, other, holder=holder))

    async def _reserve(self, request: ReserveRequest) -> bool:
        try:
            answer = await self.scene.ledger.reserve(request)
        except Refusal:
            return False
        self.versions[answer.key] = (request.intent_id, request.intent_version)
        if answer.status in ("fresh", "resumed"):
            self.held.append(answer)
            self.holders[answer.key, answer.fence].add(request.holder)
        if answer.status == "fresh":
            self.fresh[answer.key].add(request.holder)
        if answer.result is not None:
            self.results[answer.key].add(answer.result.model_dump_json())
        return True

    async def settle(self, which: int, outcome: str) -> None:
        if self.held:
            mine = self.held[-1 - which % len(self.held)]
            result = {"outcome": outcome, "reason": f"attempt {next(self.numbers)}"}
            request = SettleRequest(
                principal=self.scene.principal,
                run_id="r1",
                key=mine.key,
                fence=mine.fence,
                result=EffectResult.model_validate(result),
            )
            with suppress(LeaseLost):
                stored = await self.scene.ledger.settle(request)
                self.results[mine.key].add(stored.model_dump_json())
                if stored == request.result:
                    self.settled[mine.key] = mine.fence

    async def lapse(self, *_: None) -> None:
        """All leases are over: every holder slept."""
        async with self.database.transaction(self.scene.principal) as connection:
            await change(
                connection, "UPDATE perdure.effects SET leased_until = clock_timestamp() - interval '1 second'"
            )

    async def overtake(self, which: int, holder: str) -> None:
        """The last holder sleeps, another takes over, and the first one wakes up with an answer."""
        await self.lapse()
        await self.reserve(which, holder)
        await self.settle(1, "done")

    async def change(self, *_: None) -> None:
        message = RunMessage(id=f"m{next(self.numbers)}", kind="message", actor="app", fields={"amount": "1"})
        await self.scene.runs.receive(self.scene.principal, "r1", message)

    async def check(self) -> None:
        assert all(len(holders) == 1 for holders in self.holders.values())
        assert all(len(holders) == 1 for holders in self.fresh.values())
        assert all(len(results) == 1 for results in self.results.values())
        allowed = {(state.intent_id, state.version): amount for state, amount in self.approved}
        assert set(self.versions.values()) <= set(allowed)
        assert len(set(self.versions.values())) == len(self.versions)
        async with self.database.transaction(self.scene.principal) as connection:
            effects = await many(connection, EFFECTS)
        assert {row["key"] for row in effects} == set(self.versions)
        for row in effects:
            version = (row["intent_id"], row["intent_version"])
            assert version == self.versions[row["key"]] == (row["reviewed_intent"], row["reviewed_version"])
            assert (row["review_status"], row["uses_left"]) == ("approved", 0)
            assert str(row["amount"]) == allowed[version]
            assert row["settled_events"] == (0 if row["status"] == "reserved" else 1)
            assert self.settled.get(row["key"]) in (None, row["fence"])
            assert row["fence"] == max(fence for key, fence in self.holders if key == row["key"])


EFFECTS = (
    "SELECT e.key, e.status, e.fence, e.intent_id, e.intent_version, r.intent_id AS reviewed_intent,"
    " r.intent_version AS reviewed_version, r.status AS review_status, g.uses_left, i.amount,"
    " (SELECT count(*) FROM perdure.journal WHERE stream_id = e.key AND type = 'effect.settled') AS settled_events"
    " FROM perdure.effects e JOIN perdure.grants g USING (tenant, grant_id)"
    " JOIN perdure.reviews r USING (tenant, review_id) JOIN perdure.intents i"
    " ON i.tenant = e.tenant AND i.intent_id = e.intent_id AND i.version = e.intent_version"
)


@settings(
    max_examples=40,
    deadline=timedelta(seconds=20),
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(history=HISTORIES)
async def test_any_history(database: Database, keys: Keys, history: list[list[tuple[str, Any, Any]]]) -> None:
    principal = Principal(tenant=f"once-{id(database)}-{next(tenants)}", actor="app")
    scene = await open_scene(Ledger(database, keys), Runs(database, keys), Routes(database, keys), principal)
    done = History(scene, database)
    for together in history:
        await asyncio.gather(*(getattr(done, name)(*arguments) for name, *arguments in together))
    await done.check()
