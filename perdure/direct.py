"""Runs without the gateway: for apps that hold Temporal credentials and the codec ring, through the Temporal SDK.

``Direct(await perdure.temporal.connect(ring), tenant="demo", actor="billing")``. What the gateway does for others is
theirs to bring: personal text arrives as ``MaskedText``, and a decision carries a proof (``perdure.proof``).
"""

from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from pydantic import BaseModel
from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors, names
from perdure.errors import EngineUnavailable, InvalidInput, NotFound, PerdureError, RunEnded
from perdure.ids import derived
from perdure.messages import Decision, DecisionOutcome, ProcessView, RunInput, RunMessage, RunResult

Result = TypeVar("Result")
Run = WorkflowHandle[Any, RunResult]
_BY_NAME = {error.__name__: error for error in errors.leaves(PerdureError)}


class Direct:
    """Starts, tells, decides and reads runs of one tenant. Errors are those of ``perdure.errors``."""

    def __init__(self, client: Client, *, tenant: str, actor: str, task_queue: str = names.TASK_QUEUE) -> None:
        self._client = client
        self._tenant = tenant
        self._actor = actor
        self._task_queue = task_queue

    async def start(self, route: str, input: Mapping[str, Any], *, key: str, version: int | None = None) -> Run:  # noqa: A002
        """Start a run, or find the one that this key started; the gateway derives the same id from the same key."""
        given = RunInput(
            tenant=self._tenant,
            run_id=derived(self._tenant, key),
            route=route,
            version=version,
            actor=self._actor,
            input={name: _plain(value) for name, value in input.items()},
        )
        with suppress(WorkflowAlreadyStartedError):  # it has ended already: the handle reads its result
            await start(self._client, given, self._task_queue)
        return self.handle(given.run_id)

    def handle(self, run_id: str) -> Run:
        """The workflow of a run."""
        return self._client.get_workflow_handle(names.workflow_id(self._tenant, run_id), result_type=RunResult)

    async def read(self, run_id: str) -> ProcessView:
        """Where it stands, by the run itself; masked."""
        return await _translated(self.handle(run_id).query(names.QUERY_PROCESS, result_type=ProcessView))

    async def tell(self, run_id: str, message: RunMessage) -> None:
        """Send a message, evidence, a hold, a resume or a cancellation; ``message.id`` makes a repeat harmless."""
        await _translated(self.handle(run_id).signal(names.SIGNAL_MESSAGE, message))

    async def decide(self, run_id: str, decision: Decision) -> DecisionOutcome:
        """Decide and learn what became of it (a Temporal update; the worker must be up)."""
        update = self.handle(run_id).execute_update(
            names.UPDATE_DECIDE, decision, id=decision.decision_id, result_type=DecisionOutcome
        )
        return await _translated(update)

    async def send_decision(self, run_id: str, decision: Decision) -> None:
        """Decide by signal: kept until the run reads it, without an answer."""
        await _translated(self.handle(run_id).signal(names.SIGNAL_DECIDE, decision))


async def start(client: Client, given: RunInput, task_queue: str) -> None:
    """Start the workflow of a run, or leave the one that is under way.

    Raises ``EngineUnavailable``, and Temporal's ``WorkflowAlreadyStartedError`` when that run has ended already.
    """
    attributes = {names.SEARCH_TENANT: given.tenant, names.SEARCH_ROUTE: given.route}
    version = "" if given.version is None else f" v{given.version}"
    try:
        await client.start_workflow(
            names.WORKFLOW_AGENT_RUN,
            given,
            id=names.workflow_id(given.tenant, given.run_id),
            task_queue=task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            search_attributes=TypedSearchAttributes(
                [SearchAttributePair(SearchAttributeKey.for_keyword(name), value) for name, value in attributes.items()]
            ),
            static_summary=f"{given.route}{version}",
            static_details=f"route `{given.route}`{version}, started by `{given.actor}`",
        )
    except RPCError as error:
        raise _of_engine(error) from None


async def _translated(call: Awaitable[Result]) -> Result:
    try:
        return await call
    except WorkflowUpdateFailedError as failure:
        raise _of_failure(failure.cause) from None
    except WorkflowQueryFailedError:
        raise InvalidInput("the run does not answer that question") from None
    except RPCError as error:
        raise _of_engine(error) from None


def _of_failure(cause: BaseException) -> PerdureError:
    kind = cause.type if isinstance(cause, ApplicationError) else None
    return _BY_NAME.get(kind or "", PerdureError)(str(cause))


def _of_engine(error: RPCError) -> PerdureError:
    if error.status == RPCStatusCode.NOT_FOUND:
        gone = "already completed" in str(error)
        return RunEnded("the run has ended") if gone else NotFound("there is no such run")
    if error.status == RPCStatusCode.INVALID_ARGUMENT:
        return InvalidInput("Temporal refuses the request's form")
    return EngineUnavailable("Temporal does not answer; the same request may pass later")


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value
