"""Settings of the service, read once by a composition root from ``PERDURE_*`` (nested by ``__``)."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from perdure.errors import InvalidInput
from perdure.keyring import KeyRing


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DatabaseSettings(_Section):
    """SQLAlchemy URLs (psycopg 3). ``owner_url`` is for migrations alone; ``relay_url`` claims outbox rows."""

    url: SecretStr
    relay_url: SecretStr | None = None
    owner_url: SecretStr | None = None
    pool_size: int = Field(default=10, ge=1, le=200)


class KeySettings(_Section):
    """Where the root keys come from: a key-ring file, or the same JSON in the environment. ``codec_*`` is the ring that
    seals Temporal payloads; apps hold that one too, never the root ring."""

    provider: Literal["file", "environment"] = "file"
    root_file: Path | None = None
    root_ring: SecretStr | None = None
    codec_file: Path | None = None
    codec_ring: SecretStr | None = None


def codec_ring(settings: KeySettings) -> KeyRing:
    """The ring that seals Temporal payloads. Raises ``InvalidInput`` when none is set, or it is wrong."""
    if settings.codec_ring is not None:
        return KeyRing.parse(settings.codec_ring.get_secret_value())
    if settings.codec_file is not None:
        return KeyRing.read(settings.codec_file)
    raise InvalidInput("no codec key ring: set PERDURE_KEYS__CODEC_FILE or PERDURE_KEYS__CODEC_RING")


class AuthSettings(_Section):
    """Tokens: JWT checked by a JWKS (file or URL) or one static public key (PEM). The same keys check proofs."""

    jwks_file: Path | None = None
    jwks_url: str | None = None
    public_key: SecretStr | None = None
    issuer: str = "perdure"
    audience: str = "perdure"
    allow_asserted: bool = False
    """Whether a decision over Temporal without a proof counts, recorded as asserted."""


class ToolSettings(_Section):
    """The tools file; ``servers`` override its base URLs, ``secrets`` fill its headers."""

    file: Path | None = None
    servers: dict[str, str] = Field(default_factory=dict)
    secrets: dict[str, SecretStr] = Field(default_factory=dict)


class GatewaySettings(_Section):
    """The HTTP edge. ``public_url`` is what links and the UI use."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=1, le=65535)
    public_url: str | None = None
    temporal_ui_url: str | None = None
    max_body_bytes: int = Field(default=1_000_000, ge=1_000)


class ObjectSettings(_Section):
    """Where large payloads are kept, sealed: a URL that obstore understands, such as ``file:///var/lib/perdure/objects``."""

    url: str
    threshold_bytes: int = Field(default=200_000, ge=1_000)


class ModelSettings(_Section):
    """Who answers model steps. ``scripted`` reads canned answers from ``script`` and says so in every answer."""

    kind: Literal["scripted"] = "scripted"
    script: Path | None = None


class Settings(BaseSettings):
    """Everything a process of the service is told from outside. Temporal's connection settings are its own
    (``TEMPORAL_ADDRESS``, ``TEMPORAL_NAMESPACE``, …)."""

    model_config = SettingsConfigDict(env_prefix="PERDURE_", env_nested_delimiter="__", extra="ignore", frozen=True)

    database: DatabaseSettings
    keys: KeySettings = KeySettings()
    auth: AuthSettings = AuthSettings()
    tools: ToolSettings = ToolSettings()
    gateway: GatewaySettings = GatewaySettings()
    objects: ObjectSettings
    model: ModelSettings = ModelSettings()
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    task_queue: str = "perdure"
