"""What the edge works with; a composition root fills it once."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from temporalio.client import Client

from gateway.idempotency import Requests
from memory.database import Database
from memory.ledger import Ledger
from memory.routes import Routes
from memory.runs import Runs
from memory.settings import GatewaySettings
from perdure.keyring import KeyRing
from perdure.tokens import Tokens
from perdure.toolfile import ToolFile
from pii.masking import Masker
from pii.seal import Seals


@dataclass(frozen=True)
class Services:
    """Collaborators of the HTTP edge."""

    tokens: Tokens
    database: Database
    routes: Routes
    runs: Runs
    ledger: Ledger
    requests: Requests
    masker: Masker
    seals: Seals
    temporal: Client
    codec_ring: KeyRing
    tools: ToolFile
    settings: GatewaySettings
    task_queue: str


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Use = Annotated[Services, Depends(_services)]
"""A parameter of this type is given the services."""
