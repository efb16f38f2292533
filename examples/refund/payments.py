"""A payments provider to try things on: a small HTTP server with idempotency keys, lookup, and faults on demand.

Everything it was told to do is in one SQLite file, so a restart forgets nothing.

    python payments.py --port 8090 --file payments.db

    GET  /orders/{order}/charges        the charges of an order, and the one that looks like a duplicate
    POST /charges/{charge}/refunds      refund {"amount", "currency"}; needs an Idempotency-Key
    GET  /refunds/by-key/{key}          the refund made under a key, or 404
    GET  /refunds                       all refunds
    GET  /admin/calls                   how often each request was made
    POST /admin/charges                 a new charge {"order_id", "amount", "currency"}
    POST /admin/faults                  the next refunds go wrong: {"fault", "times", "seconds"}

Faults: ``drop`` executes and closes the socket without an answer; ``slow`` executes and answers after ``seconds``;
``fail`` answers 500 and does nothing; ``ignore`` answers 201 and does nothing.
"""

import argparse
import json
import re
import secrets
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS charges (id TEXT PRIMARY KEY, order_id TEXT, amount TEXT, currency TEXT);
CREATE TABLE IF NOT EXISTS refunds
    (id TEXT PRIMARY KEY, key TEXT UNIQUE, charge_id TEXT, amount TEXT, currency TEXT, request TEXT);
CREATE TABLE IF NOT EXISTS faults (position INTEGER PRIMARY KEY AUTOINCREMENT, fault TEXT, seconds REAL);
CREATE TABLE IF NOT EXISTS calls (request TEXT PRIMARY KEY, times INTEGER);
"""
FAULTS = ("drop", "slow", "fail", "ignore")
FIRST_ORDER = ("order-1001", "82000.00", "RUB")

Answer = tuple[int, dict[str, Any]]


class Rejected(Exception):
    """The request is refused and nothing was done."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        super().__init__(reason)


class Books:
    """Charges and refunds, each change committed before it is answered."""

    def __init__(self, file: Path) -> None:
        self._lock = threading.Lock()
        self._rows = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._rows.row_factory = sqlite3.Row
        self._rows.executescript(SCHEMA)
        if not self._all("SELECT id FROM charges LIMIT 1"):
            for _ in range(2):
                self.charge(*FIRST_ORDER)

    def charge(self, order_id: str, amount: str, currency: str) -> dict[str, Any]:
        row = {"id": f"ch_{secrets.token_hex(6)}", "order_id": order_id, "amount": amount, "currency": currency}
        self._do("INSERT INTO charges VALUES (:id, :order_id, :amount, :currency)", row)
        return row

    def charges(self, order_id: str) -> dict[str, Any]:
        """``repeated``: the last charge equals an earlier one, and nothing of it was refunded yet."""
        found = self._all("SELECT * FROM charges WHERE order_id = ? ORDER BY rowid", order_id)
        if not found:
            raise Rejected(404, "no such order")
        last = found[-1]
        same = any(c["amount"] == last["amount"] and c["currency"] == last["currency"] for c in found[:-1])
        repeated = same and not self._all("SELECT id FROM refunds WHERE charge_id = ?", last["id"])
        return {"order_id": order_id, "count": len(found), "charges": found, "repeated": repeated, "last": last}

    def refund(self, key: str, charge_id: str, amount: str, currency: str) -> dict[str, Any]:
        """One refund per key; a repeat gets the first one."""
        request = json.dumps([charge_id, amount, currency])
        with self._lock:
            if first := self._one("SELECT * FROM refunds WHERE key = ?", key):
                if first["request"] != request:
                    raise Rejected(422, "this key was used for another refund")
                return first
            self._check(charge_id, amount, currency)
            row = (f"re_{secrets.token_hex(6)}", key, charge_id, amount, currency, request)
            self._rows.execute("INSERT INTO refunds VALUES (?, ?, ?, ?, ?, ?)", row)
            made = self._one("SELECT * FROM refunds WHERE key = ?", key)
            assert made is not None
            return made

    def by_key(self, key: str) -> dict[str, Any]:
        with self._lock:
            found = self._one("SELECT * FROM refunds WHERE key = ?", key)
        if found is None:
            raise Rejected(404, "nothing was done under this key")
        return found

    def refunds(self) -> list[dict[str, Any]]:
        return self._all("SELECT * FROM refunds ORDER BY rowid")

    def plan_faults(self, fault: str, times: int, seconds: float) -> None:
        for _ in range(times):
            self._do("INSERT INTO faults (fault, seconds) VALUES (?, ?)", (fault, seconds))

    def next_fault(self) -> tuple[str, float]:
        with self._lock:
            planned = self._one("SELECT * FROM faults ORDER BY position LIMIT 1")
            if planned is None:
                return ("none", 0.0)
            self._rows.execute("DELETE FROM faults WHERE position = ?", (planned["position"],))
        return (planned["fault"], planned["seconds"])

    def count(self, request: str) -> None:
        sql = "INSERT INTO calls VALUES (?, 1) ON CONFLICT (request) DO UPDATE SET times = times + 1"
        self._do(sql, (request,))

    def calls(self) -> dict[str, int]:
        return {row["request"]: row["times"] for row in self._all("SELECT * FROM calls")}

    def _check(self, charge_id: str, amount: str, currency: str) -> None:
        charge = self._one("SELECT * FROM charges WHERE id = ?", charge_id)
        if charge is None:
            raise Rejected(404, "no such charge")
        given = [Decimal(row["amount"]) for row in self._select("SELECT * FROM refunds WHERE charge_id = ?", charge_id)]
        if currency != charge["currency"] or not 0 < Decimal(amount) <= Decimal(charge["amount"]) - sum(given):
            raise Rejected(422, "the charge does not cover this refund")

    def _one(self, sql: str, *values: str) -> dict[str, Any] | None:
        return next(iter(self._select(sql, *values)), None)

    def _select(self, sql: str, *values: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self._rows.execute(sql, values)]

    def _all(self, sql: str, *values: str) -> list[dict[str, Any]]:
        with self._lock:
            return self._select(sql, *values)

    def _do(self, sql: str, values: tuple[object, ...] | dict[str, Any]) -> None:
        with self._lock:
            self._rows.execute(sql, values)


