"""``python -m gateway``: the HTTP edge, composed once from the settings."""

import logging
import os
import sys
import time

import httpx
import uvicorn
import uvloop
from pydantic import ValidationError

from gateway.app import create_app
from gateway.idempotency import Requests
from gateway.services import Services
from memory.database import Database
from memory.keys import Keys, provider_of
from memory.ledger import Ledger
from memory.routes import Routes
from memory.runs import Runs
from memory.settings import Settings, codec_ring
from perdure.errors import PerdureError
from perdure.routefile import parse_tools
from perdure.temporal import connect
from perdure.tokens import Tokens, key_source
from perdure.toolfile import ToolFile
from pii.seal import Seals, tenant_secrets
from pii.standin import StandinMasker

SETTLE_SECONDS = 0.5
QUIET = ("httpx", "httpcore", "presidio-analyzer", "asyncio")


async def serve(settings: Settings) -> None:
    """Serve until told to stop."""
    database = Database(settings.database.url.get_secret_value(), settings.database.pool_size)
    async with httpx.AsyncClient() as http:
        try:
            await database.guard()
            services = await _compose(settings, database, http)
            await _server(settings, services).serve()
        finally:
            await database.close()


async def _compose(settings: Settings, database: Database, http: httpx.AsyncClient) -> Services:
    keys = Keys(provider_of(settings.keys))
    secrets = tenant_secrets(database, keys)
    seals = Seals(secrets)
    auth = settings.auth
    pem = None if auth.public_key is None else auth.public_key.get_secret_value()
    source = key_source(http, file=auth.jwks_file, url=auth.jwks_url, public_key=pem)
    ring = codec_ring(settings.keys)
    return Services(
        tokens=Tokens(source, auth.issuer, auth.audience),
        database=database,
        routes=Routes(database, keys),
        runs=Runs(database, keys),
        ledger=Ledger(database, keys),
        requests=Requests(database, secrets),
        masker=StandinMasker(seals),
        seals=seals,
        temporal=await connect(ring, lazy=True),
        codec_ring=ring,
        tools=_tools(settings),
        settings=settings.gateway,
        task_queue=settings.task_queue,
    )


def _tools(settings: Settings) -> ToolFile:
    path = settings.tools.file
    return ToolFile() if path is None else parse_tools(path.read_text(), path.name)


def _server(settings: Settings, services: Services) -> uvicorn.Server:
    # No access log: a path may hold the token that the UI decodes with.
    config = uvicorn.Config(
        create_app(services),
        host=settings.gateway.host,
        port=settings.gateway.port,
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=10,
    )
    return uvicorn.Server(config)


def main() -> int:
    """Exit code: 0 stopped, 2 wrong settings, 1 anything else that ends it."""
    try:
        settings = Settings()
    except ValidationError as wrong:
        for error in wrong.errors(include_input=False, include_url=False, include_context=False):
            print("PERDURE_" + "__".join(map(str, error["loc"])).upper(), error["type"], file=sys.stderr)
        return 2
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        uvloop.run(serve(settings))
    except PerdureError as error:
        print(f"{type(error).__name__}: {error.message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(SETTLE_SECONDS)
    os._exit(code)
