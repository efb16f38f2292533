"""The two ends of a run: pinned and checked when it opens, written down when it ends."""

import hashlib
import hmac

from pydantic import ValidationError
from temporalio import activity

from memory.reducer import validate_input
from memory.routes import Routes, StoredRoute
from memory.runs import Runs
from perdure import names
from perdure.calls import CheckSeals, EndRun, OpenedRun, OpenRun, ToolBinding
from perdure.errors import NotFound, RouteInvalid, UnmaskedText
from perdure.masked import MaskedText
from perdure.messages import Principal, RunInput, RunResult
from perdure.route import ApprovalStep, Route, ToolName, ToolStep
from perdure.toolfile import HostedTool, Tool, ToolFile
from pii.seal import Seals, Secret

SUBJECT_LABEL = "subject-token"
SUBJECT_DIGITS = 16


class RunActivities:
    """Opens and ends runs."""

    def __init__(
        self, routes: Routes, runs: Runs, seals: Seals, secret: Secret, tools: ToolFile, task_queue: str
    ) -> None:
        self._routes = routes
        self._runs = runs
        self._seals = seals
        self._secret = secret
        self._bindings = {name: _binding(name, tool, task_queue) for name, tool in tools.tools.items()}

    @activity.defn(name=names.ACTIVITY_OPEN_RUN)
    async def open_run(self, request: OpenRun) -> OpenedRun:
        """Pin the route, check the input and the seals in it, and write the run down; a repeat finds the same run."""
        start = request.start
        principal = Principal(tenant=start.tenant, actor=start.actor)
        stored = await self._routes.get(principal, start.route, await self._version(principal, start))
        fields = validate_input(stored.route, start.input)
        for name, field in stored.route.input.items():
            if field.personal and name in fields:
                await self._seals.verify(principal, MaskedText.model_validate(fields[name]), name)
        subject = _subject(stored.route, fields)
        given = start.model_copy(update={"version": stored.version, "input": fields, "carried": None})
        await self._runs.open(principal, given, stored, request.execution, subject)
        return OpenedRun(
            route=stored.route,
            version=stored.version,
            digest=stored.digest,
            tools=self._bound(stored),
            input=fields,
            subject_token=await self._token(principal, subject),
        )

    @activity.defn(name=names.ACTIVITY_END_RUN)
    async def end_run(self, request: EndRun) -> RunResult:
        """Write the end down, or that the run could not begin; the first end is the one that counts."""
        if request.opened:
            return await self._runs.end(request.principal, request.run_id, request.result, request.obligations)
        await self._runs.refuse(request.principal, request.run_id, request.result)
        return request.result

    @activity.defn(name=names.ACTIVITY_CHECK_SEALS)
    async def check_seals(self, request: CheckSeals) -> None:
        """Refuse personal text that masking did not make."""
        for field, text in request.texts.items():
            try:
                masked = MaskedText.model_validate(text)
            except ValidationError:
                raise UnmaskedText(f"{field} is personal and must be masked text", field=field) from None
            await self._seals.verify(request.principal, masked, field)

    async def _version(self, principal: Principal, start: RunInput) -> int | None:
        """The version that was pinned when this run first opened, even if a newer one came since."""
        if start.version is not None:
            return start.version
        try:
            return (await self._runs.get(principal, start.run_id)).route_version
        except NotFound:
            return None

    def _bound(self, stored: StoredRoute) -> dict[str, ToolBinding]:
        used = _used(stored.route)
        missing = sorted(name for name in used if name not in self._bindings)
        if missing:
            raise NotFound(f"this installation has no tool {', '.join(missing)}")
        changed = sorted(name for name, acts in used.items() if self._bindings[name].effect != acts)
        if changed:
            raise RouteInvalid(f"{', '.join(changed)} no longer reads or acts as it did when the route was checked")
        return {name: self._bindings[name] for name in used}

    async def _token(self, principal: Principal, subject: tuple[str, str] | None) -> str | None:
        """The subject as a search attribute: the same for the same subject, and nothing else to anybody."""
        if subject is None:
            return None
        secret = await self._secret(principal, SUBJECT_LABEL)
        return hmac.new(secret, ":".join(subject).encode(), hashlib.sha256).hexdigest()[:SUBJECT_DIGITS]


def _subject(route: Route, fields: dict[str, object]) -> tuple[str, str] | None:
    if route.subject is None or route.subject.id not in fields:
        return None
    return route.subject.type, str(fields[route.subject.id])


def _used(route: Route) -> dict[ToolName, bool]:
    """The tools of a route, and whether it acts with them."""
    steps = route.steps.values()
    reading = {step.tool: False for step in steps if isinstance(step, ToolStep) and step.tool is not None}
    return reading | {step.intent.tool: True for step in steps if isinstance(step, ApprovalStep)}


def _binding(name: ToolName, tool: Tool, task_queue: str) -> ToolBinding:
    return ToolBinding(
        name=name,
        activity=names.TOOL_ACTIVITY_PREFIX + name if isinstance(tool, HostedTool) else names.ACTIVITY_CALL_TOOL,
        task_queue=tool.task_queue if isinstance(tool, HostedTool) else task_queue,
        effect=tool.effect,
        lookup=bool(tool.lookup),
        timeout=tool.timeout,
    )
