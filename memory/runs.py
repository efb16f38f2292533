"""Runs as rows: what the gateway lists, what reviews and effects ask before they go on, and what a run was sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from memory import journal, withdrawal
from memory.database import Database, change, many, one
from memory.keys import Keys, Subject, sealing_subject
from memory.outbox import enqueue
from memory.routes import StoredRoute
from perdure.errors import IdempotencyMismatch, NotFound, RunEnded
from perdure.ids import derived, digest
from perdure.messages import Obligation, Principal, RunInput, RunMessage, RunResult
from perdure.names import Event, Stream

OVER = ("ended", "terminated")
_RECEIVED = {
    "message": Event.RUN_MESSAGE,
    "evidence": Event.RUN_EVIDENCE,
    "hold": Event.RUN_HELD,
    "resume": Event.RUN_RESUMED,
    "cancel": Event.RUN_CANCEL,
}


@dataclass(frozen=True)
class RunRow:
    """One run as its row has it."""

    tenant: str
    run_id: str
    route: str
    route_version: int
    subject_type: str | None
    subject_id: str | None
    status: str
    held: bool
    step: str | None
    waiting_for: str | None
    waiting_since: datetime | None
    started_by: str
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    reason: str | None

    @property
    def sealed_for(self) -> Subject:
        """Whose key seals what is written about this run."""
        return sealing_subject(vars(self))


class Runs:
    """The runs of a tenant."""

    def __init__(self, database: Database, keys: Keys) -> None:
        self._database = database
        self._keys = keys

    async def open(
        self, principal: Principal, start: RunInput, stored: StoredRoute, execution: str, subject: Subject | None
    ) -> None:
        """Write a run down. A repeat changes nothing; the same id with another route or input is refused.

        Raises ``IdempotencyMismatch``.
        """
        given = digest({"route": start.route, "version": stored.version, "input": start.input})
        async with self._database.transaction(principal) as connection:
            added = await one(
                connection, _OPEN, tenant=principal.tenant, run_id=start.run_id, route=start.route,
                version=stored.version, digest=given, subject_type=subject and subject[0],
                subject_id=subject and subject[1], by=principal.actor, execution=execution,
            )  # fmt: skip
            if added is None:
                found = await one(connection, _DIGEST, tenant=principal.tenant, run_id=start.run_id)
                if found is None or found["input_digest"] != given:
                    raise IdempotencyMismatch("a run with this id has another route or input", run=start.run_id)
                return
            row = await find(connection, principal.tenant, start.run_id)
            payload = {"route": start.route, "version": stored.version, "input": start.input, "execution": execution}
            await self._note(connection, principal, row, Event.RUN_STARTED, payload)

    async def get(self, principal: Principal, run_id: str) -> RunRow:
        """Raises ``NotFound``, also for a run of somebody else."""
        async with self._database.transaction(principal) as connection:
            return await find(connection, principal.tenant, run_id)

    async def list(
        self,
        principal: Principal,
        *,
        status: str | None = None,
        route: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> list[RunRow]:
        """Newest first; ``after`` is the last run id of the page before."""
        async with self._database.transaction(principal) as connection:
            rows = await many(
                connection, _LIST, tenant=principal.tenant, status=status, route=route, limit=limit, after=after
            )
        return [RunRow(**row) for row in rows]

    async def receive(self, principal: Principal, run_id: str, message: RunMessage) -> str:
        """Commit a message to a run, with all that it undoes; returns the event's id. A repeat returns the first one.

        Pending reviews and unused grants that rest on a field of the message are withdrawn in the same transaction.
        Raises ``NotFound``, ``RunEnded`` and ``IdempotencyMismatch``.
        """
        event_id = derived(principal.tenant, run_id, message.id)
        async with self._database.transaction(principal) as connection:
            row = await find(connection, principal.tenant, run_id, lock=True)
            payload = message.model_dump(mode="json")
            known = await journal.find(connection, self._keys, principal.tenant, event_id)
            if known is not None:
                if known.payload != payload:
                    raise IdempotencyMismatch("a message with this id said something else", run=run_id)
                return event_id
            if row.status in OVER:
                raise RunEnded("the run has ended", run=run_id)
            await self._note(connection, principal, row, _RECEIVED[message.kind], payload, event_id=event_id)
            if message.kind in ("hold", "resume"):
                await change(
                    connection, _HOLD, tenant=principal.tenant, run_id=run_id, held=message.kind == "hold"
                )  # fmt: skip
            if message.kind == "cancel":
                await withdrawal.of_run(connection, self._keys, principal, row, "the run was cancelled")
            because = "evidence changed" if message.kind == "evidence" else "fields changed"
            await withdrawal.of_fields(connection, self._keys, principal, row, tuple(message.fields), because)
            await enqueue(connection, principal.tenant, event_id, "message", {"run_id": run_id, "event_id": event_id})
        return event_id

    async def message(self, principal: Principal, event_id: str) -> RunMessage:
        """What ``receive`` committed. Raises ``NotFound``."""
        async with self._database.transaction(principal) as connection:
            event = await journal.find(connection, self._keys, principal.tenant, event_id)
        if event is None:
            raise NotFound("there is no such message", event=event_id)
        return RunMessage.model_validate(event.payload)

    async def end(
        self, principal: Principal, run_id: str, result: RunResult, obligations: Sequence[Obligation]
    ) -> RunResult:
        """Write the end down, with everything that was ever owed; the first end stays and is returned."""
        event_id = derived(principal.tenant, run_id, "run", "ended")
        async with self._database.transaction(principal) as connection:
            row = await find(connection, principal.tenant, run_id, lock=True)
            if row.status in OVER:
                first = await journal.find(connection, self._keys, principal.tenant, event_id)
                return result if first is None else RunResult.model_validate(first.payload["result"])
            owed = [o.model_dump(mode="json") for o in obligations]
            payload = {"result": result.model_dump(mode="json"), "obligations": owed}
            await withdrawal.of_run(connection, self._keys, principal, row, "the run ended")
            await change(
                connection, _END, tenant=principal.tenant, run_id=run_id, status="ended", step=result.step,
                outcome=result.outcome, reason=result.reason,
            )  # fmt: skip
            event = Event.RUN_HANDED_OFF if result.outcome == "handed_off" else Event.RUN_ENDED
            await self._note(connection, principal, row, event, payload, event_id=event_id)
        return result

    async def refuse(self, principal: Principal, run_id: str, result: RunResult) -> None:
        """Write down that a run could not begin; there is no row for it. A repeat changes nothing."""
        async with self._database.transaction(principal) as connection:
            await journal.append(
                connection, self._keys, principal, Stream.RUN, run_id, Event.RUN_REFUSED,
                {"result": result.model_dump(mode="json")}, ("run", run_id), process="-",
                event_id=derived(principal.tenant, run_id, "refused"),
            )  # fmt: skip

    async def abandon(self, principal: Principal, run_id: str, because: str) -> None:
        """The workflow is gone: close its reviews, revoke its grants, and call an effect that was under way unknown.

        A run that is over or unknown stays as it is.
        """
        async with self._database.transaction(principal) as connection:
            try:
                row = await find(connection, principal.tenant, run_id, lock=True)
            except NotFound:
                return
            if row.status in OVER:
                return
            await withdrawal.of_run(connection, self._keys, principal, row, because)
            unknown = await withdrawal.of_effects(connection, self._keys, principal, row, because)
            await change(
                connection, _END, tenant=principal.tenant, run_id=run_id, status="terminated", step=row.step,
                outcome=None, reason=because,
            )  # fmt: skip
            payload = {"because": because, "unknown_effects": unknown}
            await self._note(connection, principal, row, Event.RUN_ABANDONED, payload)

    async def _note(
        self,
        connection: AsyncConnection,
        principal: Principal,
        row: RunRow,
        event: Event,
        payload: dict[str, Any],
        event_id: str | None = None,
    ) -> None:
        await journal.append(
            connection, self._keys, principal, Stream.RUN, row.run_id, event, payload, row.sealed_for,
            process=row.route, event_id=event_id,
        )  # fmt: skip


async def find(connection: AsyncConnection, tenant: str, run_id: str, *, lock: bool = False) -> RunRow:
    """A run's row, locked for the rest of the transaction if asked for. Raises ``NotFound``."""
    row = await one(connection, _FIND + (" FOR UPDATE" if lock else ""), tenant=tenant, run_id=run_id)
    if row is None:
        raise NotFound("there is no such run", run=run_id)
    return RunRow(**row)


