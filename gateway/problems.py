"""Every error as a problem document (RFC 9457); none quotes what was sent."""

import logging
import re
import traceback
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.api import Problem
from perdure.errors import InvalidInput, NotAuthenticated, NotAuthorized, NotFound, PerdureError, Unavailable

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": description, "content": {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}}
    for status, description in {
        401: "NotAuthenticated",
        403: "NotAuthorized and other refusals",
        422: "InvalidInput and other refusals of what was sent",
        503: "Unavailable: the same call may pass later",
    }.items()
}

_log = logging.getLogger("perdure.gateway")
_NAME = re.compile(r"[A-Za-z_-][A-Za-z0-9_-]{0,63}")
_SAID_PLAINLY = {
    "missing": "is missing",
    "extra_forbidden": "is not known here",
    "json_invalid": "is not JSON",
    "string_pattern_mismatch": "does not have the form asked for",
}
_TYPE_OR_LIMIT = re.compile(r"^(Input should be an? |Input should be (a )?valid |.* should have at (most|least) \d+ )")


def problem(error: PerdureError, status: int | None = None) -> JSONResponse:
    """The answer for an error of the tree."""
    code = status or error.status
    members = {
        **jsonable_encoder(error.ids),
        "type": type(error).__name__,
        "title": (type(error).__doc__ or "").splitlines()[0],
        "status": code,
        "detail": error.message,
    }
    return JSONResponse(members, code, _headers(error), MEDIA_TYPE)


def _headers(error: PerdureError) -> dict[str, str]:
    if isinstance(error, Unavailable):
        return {"Retry-After": str(RETRY_AFTER_SECONDS)}
    return {"WWW-Authenticate": "Bearer"} if isinstance(error, NotAuthenticated) else {}


def explained(errors: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Where and why, without the value and without keys that the caller made up."""
    return [{"field": _place(error), "message": _reason(error)} for error in errors]


def _place(error: Mapping[str, Any]) -> str:
    parts = [str(part) for part in error["loc"]]
    if error["type"] == "extra_forbidden" and parts[-1] != "tenant":
        parts[-1] = "(unknown key)"
    invented = len(parts) > 2 and parts[1] in ("input", "fields")
    shown = parts[:2] if invented else [part if _plain(part) else "(key)" for part in parts]
    return ".".join(shown)


def _plain(part: str) -> bool:
    return part.isdecimal() or part == "(unknown key)" or _NAME.fullmatch(part) is not None


def _reason(error: Mapping[str, Any]) -> str:
    if error["type"] == "extra_forbidden" and error["loc"][-1] == "tenant":
        return "is refused: the tenant comes from the token"
    if error["type"] in _SAID_PLAINLY:
        return _SAID_PLAINLY[error["type"]]
    message = str(error["msg"])
    return message if _TYPE_OR_LIMIT.match(message) else "is not valid"


async def _known(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PerdureError)
    return problem(error)


async def _unfit(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    fields = explained(error.errors())
    return problem(InvalidInput("; ".join(f"{f['field']} {f['message']}" for f in fields[:3]), fields=fields))


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    known: dict[int, type[PerdureError]] = {401: NotAuthenticated, 403: NotAuthorized, 404: NotFound}
    phrase = HTTPStatus(error.status_code).phrase.lower()
    return problem(known.get(error.status_code, InvalidInput)(f"{phrase}: {request.method} here"), error.status_code)


def install(app: FastAPI) -> None:
    """Answer with problem documents, whatever is raised."""
    app.add_exception_handler(PerdureError, _known)
    app.add_exception_handler(RequestValidationError, _unfit)
    app.add_exception_handler(HTTPException, _http)
    app.add_middleware(Unexpected)


class Unexpected:
    """The last door: an error that nobody foresaw becomes a problem without details, and a log line without values."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            if scope["type"] != "http":
                raise
            # The message and the locals of the traceback may hold values; the places do not.
            places = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-5:]]
            _log.error("unexpected %s at %s", type(error).__qualname__, " < ".join(reversed(places)))
            if not begun:
                await problem(PerdureError("something unexpected happened; it is in the log"))(scope, receive, send)
