"""A worker that must not start says why, in one line, and quotes no setting."""

import os
import subprocess
import sys

import pytest

from tests.faults.conftest import Mortals

WRONG = {
    "no codec ring": ({"PERDURE_KEYS__CODEC_FILE": ""}, 1, "codec"),
    "no root ring": ({"PERDURE_KEYS__ROOT_FILE": ""}, 1, "root"),
    "no database": ({"PERDURE_DATABASE__URL": ""}, 2, "PERDURE_DATABASE__URL"),
    "no Temporal": ({"TEMPORAL_ADDRESS": "127.0.0.1:1"}, 1, "EngineUnavailable"),
    "a wrong number": ({"PERDURE_DATABASE__POOL_SIZE": "many"}, 2, "PERDURE_DATABASE__POOL_SIZE"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_worker_refuses_wrong_settings(mortals: Mortals, what: str) -> None:
    """Missing keys, nobody there, values that are none."""
    changes, code, told = WRONG[what]
    settings = {name: value for name, value in (mortals.environment | changes).items() if value}
    _refused(mortals, settings, code, told)


def test_a_worker_refuses_a_superuser(mortals: Mortals) -> None:
    """A role that row level security does not bind is no role for the service."""
    url = mortals.environment["PERDURE_DATABASE__URL"].replace("perdure_service", "postgres")
    _refused(mortals, mortals.environment | {"PERDURE_DATABASE__URL": url}, 1, "UnsafeRole")


def _refused(mortals: Mortals, settings: dict[str, str], code: int, told: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "TEMPORAL_"))}
    run = subprocess.run(
        [sys.executable, "worker.py"], cwd=mortals.project, env=kept | settings, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert run.returncode == code, run.stderr
    assert told in run.stderr
    assert len(run.stderr.splitlines()) == 1, run.stderr
    assert "postgresql" not in run.stderr
