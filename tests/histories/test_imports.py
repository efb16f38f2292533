"""Workflow code is pure: importing it brings in nothing that reaches the outside."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import workflows

IMPURE = (
    "activities",
    "cryptography.hazmat",
    "fastapi",
    "gateway",
    "httpx",
    "jwt",
    "obstore",
    "pii",
    "presidio_analyzer",
    "psycopg",
    "sqlalchemy",
)
SHOW = """
import importlib, sys
import temporalio.worker, temporalio.contrib.pydantic
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
print("\\n".join(sorted(set(sys.modules) - before)))
"""


def test_workflow_modules_import_nothing_impure(project: Path) -> None:
    """All of them, in a process of their own, beside what Temporal's own SDK loads."""
    names = [module.name for module in pkgutil.iter_modules(workflows.__path__, "workflows.")]
    run = subprocess.run([sys.executable, "-c", SHOW, *names], cwd=project, capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert set(names) <= loaded
    assert [module for module in loaded if f"{module}.".startswith(tuple(f"{impure}." for impure in IMPURE))] == []
