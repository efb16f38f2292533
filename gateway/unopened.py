"""Runs that Temporal has and the database has not yet: started, and no worker has opened them so far."""

from temporalio.client import WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from gateway.services import Services
from perdure import names
from perdure.api import RunSummary
from perdure.errors import EngineUnavailable, NotFound

_ROUTE = SearchAttributeKey.for_keyword(names.SEARCH_ROUTE)


async def unopened(services: Services, tenant: str, run_id: str) -> RunSummary:
    """What Temporal alone can say of a run. Raises ``NotFound`` and ``EngineUnavailable``."""
    handle = services.temporal.get_workflow_handle(names.workflow_id(tenant, run_id))
    try:
        found = await handle.describe()
    except RPCError as error:
        if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
            raise NotFound("there is no such run", run=run_id) from None
        raise EngineUnavailable("Temporal does not answer; the same request may pass later") from None
    under_way = found.status == WorkflowExecutionStatus.RUNNING
    return RunSummary(
        run_id=run_id,
        route=found.typed_search_attributes.get(_ROUTE) or "unknown",
        status="running" if under_way else "terminated",
        started_at=found.start_time,
        ended_at=found.close_time,
    )
