"""``python worker.py``: runs and their activities, and the relay, composed once from the settings."""

import asyncio
import logging
import os
import signal
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta

import httpx
from pydantic import ValidationError
from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import SandboxImportNotificationPolicy

from activities.approvals import ApprovalActivities
from activities.effects import EffectActivities
from activities.model import Model, ModelActivities, ScriptedModel
from activities.relay import Relay
from activities.runs import RunActivities
from activities.tools.calling import Cabinet, ToolActivities
from activities.tools.http import HttpTarget
from memory.database import Database
from memory.keys import Keys, provider_of
from memory.ledger import Ledger
from memory.objects import Objects
from memory.outbox import Outbox
from memory.routes import Routes
from memory.runs import Runs
from memory.settings import Settings, codec_ring
from perdure.errors import InvalidInput, PerdureError
from perdure.routefile import parse_tools
from perdure.temporal import connect
from perdure.tokens import KeySource, key_source
from perdure.toolfile import HttpTool, ToolFile
from pii.seal import Seals, tenant_secrets
from pii.standin import StandinMasker
from workflows.agent_run import AgentRun

GRACE = timedelta(seconds=10)
SETTLE_SECONDS = 0.5
CONNECT_SECONDS = 5.0
QUIET = ("httpx", "httpcore", "asyncio")
"""Loggers that write URLs, and a URL may hold a value."""
PURE = ("workflows", "memory", "perdure", "pydantic", "pydantic_core", "annotated_types", "typing_inspection")
"""What workflow code may use as it stands outside the sandbox. All of it that workflows import is without side effects,
which the import contracts hold; anything else that a workflow imports stops the worker."""


def sandbox() -> SandboxedWorkflowRunner:
    """The sandbox that refuses modules nobody meant to let in."""
    return SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules(*PURE).with_import_notification_policy(
            SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH
        )
    )


@dataclass(frozen=True)
class Parts:
    """What a worker is made of."""

    settings: Settings
    database: Database
    relay_database: Database
    keys: Keys
    http: httpx.AsyncClient
    client: Client
    tools: ToolFile

    def worker(self) -> Worker:
        """Runs and all activities on the service's task queue."""
        ledger, secret = Ledger(self.database, self.keys), tenant_secrets(self.database, self.keys)
        seals, queue, auth = Seals(secret), self.settings.task_queue, self.settings.auth
        routes, runs = Routes(self.database, self.keys), Runs(self.database, self.keys)
        run = RunActivities(routes, runs, seals, secret, self.tools, queue)
        approval = ApprovalActivities(ledger, seals, self._proof_keys(), allow_asserted=auth.allow_asserted)
        effect, model = EffectActivities(ledger), ModelActivities(self._model())
        tool = ToolActivities(self._targets(), self._cabinet(), StandinMasker(seals))
        return Worker(
            self.client,
            task_queue=queue,
            workflows=[AgentRun],
            workflow_runner=sandbox(),
            workflow_failure_exception_types=[PerdureError],
            graceful_shutdown_timeout=GRACE,
            activities=[
                run.open_run,
                run.end_run,
                run.check_seals,
                approval.open_review,
                approval.read_review,
                approval.close_review,
                approval.warn,
                approval.decide,
                effect.reserve,
                effect.settle,
                tool.call_tool,
                model.ask_model,
            ],
        )

    def relay(self) -> Relay:
        """What takes messages and decisions from the database to the runs."""
        return Relay(Outbox(self.relay_database), Runs(self.database, self.keys), self.client)

    def _proof_keys(self) -> KeySource:
        auth = self.settings.auth
        pem = None if auth.public_key is None else auth.public_key.get_secret_value()
        return key_source(self.http, file=auth.jwks_file, url=auth.jwks_url, public_key=pem)

    def _model(self) -> Model:
        script = self.settings.model.script
        return ScriptedModel([]) if script is None else ScriptedModel.read(script)

    def _cabinet(self) -> Cabinet:
        objects = self.settings.objects
        return Cabinet(Objects(self.database, self.keys, objects.url), objects.threshold_bytes)

    def _targets(self) -> dict[str, HttpTarget]:
        told = self.settings.tools
        servers = {**self.tools.servers, **told.servers}
        return {
            name: HttpTarget(name, tool, servers, told.secrets, self.http)
            for name, tool in self.tools.tools.items()
            if isinstance(tool, HttpTool)
        }


async def serve(settings: Settings) -> None:
    """Work until told to stop; what is under way gets ``GRACE`` to end."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        parts = await compose(settings, stack)
        async with asyncio.TaskGroup() as group, parts.worker():
            relay = group.create_task(parts.relay().run())
            logging.getLogger("worker").info("working on task queue %s", settings.task_queue)
            await stop.wait()
            relay.cancel()


async def compose(settings: Settings, stack: AsyncExitStack) -> Parts:
    """Open what a worker needs, the guard first; ``stack`` closes it."""
    database = await _guarded(settings.database.url.get_secret_value(), settings.database.pool_size, stack)
    relay_url = settings.database.relay_url
    if relay_url is None:
        raise InvalidInput("PERDURE_DATABASE__RELAY_URL is not set")
    relay_database = await _guarded(relay_url.get_secret_value(), 2, stack)
    timeout = httpx.Timeout(None, connect=CONNECT_SECONDS)
    return Parts(
        settings=settings,
        database=database,
        relay_database=relay_database,
        keys=Keys(provider_of(settings.keys)),
        http=await stack.enter_async_context(httpx.AsyncClient(timeout=timeout)),
        client=await connect(codec_ring(settings.keys)),
        tools=_tools(settings),
    )


async def _guarded(url: str, pool_size: int, stack: AsyncExitStack) -> Database:
    database = Database(url, pool_size)
    stack.push_async_callback(database.close)
    await database.guard()
    return database


def _tools(settings: Settings) -> ToolFile:
    path = settings.tools.file
    return ToolFile() if path is None else parse_tools(path.read_text(), path.name)


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
        asyncio.run(serve(settings))
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
