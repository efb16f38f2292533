"""The tools file: what tools there are and how to reach them. ``docs/tools.md`` explains each key."""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from perdure.route import Duration, FieldType, Name, Shape, ToolName


class Parameter(Shape):
    """One parameter of a tool, or one value of its result (``required: false`` may be absent)."""

    type: FieldType
    required: bool = True


class HttpRequest(Shape):
    """One HTTP request. ``url`` begins with one of ``servers`` in braces and may hold ``{parameter}`` or ``{key}``."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    url: Annotated[str, StringConstraints(max_length=2000)]


class _Tool(Shape):
    effect: bool = False
    parameters: dict[Name, Parameter] = Field(default_factory=dict)
    result: dict[str, Parameter] = Field(default_factory=dict)
    """Dotted path in the answer -> type; a route's ``sets`` may use these paths alone."""
    timeout: Duration = timedelta(seconds=10)


class HttpTool(_Tool):
    """A tool behind HTTP. Path parameters go into the URL; the rest into the query (GET, DELETE) or a JSON body.

    ``not_executed``: statuses that promise nothing was done; ``retry``: the same, and a later try may pass; any other
    status outside 2xx and any lost answer is ambiguous. ``headers`` values ``{secret: name}`` come from settings.
    """

    kind: Literal["http"]
    request: HttpRequest
    idempotency_header: str = "Idempotency-Key"
    lookup: HttpRequest | None = None
    """Asked with ``{key}``: 2xx with the result when the effect happened, 404 when it did not."""
    not_executed: tuple[int, ...] = (400, 401, 403, 404, 409, 422)
    retry: tuple[int, ...] = (429, 503)
    headers: dict[str, str | dict[Literal["secret"], str]] = Field(default_factory=dict)


class HostedTool(_Tool):
    """A tool that an app hosts in its own worker (``perdure.tools``)."""

    kind: Literal["hosted"]
    task_queue: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    lookup: bool = False


Tool = Annotated[HttpTool | HostedTool, Field(discriminator="kind")]


class ToolFile(Shape):
    """All tools of an installation. ``servers``: name -> base URL, without a slash at the end."""

    servers: dict[Name, str] = Field(default_factory=dict)
    tools: dict[ToolName, Tool] = Field(default_factory=dict)
