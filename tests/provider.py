"""A small real payments provider over HTTP: idempotency keys, a lookup, and switches for what may go wrong."""

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from perdure.toolfile import ToolFile


@dataclass
class Provider:
    """What it did and how it is to behave. ``refunds`` is the truth: key -> refund."""

    refunds: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    drop_answers: int = 0
    drop_lookups: int = 0
    do_nothing: bool = False
    statuses: list[int] = field(default_factory=list)
    delay: float = 0
    padding: int = 0
    amount: str = "820.00"
    currency: str = "EUR"

    def __post_init__(self) -> None:
        provider = self

        class Handler(_Handler):
            of = provider

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def attempts(self) -> int:
        """How often somebody asked for a refund, whatever came of it."""
        return self.calls.count("POST /refunds")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    of: Provider
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        return

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.of.calls.append(f"GET {path}")
        if path.startswith("/charges"):
            self._answer(
                200,
                {"charge": {"id": "ch_1", "amount": self.of.amount, "currency": self.of.currency}, "note": self._pad()},
            )
            return
        if self.of.drop_lookups > 0:
            self.of.drop_lookups -= 1
            self._drop()
            return
        refund = self.of.refunds.get(path.rpartition("/")[2])
        self._answer(404, {}) if refund is None else self._answer(200, refund)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        self.of.calls.append("POST /refunds")
        if self.of.statuses:
            status = self.of.statuses.pop(0)
            if status >= 300:
                self._answer(status, {})
                return
        refund = {"id": f"re_{len(self.of.refunds) + 1}", "status": "succeeded", "note": self._pad(), **body}
        key = self.headers["Idempotency-Key"]
        if not self.of.do_nothing:
            refund = self.of.refunds.setdefault(key, refund)
        time.sleep(self.of.delay)
        if self.of.drop_answers > 0:
            self.of.drop_answers -= 1
            self._drop()
            return
        self._answer(200, refund)

    def _pad(self) -> str:
        return "x" * self.of.padding

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.close()

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


def tool_file(url: str, *, lookup: bool = True, timeout: str = "PT2S") -> ToolFile:
    """The tools of this provider: ``payments.find_charge`` reads, ``payments.refund`` acts."""
    refund: dict[str, Any] = {
        "kind": "http",
        "effect": True,
        "request": {"method": "POST", "url": "{payments}/refunds"},
        "parameters": {
            "charge": {"type": "identifier"},
            "amount": {"type": "decimal"},
            "currency": {"type": "string"},
        },
        "result": {
            "id": {"type": "identifier"},
            "status": {"type": "string"},
            "note": {"type": "string", "required": False},
        },
        "timeout": timeout,
    }
    if lookup:
        refund["lookup"] = {"url": "{payments}/refunds/by-key/{key}"}
    find = {
        "kind": "http",
        "request": {"url": "{payments}/charges"},
        "parameters": {"order": {"type": "identifier"}},
        "result": {
            "charge.id": {"type": "identifier"},
            "charge.amount": {"type": "decimal"},
            "charge.currency": {"type": "string"},
            "note": {"type": "string", "required": False},
        },
        "timeout": timeout,
    }
    return ToolFile.model_validate(
        {"servers": {"payments": url}, "tools": {"payments.find_charge": find, "payments.refund": refund}}
    )
