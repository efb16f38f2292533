"""What a stack on this machine is made of: its settings, directory, ports, and the environment of each process."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from credentials import Credentials
from embedded import free_port, port_is_free

ROOT = Path(__file__).parent
EXAMPLE = ROOT / "examples" / "refund"


class StackSettings(BaseSettings):
    """``PERDURE_STACK__*``: where the state is kept, for which tenant tokens are made, and ports.

    Without a port, the one of the last time is taken if it is free, else the usual one, else any.
    """

    model_config = SettingsConfigDict(env_prefix="PERDURE_STACK__", extra="forbid", frozen=True)

    home: Path = Path(".perdure")
    tenant: str = "demo"
    gateway_port: int | None = Field(default=None, ge=1, le=65535)
    temporal_port: int | None = Field(default=None, ge=1, le=65535)
    ui_port: int | None = Field(default=None, ge=1, le=65535)


class StackRefused(Exception):
    """The stack cannot be started as asked; the message says what to do."""


@dataclass(frozen=True)
class Ports:
    """Loopback ports of what listens."""

    gateway: int
    temporal: int
    ui: int


@dataclass(frozen=True)
class Home:
    """The directory that keeps the state of one stack."""

    path: Path

    @property
    def postgres(self) -> Path:
        return self.path / "pg"

    @property
    def temporal(self) -> Path:
        return self.path / "temporal.db"

    @property
    def state_file(self) -> Path:
        return self.path / "stack.json"

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the directory for one stack. Raises ``StackRefused`` when another one has it."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "logs").mkdir(mode=0o700, exist_ok=True)
        (self.path / "objects").mkdir(mode=0o700, exist_ok=True)
        with (self.path / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StackRefused(self._taken()) from None
            yield

    def is_held(self) -> bool:
        """Whether a stack runs here."""
        if not (self.path / "lock").exists():
            return False
        with (self.path / "lock").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def read(self) -> dict[str, Any]:
        """The state file; empty before the first start."""
        if not self.state_file.exists():
            return {}
        state: dict[str, Any] = json.loads(self.state_file.read_text())
        return state

    def write(self, state: Mapping[str, Any]) -> None:
        """Replace the state file at once, so that a reader never sees half of it."""
        draft = self.state_file.with_suffix(".draft")
        draft.write_text(json.dumps(state, indent=2) + "\n")
        draft.replace(self.state_file)

    def _taken(self) -> str:
        state = self.read()
        where = state.get("urls", {}).get("gateway", "it is starting")
        return (
            f"a stack is up in {self.path} already (pid {state.get('pid')}, {where}); "
            "stop it with `python stack.py stop`, or start another one with PERDURE_STACK__HOME=<directory>"
        )


def choose_ports(settings: StackSettings, last: Mapping[str, int]) -> Ports:
    """A port for each listener. Raises ``StackRefused`` when one that was asked for is taken."""
    usual = Ports(gateway=8080, temporal=7233, ui=8233)
    asked = Ports(settings.gateway_port or 0, settings.temporal_port or 0, settings.ui_port or 0)
    chosen: dict[str, int] = {}
    for name, port in asdict(asked).items():
        if port and not port_is_free(port):
            raise StackRefused(f"port {port} is taken; free it or change PERDURE_STACK__{name.upper()}_PORT")
        candidates = [p for p in (last.get(name, 0), getattr(usual, name)) if p and p not in chosen.values()]
        chosen[name] = port or next((p for p in candidates if port_is_free(p)), None) or free_port()
    return Ports(**chosen)


@dataclass(frozen=True)
class Addresses:
    """How processes and clients reach each other. ``database``: role -> SQLAlchemy URL, ``owner`` for migrations."""

    database: Mapping[str, str]
    temporal: str
    gateway: str
    ui: str | None


def service_environment(home: Home, made: Credentials, ports: Ports, at: Addresses) -> dict[str, str]:
    """What worker and gateway are told; a variable of ours that is set already wins."""
    told = {
        "PERDURE_DATABASE__URL": at.database["service"],
        "PERDURE_DATABASE__RELAY_URL": at.database["relay"],
        "PERDURE_KEYS__ROOT_FILE": str(made.root_ring),
        "PERDURE_KEYS__CODEC_FILE": str(made.codec_ring),
        "PERDURE_AUTH__JWKS_FILE": str(made.jwks),
        "PERDURE_OBJECTS__URL": (home.path / "objects").as_uri(),
        "PERDURE_TOOLS__FILE": str(EXAMPLE / "tools.yaml"),
        "PERDURE_MODEL__SCRIPT": str(EXAMPLE / "model.yaml"),
        "PERDURE_GATEWAY__PORT": str(ports.gateway),
        "PERDURE_GATEWAY__PUBLIC_URL": at.gateway,
        "TEMPORAL_ADDRESS": at.temporal,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONUNBUFFERED": "1",
    }
    if at.ui is not None:
        told["PERDURE_GATEWAY__TEMPORAL_UI_URL"] = at.ui
    return told | {name: os.environ[name] for name in told.keys() & os.environ.keys() if name != "PYTHONPATH"}


def client_environment(made: Credentials, at: Addresses) -> dict[str, str]:
    """What an app on this machine needs; secrets only as paths of files."""
    return {
        "PERDURE_URL": at.gateway,
        "PERDURE_TOKENS_FILE": str(made.tokens),
        "PERDURE_KEYS__CODEC_FILE": str(made.codec_ring),
        "PERDURE_SIGNING_KEY_FILE": str(made.signing_key),
        "TEMPORAL_ADDRESS": at.temporal,
    }
