"""Reserve and settle beside two bare one-row transactions on the same server."""

import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import embedded
from memory.database import Database, change
from memory.ledger import Ledger
from memory.routes import Routes
from memory.runs import Runs
from perdure.calls import SettleRequest
from perdure.messages import EffectResult, Principal
from tests.benchmarks.conftest import Figures, median
from tests.memory.scene import Scene, open_scene

pytestmark = pytest.mark.bench

ROUNDS = 400


@pytest.fixture
async def bare(postgres: embedded.Postgres) -> AsyncIterator[Database]:
    """The same server and driver, with a table that has one column and no rules."""
    database = Database(postgres.url("postgres"), pool_size=1)
    async with database.across_tenants() as connection:
        await change(connection, "CREATE TABLE IF NOT EXISTS public.bare (id bigserial PRIMARY KEY, value text)")
    yield database
    await database.close()


async def test_an_effect_costs_little_more_than_two_inserts(
    bare: Database, ledger: Ledger, runs: Runs, routes: Routes, principal: Principal, figures: Figures
) -> None:
    scene = await open_scene(ledger, runs, routes, principal)
    effect: list[float] = []
    inserts: list[float] = []
    for number in range(ROUNDS):
        effect.append(await _effect(scene, number))
        began = time.perf_counter()
        for _ in range(2):
            async with bare.across_tenants() as connection:
                await change(connection, "INSERT INTO public.bare (value) VALUES (:value)", value="x" * 200)
        inserts.append(time.perf_counter() - began)
    figures.note("ledger_ratio", median(effect[20:]) / median(inserts[20:]), "ratio", "<= 2.5", ROUNDS - 20)


async def _effect(scene: Scene, number: int) -> float:
    state = await scene.approved(f"ask.{number}.1", visit=number, expires_after=timedelta(hours=1))
    request = scene.reserving(state)
    began = time.perf_counter()
    reservation = await scene.ledger.reserve(request)
    result = EffectResult(outcome="done", fields={"refund_id": "re_1"}, digest="0" * 64)
    await scene.ledger.settle(
        SettleRequest(
            principal=scene.principal, run_id=scene.run_id, key=reservation.key, fence=reservation.fence, result=result
        )
    )
    return time.perf_counter() - began