class Desk(BaseHTTPRequestHandler):
    """One request after the other on the books."""

    protocol_version = "HTTP/1.1"
    books: Books
    routes: tuple[tuple[str, str, str], ...] = (
        ("GET", r"/orders/([^/]+)/charges", "list_charges"),
        ("POST", r"/charges/([^/]+)/refunds", "make_refund"),
        ("GET", r"/refunds/by-key/([^/]+)", "find_refund"),
        ("GET", r"/refunds", "list_refunds"),
        ("GET", r"/admin/calls", "list_calls"),
        ("POST", r"/admin/charges", "make_charge"),
        ("POST", r"/admin/faults", "plan_faults"),
    )

    def do_GET(self) -> None:
        self._dispatch("GET")

    def do_POST(self) -> None:
        self._dispatch("POST")

    def list_charges(self, order_id: str) -> Answer:
        return 200, self.books.charges(order_id)

    def make_refund(self, charge_id: str) -> Answer | None:
        key = self.headers.get("Idempotency-Key")
        if not key:
            raise Rejected(400, "an Idempotency-Key is needed")
        body = self._body()
        amount, currency = _amount(body.get("amount")), str(body.get("currency"))
        fault, seconds = self.books.next_fault()
        if fault == "fail":
            return 500, {"error": "failed on demand"}
        if fault == "ignore":
            return 201, {"refund": {"id": "re_never", "charge_id": charge_id, "amount": amount, "currency": currency}}
        made = self.books.refund(key, charge_id, amount, currency)
        if fault == "drop":
            self._drop()
            return None
        if fault == "slow":
            time.sleep(seconds)
        return 201, {"refund": made}

    def find_refund(self, key: str) -> Answer:
        return 200, {"refund": self.books.by_key(key)}

    def list_refunds(self) -> Answer:
        return 200, {"refunds": self.books.refunds()}

    def list_calls(self) -> Answer:
        return 200, {"calls": self.books.calls()}

    def make_charge(self) -> Answer:
        body = self._body()
        return 201, self.books.charge(str(body["order_id"]), _amount(body["amount"]), str(body["currency"]))

    def plan_faults(self) -> Answer:
        body = self._body()
        if body.get("fault") not in FAULTS:
            raise Rejected(422, "fault is one of " + ", ".join(FAULTS))
        self.books.plan_faults(body["fault"], int(body.get("times", 1)), float(body.get("seconds", 1)))
        return 201, {"planned": body["fault"]}

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the signature of the standard library
        """Say nothing: the calls are counted in the books."""

    def _dispatch(self, method: str) -> None:
        self._read = False
        try:
            answer = self._call(method)
        except Rejected as rejected:
            answer = rejected.status, {"error": str(rejected)}
        except (KeyError, ValueError, InvalidOperation):
            answer = 400, {"error": "the body is not what is asked for"}
        if not self._read:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if answer is not None:
            self._send(*answer)

    def _call(self, method: str) -> Answer | None:
        path = self.path.partition("?")[0]
        for verb, pattern, name in self.routes:
            match = re.fullmatch(pattern, path)
            if verb == method and match:
                self.books.count(name)
                operation: Callable[..., Answer | None] = getattr(self, name)
                return operation(*match.groups())
        raise Rejected(404, "no such thing")

    def _body(self) -> dict[str, Any]:
        self._read = True
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        if not isinstance(body, dict):
            raise ValueError("not an object")
        return body

    def _send(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


def _amount(given: object) -> str:
    amount = Decimal(str(given))
    if not amount.is_finite() or amount <= 0:
        raise ValueError("not an amount")
    return f"{amount:.2f}"


def serve(port: int, file: Path) -> None:
    """Serve until killed; prints its address when it is ready."""
    desk = type("BoundDesk", (Desk,), {"books": Books(file)})
    server = ThreadingHTTPServer(("127.0.0.1", port), desk)
    server.daemon_threads = True
    print(f"payments sandbox at http://127.0.0.1:{server.server_port}, books in {file}", flush=True)
    server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--file", type=Path, default=Path("payments.db"))
    arguments = parser.parse_args()
    serve(arguments.port, arguments.file)


if __name__ == "__main__":
    main()
