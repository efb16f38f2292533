"""Parses a route or a tools file: text in, the shape out, or every problem of its shape."""

import re
from collections.abc import Iterator

from perdure.problem import Problem, refuse
from perdure.route import Route
from perdure.sourcefile import SourceFile, read, shaped
from perdure.toolfile import HostedTool, HttpRequest, HttpTool, ToolFile

_HOLE = re.compile(r"\{([^{}]*)\}")
_SERVER = re.compile(r"\{([a-z][a-z0-9_]*)\}(/|$)")


def parse(text: str, file: str) -> Route:
    """The route as it is written; whether its steps fit together is for ``routecheck`` to say. Raises
    ``RouteInvalid``."""
    return shaped(read(text, file), Route)


def parse_tools(text: str, file: str) -> ToolFile:
    """The tools file. Raises ``RouteInvalid``, also for an address that names no server or no parameter."""
    source = read(text, file)
    tools = shaped(source, ToolFile)
    refuse(_tool_problems(tools, source))
    return tools


def _tool_problems(tools: ToolFile, source: SourceFile) -> Iterator[Problem]:
    for name, tool in tools.tools.items():
        line = source.line(("tools", name))
        if isinstance(tool, HostedTool):
            complaints = ["lookup is for an effect"] if tool.lookup and not tool.effect else []
        else:
            complaints = list(_http_complaints(tool, tools))
        for complaint in complaints:
            yield Problem(source.file, f"tool {name}: {complaint}", field=f"tools.{name}", line=line)


def _http_complaints(tool: HttpTool, tools: ToolFile) -> Iterator[str]:
    yield from _address_complaints("request", tool.request, tool, tools)
    if tool.lookup is None:
        return
    yield from _address_complaints("lookup", tool.lookup, tool, tools)
    if not tool.effect:
        yield "lookup is for an effect"
    if "{key}" not in tool.lookup.url:
        yield "the url of lookup must hold {key}"


def _address_complaints(where: str, request: HttpRequest, tool: HttpTool, tools: ToolFile) -> Iterator[str]:
    server = _SERVER.match(request.url)
    if server is None or server[1] not in tools.servers:
        yield f"the url of {where} must begin with one of servers in braces"
    for hole in _HOLE.findall(request.url)[1:]:
        if hole != "key" and hole not in tool.parameters:
            yield f"the url of {where} holds {{{hole[:64]}}}, which is no parameter"
