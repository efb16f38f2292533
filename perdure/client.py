"""The HTTP API for Python: typed answers, the same errors as inside, and repeats that are safe."""

import asyncio
import random
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from perdure import errors
from perdure.api import (
    ApprovalList,
    Decided,
    DecideReview,
    MessageAccepted,
    Nothing,
    RouteDetail,
    RouteInstalled,
    RouteList,
    RunDetail,
    RunList,
    RunStarted,
    SendFields,
    StartRun,
)
from perdure.errors import PerdureError, Refusal, RouteInvalid, Unavailable
from perdure.masked import MaskedText
from perdure.messages import ReviewDetail, ReviewState

TRIES = 4
LONGEST_PAUSE_SECONDS = 5.0

Answer = TypeVar("Answer", bound=BaseModel)
_BY_NAME = {error.__name__: error for error in errors.leaves(PerdureError)}
_OWN_MEMBERS = frozenset({"type", "title", "status", "detail", "instance", "message"})


class Client:
    """One gateway, as one caller. ``async with Client(url, token) as perdure: …``

    Every call raises the error that the gateway names (``perdure.errors``). What may pass later (``Unavailable``) is
    tried ``tries`` times with the same ``Idempotency-Key``, so nothing happens twice. Give ``key`` yourself to make a
    repeat of your own process safe as well: the same key and the same request find the same thing.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        tries: int = TRIES,
        timeout: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._tries = max(1, tries)
        self._http = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            headers={"Authorization": f"Bearer {token}"},
            timeout=timeout,
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    # ------------------------------------------------------------ routes

    async def install_route(self, text: str, *, key: str | None = None) -> RouteInstalled:
        """Check and install a route (YAML or JSON). Raises ``RouteInvalid`` with all its ``problems``."""
        return await self._send(
            "POST", "/v1/routes", RouteInstalled, key=key, content=text.encode(), kind="application/yaml"
        )

    async def routes(self) -> RouteList:
        """The newest version of each route."""
        return await self._send("GET", "/v1/routes", RouteList)

    async def route(self, name: str, version: int | None = None) -> RouteDetail:
        """One route: the newest version, or that one."""
        path = f"/v1/routes/{name}" if version is None else f"/v1/routes/{name}/{version}"
        return await self._send("GET", path, RouteDetail)

    # ------------------------------------------------------------ runs

    async def start(
        self,
        route: str,
        input: Mapping[str, Any],  # noqa: A002 - it is the run's input, here as everywhere
        *,
        key: str | None = None,
        version: int | None = None,
        personal: Sequence[str] = (),
    ) -> RunStarted:
        """Start a run. ``personal``: values to mask in the input's texts, such as the customer's name."""
        body = StartRun(route=route, version=version, input=dict(input), personal=tuple(personal))
        return await self._post("/v1/runs", body, RunStarted, key)

    async def run(self, run_id: str, *, process: bool = False) -> RunDetail:
        """One run and its effects; with ``process`` also its own view of where it stands."""
        return await self._send("GET", f"/v1/runs/{run_id}", RunDetail, query={"process": process or None})

    async def runs(
        self, *, status: str | None = None, route: str | None = None, limit: int = 50, after: str | None = None
    ) -> RunList:
        """Runs, newest first."""
        query = {"status": status, "route": route, "limit": limit, "after": after}
        return await self._send("GET", "/v1/runs", RunList, query=query)

    async def message(
        self, run_id: str, fields: Mapping[str, Any], *, key: str | None = None, personal: Sequence[str] = ()
    ) -> MessageAccepted:
        """Something a user says."""
        body = SendFields(fields=dict(fields), personal=tuple(personal))
        return await self._post(f"/v1/runs/{run_id}/messages", body, MessageAccepted, key)

    async def evidence(
        self, run_id: str, fields: Mapping[str, Any], *, key: str | None = None, personal: Sequence[str] = ()
    ) -> MessageAccepted:
        """Something a system found; a pending review that rests on it is withdrawn."""
        body = SendFields(fields=dict(fields), personal=tuple(personal))
        return await self._post(f"/v1/runs/{run_id}/evidence", body, MessageAccepted, key)

    async def steer(
        self, run_id: str, what: Literal["hold", "resume", "cancel"], *, key: str | None = None
    ) -> MessageAccepted:
        """Hold, resume or cancel a run."""
        return await self._post(f"/v1/runs/{run_id}/{what}", Nothing(), MessageAccepted, key)

    # ------------------------------------------------------------ approvals

    async def approvals(self, *, status: str = "pending", limit: int = 50, after: str | None = None) -> ApprovalList:
        """Reviews that the caller may decide."""
        query = {"status": status, "limit": limit, "after": after}
        return await self._send("GET", "/v1/approvals", ApprovalList, query=query)

    async def approval(self, review_id: str) -> ReviewDetail:
        """One review with its changes and evidence."""
        return await self._send("GET", f"/v1/approvals/{review_id}", ReviewDetail)

    async def decide(
        self,
        looked_at: ReviewState,
        verdict: Literal["approve", "reject"],
        *,
        comment: str | MaskedText | None = None,
        personal: Sequence[str] = (),
        key: str | None = None,
    ) -> Decided:
        """Decide on exactly the version that was looked at.

        Raises ``ReviewStale`` (look again), ``AlreadyDecided`` (``ids["first"]`` is the verdict), ``ReviewExpired``,
        ``RunEnded`` and ``NotAuthorized``.
        """
        body = DecideReview(
            verdict=verdict,
            version=looked_at.version,
            digest=looked_at.digest,
            comment=comment,
            personal=tuple(personal),
        )
        return await self._post(f"/v1/approvals/{looked_at.review_id}/decision", body, Decided, key)

    # ------------------------------------------------------------ one request

    async def _post(self, path: str, body: BaseModel, kind: type[Answer], key: str | None) -> Answer:
        content = body.model_dump_json(exclude_unset=True).encode()
        return await self._send("POST", path, kind, key=key, content=content)

    async def _send(
        self,
        method: str,
        path: str,
        answer: type[Answer],
        *,
        key: str | None = None,
        content: bytes | None = None,
        kind: str = "application/json",
        query: Mapping[str, Any] | None = None,
    ) -> Answer:
        headers = {"Content-Type": kind, "Idempotency-Key": key or uuid.uuid4().hex} if method == "POST" else {}
        given = {name: value for name, value in (query or {}).items() if value is not None}
        request = self._http.build_request(method, path, content=content, headers=headers, params=given)
        tries = 0
        while True:
            tries += 1
            try:
                return _read(answer, await self._once(request))
            except Unavailable as error:
                if tries >= self._tries:
                    raise
                await asyncio.sleep(_pause(tries, error))

    async def _once(self, request: httpx.Request) -> httpx.Response:
        try:
            response = await self._http.send(request)
        except httpx.TransportError:
            raise Unavailable("the gateway does not answer") from None
        if response.is_success:
            return response
        raise error_of(response)


def error_of(response: httpx.Response) -> PerdureError:
    """The error that an answer stands for; a proxy's own answer becomes one of the right family."""
    try:
        body = response.json()
    except ValueError:
        body = None
    problem = body if isinstance(body, dict) else {}
    ids = {str(name): value for name, value in problem.items() if name not in _OWN_MEMBERS}
    detail = str(problem.get("detail") or f"the gateway answered {response.status_code}")
    family: type[PerdureError] = Unavailable if response.status_code in (429, 502, 503, 504) else Refusal
    if response.status_code == 500:
        family = PerdureError
    found = _BY_NAME.get(str(problem.get("type")), family)
    if found is RouteInvalid:
        return RouteInvalid(detail, problems=ids.get("problems"))
    if issubclass(found, Unavailable) and "retry-after" in response.headers:
        ids["retry_after"] = response.headers["retry-after"]
    return found(detail, **ids)


def _read(answer: type[Answer], response: httpx.Response) -> Answer:
    try:
        return answer.model_validate_json(response.content)
    except ValidationError:
        raise PerdureError(f"the gateway's answer is not a {answer.__name__}; is it another version?") from None


def _pause(tries: int, error: Unavailable) -> float:
    asked = str(error.ids.get("retry_after", ""))
    longest = 0.2 * 2.0**tries
    least = float(asked) if asked.isdecimal() else 0.0
    return min(max(random.uniform(longest / 2, longest), least), LONGEST_PAUSE_SECONDS)  # noqa: S311
