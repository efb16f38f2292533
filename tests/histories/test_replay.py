"""Recorded runs replay with today's workflow: a change of its commands would break runs that are under way.

When a change is meant, guard it with ``workflow.patched`` and record a new history beside the old ones:
``PERDURE_RECORD=1 python -m pytest tests/histories`` writes those that are missing; those that exist stay.
"""

import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from embedded import Postgres
from memory.database import Database
from memory.keys import Keys
from perdure.codec import is_sealed
from perdure.errors import PerdureError
from perdure.keyring import KeyRing
from perdure.temporal import data_converter
from tests.histories.scenarios import SCENARIOS
from tests.stage import Stage, staged
from worker import sandbox
from workflows.agent_run import AgentRun

FOLDER = Path(__file__).parent
RECORDED = sorted((FOLDER / "recorded").glob("*.json"))
RING = KeyRing.read(FOLDER / "keyring.json")
MACHINE = re.compile(r'"[0-9]+@[^"]*"')
NOTED = {
    "activation_index",
    "activity_id",
    "activity_type",
    "attempt",
    "backoff",
    "complete_time",
    "original_schedule_time",
    "seq",
}


@pytest.fixture
async def recording(
    temporal: Client,
    database: Database,
    relay_database: Database,
    keys: Keys,
    postgres: Postgres,
    tmp_path: Path,
) -> AsyncIterator[Stage]:
    """A stage whose histories are sealed by the ring that is kept beside them."""
    config = temporal.config()
    config["data_converter"] = data_converter(RING)
    async with staged(Client(**config), database, relay_database, keys, postgres, tmp_path) as stage:
        yield stage


def replayer() -> Replayer:
    return Replayer(
        workflows=[AgentRun],
        workflow_runner=sandbox(),
        workflow_failure_exception_types=[PerdureError],
        data_converter=data_converter(RING),
    )


def read(text: str) -> WorkflowHistory:
    started = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]
    return WorkflowHistory.from_json(started["workflowId"], text)


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
async def test_a_recorded_run_replays(file: Path) -> None:
    """Every command comes as it came then."""
    await replayer().replay_workflow(read(file.read_text()))


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_run_of_today_replays(recording: Stage, name: str) -> None:
    """Each kind of run ends, is recorded and replays; it must be among the recorded ones."""
    async with recording.working():
        run = await SCENARIOS[name](recording)
        await run.result()
    history = await run.fetch_history()
    await replayer().replay_workflow(history)
    file = FOLDER / "recorded" / f"{name}.json"
    if os.environ.get("PERDURE_RECORD") and not file.exists():
        text = MACHINE.sub('"recorder"', json.dumps(json.loads(history.to_json()), indent=1))
        file.write_text(text + "\n")
    assert file.exists(), "record it: PERDURE_RECORD=1 python -m pytest tests/histories"


@pytest.mark.parametrize("activity", ["call_tool", "ask_model"])
async def test_other_commands_do_not_replay(activity: str) -> None:
    """The test can fail: a history that asked for another activity is noticed."""
    text = json.dumps(json.loads((FOLDER / "recorded" / "approved.json").read_text()))
    other = text.replace(f'"activityType": {{"name": "{activity}"}}', '"activityType": {"name": "another"}')
    assert other != text
    with pytest.raises(NondeterminismError):
        await replayer().replay_workflow(read(other))


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_a_recorded_run_is_sealed(file: Path) -> None:
    """What is kept here is what Temporal keeps: nothing can be read but search attributes, and the SDK's own notes of
    which local activity ran when."""
    for event in read(file.read_text()).events:
        for payload in _payloads(event):
            assert is_sealed(payload) or set(json.loads(payload.data)) == NOTED


def _payloads(message: Any) -> list[Any]:
    found: list[Any] = []
    for field, value in message.ListFields():
        if field.name == "search_attributes":
            continue
        for part in _parts(field, value):
            found += [part] if part.DESCRIPTOR.name == "Payload" else _payloads(part)
    return found


def _parts(field: Any, value: Any) -> list[Any]:
    if field.message_type is None:
        return []
    values = list(value.values()) if field.message_type.GetOptions().map_entry else value
    parts = values if isinstance(values, list) or not hasattr(values, "ListFields") else [values]
    return [part for part in parts if hasattr(part, "ListFields")]
