"""A run of the refund route, for the tests of process memory."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memory.process import Process
from memory.reducer import begin
from perdure.messages import RunMessage
from perdure.routefile import parse

NOW = datetime(2026, 1, 31, 9, tzinfo=UTC)
ROUTE = parse(Path("examples/refund/route.yaml").read_text(), "route.yaml")
MASKED = {"masked": "I am [PERSON_1]", "detector": "standin-1", "seal": "0" * 32}
INPUT = {"customer_id": "c1", "order_id": "o1", "complaint": MASKED}
CHARGE = {"charged_twice": True, "charge_id": "ch_1", "amount": "820.00", "currency": "EUR"}


def begun() -> Process:
    return begin(ROUTE, "r1", INPUT, NOW)


def message(name: str, fields: dict[str, Any], kind: str = "message") -> RunMessage:
    return RunMessage.model_validate({"id": name, "kind": kind, "actor": "u1", "fields": fields})


def values(process: Process) -> dict[str, Any]:
    return {name: held.value for name, held in process.state.items()}
