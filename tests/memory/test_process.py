"""Process memory is pure: a workflow may import it."""

import subprocess
import sys

FORBIDDEN = {"sqlalchemy", "psycopg", "cryptography", "temporalio", "httpx", "obstore", "yaml", "presidio_analyzer"}


def test_importing_it_reaches_no_library_that_does_io() -> None:
    code = "import sys, memory.process, memory.reducer; print(*{name.split('.')[0] for name in sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) & FORBIDDEN == set()
    assert "pydantic" in found.stdout.split()
