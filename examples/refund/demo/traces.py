"""Everything that the demo's stack wrote down: the database, the histories (sealed and opened), the logs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHandle

from embedded import prepare_postgres
from examples.refund.demo.machine import Machine
from perdure.codec import SealingCodec
from perdure.keyring import KeyRing

POSTGRES = "pg"
"""The database's own files are read through a dump; what is in them raw is compressed in part."""


@dataclass(frozen=True)
class History:
    """Size of a run's history, as Temporal counts it."""

    events: int
    bytes: int


async def collect(machine: Machine, tenant: str, workflow_id: str) -> tuple[History, list[Path]]:
    """Write dump and histories beside the stack; the sizes, and all files to look into."""
    folder = machine.folder / "traces"
    folder.mkdir(exist_ok=True)
    prepare_postgres(machine.home.postgres).dump(folder / "database.sql")
    client = await Client.connect(machine.environment["TEMPORAL_ADDRESS"])
    history = await _export(client.get_workflow_handle(workflow_id), folder, _codec(machine, tenant))
    return history, _files(machine.folder)


def _codec(machine: Machine, tenant: str) -> SealingCodec:
    return SealingCodec(KeyRing.read(Path(machine.environment["PERDURE_KEYS__CODEC_FILE"])), tenant)


async def _export(run: WorkflowHandle[Any, Any], folder: Path, codec: SealingCodec) -> History:
    described = (await run.describe()).raw_description.workflow_execution_info
    sealed = (await run.fetch_history()).to_json_dict()
    opened = [await _opened(payload, codec) for payload in _payloads(sealed)]
    (folder / "history.sealed.json").write_text(json.dumps(sealed))
    (folder / "history.opened.json").write_text("\n".join(opened))
    return History(described.history_length, described.history_size_bytes)


async def _opened(payload: Payload, codec: SealingCodec) -> str:
    return (await codec.decode([payload]))[0].data.decode(errors="replace")


def _payloads(node: Any) -> Iterator[Payload]:
    if isinstance(node, dict) and {"metadata", "data"} <= node.keys():
        try:
            yield ParseDict(node, Payload())
        except ParseError:
            return
        return
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _payloads(child)


def _files(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.rglob("*")) if file.is_file() and POSTGRES not in file.parts]
