"""The check of a route before it is installed: its shape, its steps, and what every path to a step has written."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from perdure.errors import RouteInvalid
from perdure.problem import Problem, in_order, refuse
from perdure.route import (
    ApprovalStep,
    Branch,
    ModelStep,
    Route,
    Step,
    ToolStep,
)
from perdure.routeconditions import compared_unset
from perdure.routefile import parse_tools
from perdure.routegraph import NOTHING, Facts, Graph, approved, build, dead_ends, unbounded_cycles, when_false, writes
from perdure.routerules import Rules, rests_on
from perdure.sourcefile import LARGEST_FILE, read, shaped
from perdure.toolfile import ToolFile


def check(route: Route, tools: ToolFile | None, file: str) -> list[Problem]:
    """All problems, in order. Without a tools file, what needs it is not looked at."""
    graph = build(route, tools)
    found = [*Rules(route, tools, file).problems()]
    if route.start in route.steps:
        found += [*_graph_problems(route, graph, file), *_reading_problems(route, graph, tools, file)]
    return in_order(found)


def checked(text: str, tools: ToolFile | None, file: str) -> Route:
    """The route in ``text``. Raises ``RouteInvalid`` with all problems."""
    source = read(text, file)
    route = shaped(source, Route)
    refuse(replace(one, line=source.line(_place(route, one))) for one in check(route, tools, file))
    return route


def check_file(path: Path, tools_path: Path | None = None) -> Route:
    """The route in a file, checked against a tools file. Raises ``RouteInvalid`` with all problems."""
    tools = None if tools_path is None else parse_tools(_text(tools_path), tools_path.name)
    return checked(_text(path), tools, path.name)


def _text(path: Path) -> str:
    """No more of the file than tells that it is too large."""
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_FILE + 1).decode()
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        message = "is not UTF-8 text, or is larger than 256 KB"
    problem = Problem(path.name, message)
    raise RouteInvalid(str(problem), problems=[problem.as_dict()])


def _place(route: Route, problem: Problem) -> tuple[str | int, ...]:
    if problem.step is not None:
        return ("steps", problem.step)
    if problem.field is None:
        return ()
    homes = (("state", route.state), ("input", route.input))
    return next(((home, problem.field) for home, fields in homes if problem.field in fields), (problem.field,))


def _graph_problems(route: Route, graph: Graph, file: str) -> Iterator[Problem]:
    for name in route.steps.keys() - graph.certain.keys():
        yield Problem(file, "no path from start leads here", step=name)
    for cycle in unbounded_cycles(route, graph):
        message = "is part of a loop without a bound: give max_visits to one of its steps"
        yield Problem(file, message, step=cycle[0], path=cycle)
    stuck = dead_ends(route, graph)
    if route.start in stuck:
        yield Problem(file, "no end step can be reached from the start", step=route.start)
    else:
        for name in stuck:
            yield Problem(file, "no end step can be reached from here", step=name, path=graph.path_to(name))


def _reading_problems(route: Route, graph: Graph, tools: ToolFile | None, file: str) -> Iterator[Problem]:
    known = route.input.keys() | route.state.keys()
    for name, certain in graph.certain.items():
        step = route.steps[name]
        for field in _reads(step):
            if field in known and field not in certain:
                path = graph.path_without(field, name)
                yield Problem(file, "is read here, and on this path nothing has set it", name, field, path)
        if isinstance(step, ToolStep) and isinstance(route.steps.get(step.intent or ""), ApprovalStep):
            fact = approved(step.intent or "")
            if fact not in certain:
                message = f"acts on the intent of {step.intent}, and on this path it was not approved"
                yield Problem(file, message, name, None, graph.path_without(fact, name))
        optional = frozenset(field for field, declared in route.input.items() if not declared.required)
        for field in _compared(step, certain | writes(route, step, tools) | optional):
            if field in known:
                message = "is compared here, and on this path nothing has set it; ask is_set first"
                yield Problem(file, message, name, field, graph.path_without(field, name))


def _reads(step: Step) -> tuple[str, ...]:
    match step:
        case ModelStep():
            return step.reads
        case ToolStep():
            return tuple(source for source in step.arguments.values() if isinstance(source, str))
        case ApprovalStep():
            return rests_on(step)
        case _:
            return ()


def _compared(step: Step, certain: Facts) -> Iterator[str]:
    if not isinstance(step, ModelStep | ToolStep) or isinstance(step.next, str):
        return
    branches: tuple[Branch, ...] = step.next
    learnt = NOTHING
    for branch in branches:
        if branch.when is not None:
            yield from compared_unset(branch.when, certain | learnt)
            learnt |= when_false(branch.when)
