"""The command line says one clear line and an exit code; what it shows is never read as markup."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from rich.console import Console

import embedded
from perdure.cli_screen import assigned, facts, plain
from perdure.errors import InvalidInput
from perdure.messages import Decision
from perdure.proof import check_proof
from perdure.route import FieldType
from perdure.tokens import StaticKey

Run = Callable[..., subprocess.CompletedProcess[str]]
ROUTE = "route: greet\nstart: done\nsteps:\n  done: {kind: end, outcome: greeted}\nhandoff: {owner: operator}\n"


@pytest.fixture
def perdure(tmp_path: Path, project: Path) -> Run:
    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        return subprocess.run(
            [sys.executable, "-m", "perdure.cli", *arguments],
            env=clean | {"PYTHONPATH": str(project), "COLUMNS": "200"} | environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_without_a_token_it_says_what_to_set(perdure: Run) -> None:
    ended = perdure("runs")
    assert (ended.returncode, ended.stderr) == (
        1,
        "InvalidInput: no token: set PERDURE_TOKEN or give --token\n",
    )


def test_a_gateway_that_is_down_is_one_line_and_exit_4(perdure: Run) -> None:
    ended = perdure("runs", PERDURE_URL=f"http://127.0.0.1:{embedded.free_port()}", PERDURE_TOKEN="secret-token")
    assert (ended.returncode, ended.stderr.strip()) == (4, "Unavailable: the gateway does not answer")
    assert "secret-token" not in ended.stdout + ended.stderr


def test_a_good_route_passes_and_a_bad_one_is_explained(perdure: Run, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(ROUTE)
    (tmp_path / "bad.yaml").write_text(ROUTE + "nonsense: 1\n")
    assert perdure("route", "check", "good.yaml").returncode == 0
    bad = perdure("route", "check", "bad.yaml")
    assert bad.returncode == 1
    assert "bad.yaml" in bad.stderr
    assert "nonsense" in bad.stderr


def test_a_proof_is_made_without_asking_anybody(perdure: Run, tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    (tmp_path / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    who = ("--tenant", "demo", "--actor", "boris", "--role", "approver", "--signing-key", "key.pem")
    made = perdure("proof", "rev_1", *who, "--version", "2", "--digest", "ab" * 32)
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["verdict"] == "approve"


async def test_a_proof_from_the_command_line_counts(perdure: Run, tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    (tmp_path / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    who = ("--tenant", "demo", "--actor", "boris", "--role", "approver", "--signing-key", "key.pem")
    made = perdure("proof", "rev_1", *who, "--verdict", "reject", "--version", "2", "--digest", "ab" * 32)
    reviewer = await check_proof(Decision.model_validate_json(made.stdout), "demo", StaticKey(public))
    assert (reviewer.actor, reviewer.roles) == ("boris", ("approver",))


def test_fields_are_read_by_their_types() -> None:
    types = {"n": FieldType.INTEGER, "yes": FieldType.BOOLEAN, "amount": FieldType.DECIMAL, "id": FieldType.IDENTIFIER}
    given = assigned(["n=7", "yes=true", "amount=820.00", "id=1001", "text=a=b"], types)
    assert given == {"n": 7, "yes": True, "amount": "820.00", "id": "1001", "text": "a=b"}
    for wrong in ("n=x", "n", "=1"):
        with pytest.raises(InvalidInput):
            assigned([wrong], types)


def test_values_are_shown_as_they_stand() -> None:
    written = io.StringIO()
    Console(file=written, width=80).print(facts({"value": "[bold]x[/] \x1b[2J"}))
    assert "[bold]x[/]" in written.getvalue()
    assert "\x1b[2J" not in written.getvalue()
    assert plain({"masked": "⟦EMAIL_1⟧", "detector": "d", "seal": "s"}).plain == "⟦EMAIL_1⟧"