_STATUS = "CASE WHEN held THEN 'held' ELSE status END"
_COLUMNS = ", ".join(f"{_STATUS} AS status" if name == "status" else name for name in RunRow.__dataclass_fields__)
_OPEN = (
    "INSERT INTO perdure.runs (tenant, run_id, route, route_version, input_digest, subject_type, subject_id, status,"
    " started_by, execution) VALUES (:tenant, :run_id, :route, :version, :digest, :subject_type, :subject_id,"
    " 'running',"
    " :by, :execution) ON CONFLICT (tenant, run_id) DO NOTHING RETURNING run_id"
)
_DIGEST = "SELECT input_digest FROM perdure.runs WHERE tenant = :tenant AND run_id = :run_id"
_FIND = f"SELECT {_COLUMNS} FROM perdure.runs WHERE tenant = :tenant AND run_id = :run_id"
_LIST = (
    f"SELECT {_COLUMNS} FROM perdure.runs WHERE tenant = :tenant AND (CAST(:status AS text) IS NULL OR {_STATUS} ="
    " :status)"
    " AND (CAST(:route AS text) IS NULL OR route = :route) AND (CAST(:after AS text) IS NULL OR (started_at, run_id) <"
    " (SELECT started_at, run_id FROM perdure.runs WHERE tenant = :tenant AND run_id = :after))"
    " ORDER BY started_at DESC, run_id DESC LIMIT :limit"
)
_HOLD = "UPDATE perdure.runs SET held = :held WHERE tenant = :tenant AND run_id = :run_id"
_END = (
    "UPDATE perdure.runs SET status = :status, step = :step, outcome = :outcome, reason = :reason, waiting_for = NULL,"
    " waiting_since = NULL, held = false, ended_at = clock_timestamp() WHERE tenant = :tenant AND run_id = :run_id"
)
