"""How many requests, how long: by route template and status, never by value."""

import time

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

NO_ROUTE = "(none)"


class Metrics:
    """The figures of one gateway."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        labels = ["method", "route", "status"]
        self._requests = Counter("perdure_http_requests", "Requests answered", labels, registry=self._registry)
        self._seconds = Histogram("perdure_http_seconds", "Time to answer", ["route"], registry=self._registry)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answer."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def exposition(self) -> Response:
        """All figures in Prometheus' text format."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)


class Counted:
    """Counts what passes."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", NO_ROUTE)
            method = scope["method"] if scope["method"] in ("GET", "POST", "OPTIONS") else "other"
            self._metrics.answered(method, route, status, time.monotonic() - began)
