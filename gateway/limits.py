"""No body is larger than the edge is told to read."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.problems import problem
from perdure.errors import InvalidInput

TOO_LARGE = 413


class BodyLimit:
    """Answers 413 (``InvalidInput``) before the rest of the body is read, whatever its declared length."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        chunks: list[bytes] = []
        size = 0
        more = scope["method"] in ("POST", "PUT", "PATCH", "DELETE")
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            more = message.get("more_body", False)
            if size > self._most:
                error = InvalidInput(f"a body has at most {self._most} bytes", limit=self._most)
                await problem(error, TOO_LARGE)(scope, receive, send)
                return
        await self._app(scope, _Read(b"".join(chunks), receive), send)


class _Read:
    """Hands over a body that was read, then whatever else arrives."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}
