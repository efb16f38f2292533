"""Messages to a run: committed to the database first; the run hears of them from there."""

from typing import Literal

from fastapi import APIRouter

from gateway.authentication import App, AppOrOperator, Operator
from gateway.idempotency import Key
from gateway.intake import Intake
from gateway.problems import RESPONSES
from gateway.runs import RunInPath, visible_run
from gateway.services import Services, Use
from memory.reducer import admit
from perdure.api import MessageAccepted, Nothing, SendFields
from perdure.errors import NotAuthorized
from perdure.ids import derived
from perdure.messages import RunMessage
from perdure.route import Setter
from perdure.tokens import Caller

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["runs"], responses=RESPONSES)


@router.post("/messages", status_code=202)
async def message(run_id: RunInPath, body: SendFields, key: Key, caller: App, services: Use) -> MessageAccepted:
    """What a user says: fields that the route lets a user set. Role: app."""
    return await _fields(services, caller, run_id, "message", key, body)


@router.post("/evidence", status_code=202)
async def evidence(run_id: RunInPath, body: SendFields, key: Key, caller: App, services: Use) -> MessageAccepted:
    """What a system found: fields that the route lets a tool set. Role: app, and no end user's token.

    A pending review that rests on a field which changes is withdrawn in the same transaction.
    """
    if caller.subject is not None:
        raise NotAuthorized("an end user's token brings messages, not evidence")
    return await _fields(services, caller, run_id, "evidence", key, body)


@router.post("/hold", status_code=202)
async def hold(
    run_id: RunInPath, key: Key, caller: Operator, services: Use, body: Nothing | None = None
) -> MessageAccepted:
    """Nothing more is done in the world until it is resumed. Role: operator."""
    return await _receive(services, caller, run_id, "hold", key, body or Nothing(), {})


@router.post("/resume", status_code=202)
async def resume(
    run_id: RunInPath, key: Key, caller: Operator, services: Use, body: Nothing | None = None
) -> MessageAccepted:
    """Go on after a hold. Role: operator."""
    return await _receive(services, caller, run_id, "resume", key, body or Nothing(), {})


@router.post("/cancel", status_code=202)
async def cancel(
    run_id: RunInPath, key: Key, caller: AppOrOperator, services: Use, body: Nothing | None = None
) -> MessageAccepted:
    """End the run as cancelled; an effect under way is finished first. Roles: operator, app."""
    return await _receive(services, caller, run_id, "cancel", key, body or Nothing(), {})


async def _fields(
    services: Services, caller: Caller, run_id: str, kind: Literal["message", "evidence"], key: str, body: SendFields
) -> MessageAccepted:
    row = await visible_run(services, caller, run_id)
    stored = await services.routes.get(caller.principal, row.route, row.route_version)
    intake = Intake(services.masker, services.seals, caller.principal, body.personal)
    source = Setter.USER if kind == "message" else Setter.TOOL
    fields = admit(stored.route, source, await intake.fields(stored.route.state, body.fields))
    return await _receive(services, caller, run_id, kind, key, body, fields)


async def _receive(
    services: Services,
    caller: Caller,
    run_id: str,
    kind: Literal["message", "evidence", "hold", "resume", "cancel"],
    key: str,
    body: SendFields | Nothing,
    fields: dict[str, object],
) -> MessageAccepted:
    principal = caller.principal
    await visible_run(services, caller, run_id)
    await services.requests.claim(principal, key, f"runs.{kind}:{run_id}", body)
    given = RunMessage(
        id=f"msg_{derived(principal.tenant, run_id, key)}", kind=kind, actor=principal.actor, fields=fields
    )
    return MessageAccepted(run_id=run_id, event_id=await services.runs.receive(principal, run_id, given))
