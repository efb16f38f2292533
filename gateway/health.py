"""Whether the process lives, and whether what it needs answers."""

import asyncio

from fastapi import APIRouter, Response
from temporalio.service import RPCError

from gateway.services import Services, Use
from perdure.api import Health
from perdure.errors import PerdureError
from perdure.messages import Principal

WITHIN_SECONDS = 3.0
_NOBODY = Principal(tenant="readiness", actor="gateway", purpose="readiness")

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def alive() -> Health:
    """The process answers."""
    return Health(status="ok")


@router.get("/readyz", responses={503: {"model": Health, "description": "A part does not answer"}})
async def ready(services: Use, response: Response) -> Health:
    """PostgreSQL and Temporal answer."""
    database, temporal = await asyncio.gather(_database(services), _temporal(services))
    ok = database == temporal == "ok"
    response.status_code = 200 if ok else 503
    return Health(status="ok" if ok else "unavailable", parts={"database": database, "temporal": temporal})


async def _database(services: Services) -> str:
    try:
        async with asyncio.timeout(WITHIN_SECONDS), services.database.transaction(_NOBODY):
            return "ok"
    except (PerdureError, TimeoutError) as error:
        return "timeout" if isinstance(error, TimeoutError) else type(error).__name__


async def _temporal(services: Services) -> str:
    try:
        async with asyncio.timeout(WITHIN_SECONDS):
            await services.temporal.service_client.check_health()
            return "ok"
    except (RPCError, RuntimeError, TimeoutError):
        return "EngineUnavailable"
