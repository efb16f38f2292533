"""Reads a YAML file (or JSON) without its dangerous parts, and knows the line of everything in it.

No tags, anchors, aliases, merge keys, duplicate keys or floats; a bare word that is neither ``true``, ``false``,
``null`` nor an integer is a string. The reader keeps its own stack, so that depth costs nothing.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Never, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from perdure.problem import Problem, refuse

LARGEST_FILE = 256 * 1024
DEEPEST_FILE = 40

Place = tuple[str | int, ...]
M = TypeVar("M", bound=BaseModel)

_KINDS = ("model", "tool", "approval", "wait", "end", "http", "hosted")
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.?[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|\.(inf|nan))", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class SourceFile:
    """What a file says, and the line of each place in it."""

    file: str
    data: Any
    lines: dict[Place, int]

    def line(self, place: Place) -> int | None:
        """The line of the place, or of the nearest one around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place)


def read(text: str, file: str) -> SourceFile:
    """Raises ``RouteInvalid``."""
    if len(text) > LARGEST_FILE or len(text.encode(errors="replace")) > LARGEST_FILE:
        refuse([Problem(file, f"the file is larger than {LARGEST_FILE // 1024} KB")])
    reader = _Reader(file)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            reader.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        problem = Problem(file, f"not YAML: {error.problem}", line=None if mark is None else mark.line + 1)
        refuse([problem])
    except (yaml.YAMLError, UnicodeEncodeError):
        refuse([Problem(file, "not YAML: it holds characters that are not allowed")])
    if not reader.documents:
        refuse([Problem(file, "the file is empty")])
    return SourceFile(file, reader.documents[0], reader.lines)


def shaped(source: SourceFile, model: type[M]) -> M:
    """The file as ``model``. Raises ``RouteInvalid`` with every unknown key, missing key and wrong value, by line."""
    if not isinstance(source.data, dict):
        refuse([Problem(source.file, "the file must be a mapping", line=1)])
    try:
        return model.model_validate(source.data)
    except ValidationError as error:
        refuse(_problem(source, each) for each in _telling(source, error))
        raise


@dataclass
class _Open:
    """A collection whose end has not been read."""

    value: dict[str, Any] | list[Any]
    place: Place
    key: str | None = None


@dataclass
class _Reader:
    file: str
    documents: list[Any] = field(default_factory=list)
    lines: dict[Place, int] = field(default_factory=dict)
    stack: list[_Open] = field(default_factory=list)

    def take(self, event: yaml.Event) -> None:
        line = 1 if event.start_mark is None else event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            self._refuse("anchors and aliases are not allowed", line)
        if getattr(event, "tag", None):
            self._refuse("tags are not allowed", line)
        match event:
            case yaml.ScalarEvent():
                self._scalar(event, line)
            case yaml.MappingStartEvent():
                self._open({}, line)
            case yaml.SequenceStartEvent():
                self._open([], line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self.stack.pop()
            case yaml.DocumentStartEvent() if self.documents:
                self._refuse("a file holds one document", line)

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        top = self.stack[-1] if self.stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            self._key(top, event.value, line)
        else:
            self._put(self._value(event, line), line)

    def _key(self, top: _Open, key: str, line: int) -> None:
        if key in top.value:
            self._refuse(f"key {_short(key)} stands twice", line)
        top.key = key
        self.lines[(*top.place, key)] = line

    def _value(self, event: yaml.ScalarEvent, line: int) -> Any:
        plain: bool = event.implicit[0]
        if not plain:
            return event.value
        if event.value in _CONSTANTS:
            return _CONSTANTS[event.value]
        if _INTEGER.fullmatch(event.value):
            return int(event.value)
        if _FLOAT.fullmatch(event.value):
            self._refuse('a number must be an integer; put any other in quotes, such as "820.00"', line)
        return event.value

    def _put(self, value: Any, line: int) -> Place:
        if not self.stack:
            self.documents.append(value)
            return ()
        top = self.stack[-1]
        if isinstance(top.value, list):
            place: Place = (*top.place, len(top.value))
            self.lines[place] = line
            top.value.append(value)
            return place
        if top.key is None:
            self._refuse("a key must be a word", line)
        key, top.key = top.key, None
        top.value[key] = value
        return (*top.place, key)

    def _open(self, value: dict[str, Any] | list[Any], line: int) -> None:
        if len(self.stack) >= DEEPEST_FILE:
            self._refuse(f"nested deeper than {DEEPEST_FILE}", line)
        self.stack.append(_Open(value, self._put(value, line)))

    def _refuse(self, message: str, line: int) -> Never:
        refuse([Problem(self.file, message, line=line)])
        raise AssertionError


def _short(key: str) -> str:
    return repr(key if len(key) <= 64 else f"{key[:61]}...")


def _telling(source: SourceFile, error: ValidationError) -> list[ErrorDetails]:
    """Where a value may have one of two shapes, only the complaints about the shape that was meant."""
    details = error.errors(include_url=False, include_input=False)
    places = [_place(source.data, each["loc"]) for each in details]
    kept = []
    for each, place in zip(details, places, strict=True):
        shape = each["type"] in ("string_type", "tuple_type", "model_type", "dict_type")
        others = [other for other in places if other[: len(place)] == place]
        if not (shape and len(others) > 1 and _is_other_shape(each["type"], _at(source.data, place))):
            kept.append(each)
    return kept


def _is_other_shape(complaint: str, value: Any) -> bool:
    return isinstance(value, dict | list) if complaint == "string_type" else isinstance(value, str)


def _place(data: Any, loc: tuple[int | str, ...]) -> Place:
    """The part of pydantic's location that is in the file: without names of unions and kinds."""
    place: list[str | int] = []
    if loc[:1] in (("steps",), ("tools",)):  # the third part is the kind, which may be named like a key
        loc = (*loc[:2], *loc[3:]) if len(loc) > 2 and loc[2] in _KINDS else loc
    for part in loc:
        inside = part in data if isinstance(data, dict) else isinstance(data, list) and isinstance(part, int)
        if inside:
            data = data[part]
            place.append(part)
    return tuple(place)


def _at(data: Any, place: Place) -> Any:
    for part in place:
        data = data[part]
    return data


def _problem(source: SourceFile, each: ErrorDetails) -> Problem:
    place = _place(source.data, each["loc"])
    key = str(each["loc"][-1]) if each["loc"] else ""
    step = str(place[1]) if len(place) > 1 and place[0] == "steps" else None
    inner = place[2:] if step is not None else place
    field = ".".join(map(str, inner)) or None
    return Problem(source.file, _words(each, key), step=step, field=field, line=source.line(place))


def _words(each: ErrorDetails, key: str) -> str:
    match each["type"]:
        case "extra_forbidden":
            return f"unknown key {_short(key)}"
        case "missing":
            return f"key {_short(key)} is missing"
        case "union_tag_not_found":
            return "key 'kind' is missing"
        case _:
            return each["msg"].removeprefix("Value error, ")
