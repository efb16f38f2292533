"""One thing that is wrong with a file: where, and in words that say what to change."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from perdure.errors import RouteInvalid


@dataclass(frozen=True)
class Problem:
    """``path``: the steps of one concrete way through the route that shows the problem. ``line`` counts from 1."""

    file: str
    message: str
    step: str | None = None
    field: str | None = None
    path: tuple[str, ...] | None = None
    line: int | None = None

    def as_dict(self) -> dict[str, object]:
        """As a member of a problem document."""
        return {**asdict(self), "path": None if self.path is None else list(self.path)}

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        where = [f"{kind} {name}" for kind, name in (("step", self.step), ("field", self.field)) if name is not None]
        way = "" if self.path is None else f" (path: {' > '.join(self.path)})"
        return f"{place}: {''.join(f'{part}: ' for part in where)}{self.message}{way}"


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Each once, by place."""
    return sorted(
        set(problems), key=lambda one: (one.file, one.line or 0, one.step or "", one.field or "", one.message)
    )


def refuse(problems: Iterable[Problem]) -> None:
    """Raise ``RouteInvalid`` with all problems, if there are any."""
    found = in_order(problems)
    if found:
        more = "" if len(found) == 1 else f" (and {len(found) - 1} more)"
        raise RouteInvalid(f"{found[0]}{more}", problems=[one.as_dict() for one in found])
