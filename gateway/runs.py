"""Runs over HTTP: start, list, look."""

from contextlib import suppress
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query
from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from gateway.authentication import App, RunReader
from gateway.idempotency import Key
from gateway.intake import Intake
from gateway.problems import RESPONSES
from gateway.services import Services, Use
from gateway.unopened import unopened
from memory.reducer import validate_input
from memory.routes import StoredRoute
from memory.runs import RunRow
from perdure import direct, names
from perdure.api import EffectView, Links, RunDetail, RunList, RunStarted, RunSummary, StartRun
from perdure.errors import NotAuthorized, NotFound, Unavailable
from perdure.ids import RunId, derived
from perdure.messages import ProcessView, RunInput
from perdure.tokens import Caller

QUERY_SECONDS = 2.0
RunInPath = Annotated[RunId, Path(description="The run's id")]

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses=RESPONSES)


@router.post("", status_code=201)
async def start(body: StartRun, key: Key, caller: App, services: Use) -> RunStarted:
    """Start a run, or find the one that this key started. Role: app."""
    principal = caller.principal
    stored = await services.routes.get(principal, body.route, body.version)
    intake = Intake(services.masker, services.seals, principal, body.personal)
    fields = validate_input(stored.route, await intake.fields(stored.route.input, body.input))
    _refuse_other_subject(caller, stored, fields)
    await services.requests.claim(principal, key, "runs.start", body)
    run_id = derived(principal.tenant, key)
    given = RunInput(
        tenant=principal.tenant,
        run_id=run_id,
        route=body.route,
        version=stored.version,
        actor=principal.actor,
        input=fields,
    )
    with suppress(WorkflowAlreadyStartedError):  # it has ended already: the caller is given the same run
        await direct.start(services.temporal, given, services.task_queue)
    return RunStarted(
        run_id=run_id,
        workflow_id=names.workflow_id(principal.tenant, run_id),
        route=body.route,
        version=await _pinned(services, caller, run_id, stored.version),
        links=_links(services, principal.tenant, run_id),
    )


@router.get("")
async def list_runs(
    caller: RunReader,
    services: Use,
    status: Annotated[str | None, Query(pattern=r"^[a-z]{1,20}$")] = None,
    route: Annotated[str | None, Query(pattern=r"^[a-z][a-z0-9_-]{0,63}$")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    after: Annotated[RunId | None, Query()] = None,
) -> RunList:
    """The tenant's runs, newest first. Roles: app, operator, developer, security, analyst."""
    rows = await services.runs.list(caller.principal, status=status, route=route, limit=limit, after=after)
    mine = [row for row in rows if _visible(caller, row)]
    return RunList(items=tuple(_summary(row) for row in mine), next=rows[-1].run_id if len(rows) == limit else None)


@router.get("/{run_id}")
async def show(run_id: RunInPath, caller: RunReader, services: Use, process: bool = False) -> RunDetail:
    """One run with its effects, and its own view of itself when asked for."""
    tenant = caller.principal.tenant
    row = await _row(services, caller, run_id)
    summary = await _unopened(services, caller, run_id) if row is None else _summary(row)
    effects = [] if row is None else await services.ledger.effects(caller.principal, run_id)
    return RunDetail(
        **summary.model_dump(),
        workflow_id=names.workflow_id(tenant, run_id),
        subject=None if row is None else _subject(row),
        effects=tuple(EffectView.model_validate(effect, from_attributes=True) for effect in effects),
        process=await _process(services, tenant, run_id) if process else None,
        links=_links(services, tenant, run_id),
    )


async def visible_run(services: Services, caller: Caller, run_id: str) -> RunRow:
    """The run's row.

    Raises ``NotFound``, also for a run that this caller may not know of, and ``Unavailable`` for one that no worker has
    opened yet.
    """
    row = await _row(services, caller, run_id)
    if row is None:
        await _unopened(services, caller, run_id)
        raise Unavailable("the run is started, and no worker has opened it yet", run=run_id)
    return row


async def _row(services: Services, caller: Caller, run_id: str) -> RunRow | None:
    try:
        row = await services.runs.get(caller.principal, run_id)
    except NotFound:
        return None
    if not _visible(caller, row):
        raise NotFound("there is no such run", run=run_id)
    return row


async def _unopened(services: Services, caller: Caller, run_id: str) -> RunSummary:
    if caller.subject is not None:
        raise NotFound("there is no such run", run=run_id)  # whose it is stands in the row
    return await unopened(services, caller.principal.tenant, run_id)


def _visible(caller: Caller, row: RunRow) -> bool:
    return caller.subject is None or caller.subject == _subject(row)


def _subject(row: RunRow) -> str | None:
    return None if row.subject_type is None else f"{row.subject_type}:{row.subject_id}"


def _refuse_other_subject(caller: Caller, stored: StoredRoute, fields: dict[str, object]) -> None:
    subject = stored.route.subject
    named = None if subject is None else f"{subject.type}:{fields.get(subject.id)}"
    if caller.subject is not None and caller.subject != named:
        raise NotAuthorized("this token starts runs about its own subject alone")


async def _pinned(services: Services, caller: Caller, run_id: str, newest: int) -> int:
    try:
        return (await services.runs.get(caller.principal, run_id)).route_version
    except NotFound:
        return newest


async def _process(services: Services, tenant: str, run_id: str) -> ProcessView | None:
    run = services.temporal.get_workflow_handle(names.workflow_id(tenant, run_id))
    try:
        view: ProcessView = await run.query(
            names.QUERY_PROCESS, result_type=ProcessView, rpc_timeout=timedelta(seconds=QUERY_SECONDS)
        )
    except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
        return None
    return view


def _links(services: Services, tenant: str, run_id: str) -> Links:
    ui = services.settings.temporal_ui_url
    path = f"/namespaces/{services.temporal.namespace}/workflows/{names.workflow_id(tenant, run_id)}"
    return Links(
        api=f"{services.settings.public_url or ''}/v1/runs/{run_id}", temporal=f"{ui.rstrip('/')}{path}" if ui else None
    )


def _summary(row: RunRow) -> RunSummary:
    return RunSummary(
        run_id=row.run_id,
        route=row.route,
        version=row.route_version,
        status=row.status,
        step=row.step,
        waiting_for=row.waiting_for,
        waiting_since=row.waiting_since,
        held=row.held,
        started_by=row.started_by,
        started_at=row.started_at,
        ended_at=row.ended_at,
        outcome=row.outcome,
        reason=row.reason,
    )
