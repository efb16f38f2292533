"""The HTTP edge as one application."""

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.responses import Response

from gateway import approvals, codec, health, messages, problems, routes, runs
from gateway.limits import BodyLimit
from gateway.metrics import Counted, Metrics
from gateway.services import Services

DESCRIPTION = """Durable agent runs that wait for people and act once per approved intent.

Every call carries a bearer token (JWT) that names tenant, person and roles; no body has a tenant. Every POST takes an
`Idempotency-Key`. Errors are problem documents (RFC 9457) whose `type` says what to do next.
"""


def create_app(services: Services) -> FastAPI:
    """The application on its collaborators; it owns none of them."""
    app = FastAPI(title="perdure", version="1", description=DESCRIPTION, redoc_url=None)
    app.state.services = services
    for router in (routes.router, runs.router, messages.router, approvals.router, codec.router, health.router):
        app.include_router(router)
    metrics = Metrics()

    @app.get("/metrics", tags=["health"], include_in_schema=False)
    async def figures() -> Response:
        return metrics.exposition()

    app.add_middleware(BodyLimit, most=services.settings.max_body_bytes)
    problems.install(app)
    app.add_middleware(Counted, metrics=metrics)
    if services.settings.temporal_ui_url:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=[services.settings.temporal_ui_url.rstrip("/")],
            allow_methods=["POST"],
            allow_headers=["Authorization", "Content-Type", "X-Namespace"],
        )
    return app
