"""Workers as processes of their own, so that they can die."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest

from embedded import Postgres
from perdure import names
from perdure.keyring import KeyRing
from perdure.messages import RunInput, RunResult
from perdure.toolfile import ToolFile
from tests.provider import tool_file
from tests.stage import Run, Stage

QUICK = "PT1S"
TASK_TIMEOUT = timedelta(seconds=2)
PATIENCE_SECONDS = 60


@dataclass
class Mortals:
    """Starts worker processes on a stage; what is left of them at the end is killed."""

    stage: Stage
    project: Path
    folder: Path
    environment: dict[str, str]
    started: list[subprocess.Popen[bytes]]

    def start(self, fault: str = "never") -> subprocess.Popen[bytes]:
        """A worker that dies once at ``fault``; the ones after it live."""
        with (self.folder / "worker.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.worker_that_dies"],
                cwd=self.project,
                env=os.environ | self.environment | {"FAULT_AT": fault},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.started.append(process)
        return process

    async def died(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the plug to be pulled."""
        code = await asyncio.to_thread(process.wait, PATIENCE_SECONDS)
        assert code == -signal.SIGKILL, (self.folder / "worker.log").read_text()[-2000:]

    async def start_run(self) -> Run:
        """A run whose dead workers are noticed soon."""
        stage, run_id = self.stage, os.urandom(16).hex()
        tenant = stage.principal.tenant
        given = RunInput(
            tenant=tenant, run_id=run_id, route="refund", actor="app", input={"customer": "cus_1", "order": "A-1"}
        )
        return await stage.client.start_workflow(
            names.WORKFLOW_AGENT_RUN,
            given,
            id=names.workflow_id(tenant, run_id),
            task_queue=stage.parts.settings.task_queue,
            task_timeout=TASK_TIMEOUT,
            result_type=RunResult,
        )

    async def forget_the_dead(self, run: Run) -> None:
        """Let the server stop waiting for the worker that had the run in its cache."""
        await self.stage.client.workflow_service.reset_sticky_task_queue(
            ResetStickyTaskQueueRequest(
                namespace=self.stage.client.namespace, execution=WorkflowExecution(workflow_id=run.id)
            )
        )

    def end(self) -> None:
        for process in self.started:
            process.kill()
            process.wait(10)


@pytest.fixture
def tools(stage: Stage) -> ToolFile:
    """Tools that give up soon."""
    return tool_file(stage.provider.url, timeout=QUICK)


@pytest.fixture
def mortals(
    stage: Stage,
    tools: ToolFile,
    postgres: Postgres,
    root_ring: KeyRing,
    codec_ring: KeyRing,
    project: Path,
    tmp_path: Path,
) -> Iterator[Mortals]:
    root, codec, file = tmp_path / "root.json", tmp_path / "codec.json", tmp_path / "tools.yaml"
    root_ring.write(root)
    codec_ring.write(codec)
    file.write_text(tools.model_dump_json())
    settings = stage.parts.settings
    environment = {
        "PERDURE_DATABASE__URL": postgres.url("perdure_service"),
        "PERDURE_DATABASE__RELAY_URL": postgres.url("perdure_relay"),
        "PERDURE_DATABASE__POOL_SIZE": "4",
        "PERDURE_KEYS__ROOT_FILE": str(root),
        "PERDURE_KEYS__CODEC_FILE": str(codec),
        "PERDURE_TOOLS__FILE": str(file),
        "PERDURE_OBJECTS__URL": settings.objects.url,
        "PERDURE_MODEL__SCRIPT": str(settings.model.script),
        "PERDURE_AUTH__PUBLIC_KEY": stage.signer.public,
        "PERDURE_TASK_QUEUE": settings.task_queue,
        "TEMPORAL_ADDRESS": stage.client.service_client.config.target_host,
        "TEMPORAL_NAMESPACE": stage.client.namespace,
        "FAULT_MARKER": str(tmp_path / "struck"),
    }
    mortals = Mortals(stage, project, tmp_path, environment, [])
    yield mortals
    mortals.end()
