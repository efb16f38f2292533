"""What the command line shares: where it calls, how it shows things, how it ends."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perdure.client import Client
from perdure.errors import InvalidInput
from perdure.route import FieldType

Result = TypeVar("Result")
_FROM_JSON = (FieldType.INTEGER, FieldType.BOOLEAN, FieldType.OBJECT, FieldType.LIST)


@dataclass(frozen=True)
class Screen:
    """One invocation: the gateway, the token, and whether a machine reads."""

    url: str
    token: str | None
    machine: bool
    console: Console
    errors: Console

    def call(self, work: Callable[[Client], Awaitable[Result]], waiting: str | None = None) -> Result:
        """Do some calls; ``waiting`` is shown meanwhile."""
        if not self.token:
            raise InvalidInput("no token: set PERDURE_TOKEN or give --token")
        token = self.token

        async def run() -> Result:
            async with Client(self.url, token) as client:
                return await work(client)

        with self.errors.status(waiting or "asking the gateway"):
            return asyncio.run(run())

    def show(self, answer: BaseModel, drawn: Callable[[], Iterable[Any]]) -> None:
        """The answer as JSON for machines, drawn for people."""
        if self.machine:
            typer.echo(answer.model_dump_json(indent=2))
        else:
            for part in drawn():
                self.console.print(part)


def screen_of(context: typer.Context) -> Screen:
    """The invocation's screen."""
    screen = context.obj
    assert isinstance(screen, Screen)
    return screen


def table(*columns: str, title: str | None = None) -> Table:
    """An empty table."""
    drawn = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        drawn.add_column(column, overflow="fold")
    return drawn


def facts(rows: Mapping[str, object]) -> Table:
    """Names and values below each other; what is not set is left out."""
    drawn = Table(show_header=False, box=None, pad_edge=False)
    drawn.add_column(style="dim")
    drawn.add_column(overflow="fold")
    for name, value in rows.items():
        if value is not None and value != "":
            drawn.add_row(name, plain(value))
    return drawn


def plain(value: object) -> Text:
    """A value as it stands: never read as markup, control characters made visible."""
    if isinstance(value, datetime):
        return Text(moment(value))
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_jsonable)
    if isinstance(value, dict) and set(value) == {"masked", "detector", "seal"}:
        text = str(value["masked"])
    return Text("".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text))


def moment(at: datetime | None) -> str:
    """A time in UTC, to the second."""
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def assigned(pairs: list[str], types: Mapping[str, FieldType]) -> dict[str, Any]:
    """``name=value`` pairs by the fields' types: numbers, booleans, objects and lists are JSON, all else is text."""
    fields: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidInput("a field is given as name=value")
        fields[name] = _from_json(name, value) if types.get(name) in _FROM_JSON else value
    return fields


def text_of(path: Path) -> str:
    """A file's text. Raises ``InvalidInput`` that names the file."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        raise InvalidInput(f"{path} cannot be read as text") from None


def object_of(path: Path) -> dict[str, Any]:
    """A file's JSON object. Raises ``InvalidInput`` that names the file."""
    try:
        found = json.loads(text_of(path))
    except ValueError:
        raise InvalidInput(f"{path} is not JSON") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{path} does not hold a JSON object")
    return found


def _from_json(name: str, value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        raise InvalidInput(f"{name} is not JSON of its type") from None


def _jsonable(value: object) -> object:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)
