"""The built-in HTTP tool: one declared request, its idempotency header, and its lookup."""

import asyncio
import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from perdure.attempt import Answer
from perdure.errors import AnswerLost, InvalidInput, ResultTooLarge, ToolRefused, ToolUnavailable
from perdure.messages import ToolCall
from perdure.route import FieldType
from perdure.toolfile import HttpRequest, HttpTool

ANSWER_LIMIT_BYTES = 16_000_000
_NAMED = re.compile(r"\{([a-z0-9_]+)\}")
_NOTHING_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_AS_TEXT = (FieldType.DECIMAL, FieldType.IDENTIFIER, FieldType.STRING)


class Secret(Protocol):
    """A value that does not show itself."""

    def get_secret_value(self) -> str: ...


class HttpTarget:
    """One tool of the tools file as the target of an attempt."""

    def __init__(
        self,
        name: str,
        tool: HttpTool,
        servers: Mapping[str, str],
        secrets: Mapping[str, Secret],
        client: httpx.AsyncClient,
    ) -> None:
        self._name = name
        self._tool = tool
        self._servers = servers
        self._client = client
        self._headers = {header: _header(name, value, secrets) for header, value in tool.headers.items()}
        self.can_lookup = tool.lookup is not None
        self.required = frozenset(path for path, parameter in tool.result.items() if parameter.required)

    async def execute(self, call: ToolCall, within: timedelta) -> Answer:
        url, rest = self._url(self._tool.request, call)
        in_query = self._tool.request.method in ("GET", "DELETE")
        headers = dict(self._headers)
        if call.key is not None:
            headers[self._tool.idempotency_header] = call.key
        request = self._client.build_request(
            self._tool.request.method,
            url,
            headers=headers,
            params={name: _text(value) for name, value in rest.items()} if in_query else None,
            json=None if in_query else rest,
        )
        acts = call.key is not None
        status, raw = await self._send(request, acts, within)
        if 200 <= status < 300:
            return self._answer(raw)
        if status in self._tool.not_executed:
            raise ToolRefused(f"{self._name} answered {status}: nothing was executed")
        if status in self._tool.retry:
            raise ToolUnavailable(f"{self._name} answered {status}: nothing was executed, a later try may pass")
        raise (AnswerLost if acts else ToolUnavailable)(f"{self._name} answered {status}")

    async def lookup(self, call: ToolCall) -> Answer | None:
        if self._tool.lookup is None:
            return None
        url, _ = self._url(self._tool.lookup, call)
        request = self._client.build_request(self._tool.lookup.method, url, headers=self._headers)
        try:
            status, raw = await self._send(request, True, call.timeout)
        except ToolUnavailable as error:
            raise AnswerLost(f"the lookup of {error.message}") from None
        if status == 404:
            return None
        if 200 <= status < 300:
            return self._answer(raw)
        raise AnswerLost(f"the lookup of {self._name} answered {status}")

    async def _send(self, request: httpx.Request, acts: bool, within: timedelta) -> tuple[int, bytes]:
        """Status and body. A lost answer is ``AnswerLost`` for a call that acts; for one that reads it is only late."""
        lost = AnswerLost if acts else ToolUnavailable
        try:
            async with asyncio.timeout(within.total_seconds()):
                response = await self._client.send(request, stream=True)
                try:
                    return response.status_code, await _body(response, acts)
                finally:
                    await response.aclose()
        except _NOTHING_SENT as error:
            raise ToolUnavailable(f"{self._name} cannot be reached: {type(error).__name__}") from None
        except (httpx.HTTPError, TimeoutError) as error:
            raise lost(f"{self._name} did not answer: {type(error).__name__}") from None

    def _url(self, request: HttpRequest, call: ToolCall) -> tuple[str, dict[str, Any]]:
        """The URL, and the arguments that are not part of it."""
        used: set[str] = set()

        def named(match: re.Match[str]) -> str:
            name = match.group(1)
            if name in self._servers:
                return self._servers[name]
            if name == "key" and call.key is not None:
                return quote(call.key, safe="")
            if name not in call.arguments:
                raise InvalidInput(f"{self._name}: the URL needs {name!r}, which is no server and no argument")
            used.add(name)
            return quote(_text(call.arguments[name]), safe="")

        url = _NAMED.sub(named, request.url)
        return url, {name: value for name, value in call.arguments.items() if name not in used}

    def _answer(self, raw: bytes) -> Answer:
        try:
            value = json.loads(raw, parse_float=str, parse_constant=str) if raw.strip() else {}
        except ValueError:
            value = {}
        for path, parameter in self._tool.result.items():
            if parameter.type in _AS_TEXT:
                _numbers_to_text(value, path.split("."))
        return Answer(value, raw)


async def _body(response: httpx.Response, acts: bool) -> bytes:
    """The body; of a call that acts, as much of it as is allowed, since what was done stays done."""
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > ANSWER_LIMIT_BYTES and acts:
            break
        if len(body) > ANSWER_LIMIT_BYTES:
            raise ResultTooLarge(f"an answer has more than {ANSWER_LIMIT_BYTES} bytes")
    return bytes(body)


def _header(tool: str, value: str | Mapping[Any, str], secrets: Mapping[str, Secret]) -> str:
    if isinstance(value, str):
        return value
    name = value["secret"]
    if name not in secrets:
        raise InvalidInput(f"{tool}: there is no secret {name!r} in the settings")
    return secrets[name].get_secret_value()


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _numbers_to_text(value: Any, path: list[str]) -> None:
    """JSON knows one kind of number; amounts and ids are text here."""
    for part in path[:-1]:
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, dict) and isinstance(value.get(path[-1]), int) and not isinstance(value[path[-1]], bool):
        value[path[-1]] = str(value[path[-1]])
