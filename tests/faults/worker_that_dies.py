"""A worker that kills itself once, at ``FAULT_AT`` (``before|during|after <activity>``), and marks that it did."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import temporalio.client
import temporalio.worker
from temporalio import activity

from memory.settings import Settings, codec_ring
from perdure.temporal import connect
from worker import Parts, compose

DURING_SECONDS = 0.3


class Fault(temporalio.client.Interceptor, temporalio.worker.Interceptor):
    """Where the process ends, as if somebody had pulled the plug."""

    def __init__(self, at: str, marker: Path) -> None:
        self.when, _, self.activity = at.partition(" ")
        self._marker = marker

    def intercept_activity(
        self,
        next: temporalio.worker.ActivityInboundInterceptor,  # noqa: A002 - the SDK's own name
    ) -> temporalio.worker.ActivityInboundInterceptor:
        return _Watched(next, self)

    def strike(self) -> None:
        """End the process at once, the first time."""
        with contextlib.suppress(FileExistsError):
            self._marker.touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)


class _Watched(temporalio.worker.ActivityInboundInterceptor):
    def __init__(self, following: temporalio.worker.ActivityInboundInterceptor, fault: Fault) -> None:
        super().__init__(following)
        self._fault = fault

    async def execute_activity(self, input: temporalio.worker.ExecuteActivityInput) -> Any:  # noqa: A002
        if activity.info().activity_type != self._fault.activity or self._is_reading(input):
            return await super().execute_activity(input)
        if self._fault.when == "before":
            self._fault.strike()
        if self._fault.when == "during":
            asyncio.get_running_loop().call_later(DURING_SECONDS, self._fault.strike)
        result = await super().execute_activity(input)
        if self._fault.when == "after":
            self._fault.strike()
        return result

    def _is_reading(self, given: temporalio.worker.ExecuteActivityInput) -> bool:
        """Only an effect's call is of interest, and only that has a key."""
        return self._fault.activity == "call_tool" and given.args[0].key is None


async def main() -> None:
    """Work until killed."""
    settings = Settings()
    fault = Fault(os.environ["FAULT_AT"], Path(os.environ["FAULT_MARKER"]))
    async with contextlib.AsyncExitStack() as stack:
        composed = await compose(settings, stack)
        client = await connect(codec_ring(settings.keys), interceptors=[fault])
        parts = Parts(**vars(composed) | {"client": client})
        async with parts.worker():
            await parts.relay().run()


if __name__ == "__main__":
    asyncio.run(main())
