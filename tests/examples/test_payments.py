"""The sandbox keeps a payment provider's contract, and goes wrong exactly as it is told."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

SANDBOX = Path(__file__).parents[2] / "examples" / "refund" / "payments.py"


class Sandbox:
    """The server in its own process; ``restart`` keeps the books."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.start()

    def start(self) -> None:
        argv = [sys.executable, str(SANDBOX), "--port", "0", "--file", str(self._file)]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().split()[3].rstrip(",")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def last_charge(self) -> str:
        charge: str = httpx.get(f"{self.url}/orders/order-1001/charges").json()["last"]["id"]
        return charge

    def refund(self, key: str, amount: str = "100.00", timeout: float = 5) -> httpx.Response:
        body = {"amount": amount, "currency": "RUB"}
        url = f"{self.url}/charges/{self.last_charge()}/refunds"
        return httpx.post(url, headers={"Idempotency-Key": key}, json=body, timeout=timeout)

    def go_wrong(self, fault: str, **more: float) -> None:
        httpx.post(f"{self.url}/admin/faults", json={"fault": fault, **more}).raise_for_status()

    def refunds(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = httpx.get(f"{self.url}/refunds").json()["refunds"]
        return found


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path / "payments.db")
    yield made
    made.stop()


def test_a_repeated_key_returns_the_first_refund(sandbox: Sandbox) -> None:
    first, again = sandbox.refund("k1"), sandbox.refund("k1")
    assert first.json() == again.json()
    assert len(sandbox.refunds()) == 1


def test_a_key_with_another_amount_is_refused(sandbox: Sandbox) -> None:
    sandbox.refund("k1")
    assert sandbox.refund("k1", "101.00").status_code == 422


def test_a_charge_is_never_refunded_beyond_its_amount(sandbox: Sandbox) -> None:
    assert sandbox.refund("k1", "82000.00").status_code == 201
    assert sandbox.refund("k2", "0.01").status_code == 422


def test_a_restart_forgets_nothing(sandbox: Sandbox) -> None:
    sandbox.refund("k1")
    sandbox.stop()
    sandbox.start()
    assert httpx.get(f"{sandbox.url}/refunds/by-key/k1").is_success
    assert httpx.get(f"{sandbox.url}/refunds/by-key/k2").status_code == 404


def test_drop_executes_and_closes_the_socket(sandbox: Sandbox) -> None:
    sandbox.go_wrong("drop")
    with pytest.raises(httpx.RemoteProtocolError):
        sandbox.refund("k1")
    assert [made["key"] for made in sandbox.refunds()] == ["k1"]


def test_slow_executes_and_answers_late(sandbox: Sandbox) -> None:
    sandbox.go_wrong("slow", seconds=2)
    with pytest.raises(httpx.ReadTimeout):
        sandbox.refund("k1", timeout=0.3)
    assert len(sandbox.refunds()) == 1


@pytest.mark.parametrize(("fault", "status"), [("fail", 500), ("ignore", 201)])
def test_fail_and_ignore_do_nothing(sandbox: Sandbox, fault: str, status: int) -> None:
    sandbox.go_wrong(fault)
    assert sandbox.refund("k1").status_code == status
    assert sandbox.refunds() == []
    assert sandbox.refund("k1").status_code == 201
