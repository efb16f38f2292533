"""The graph of a route's steps: what is certain at each step on every path, and paths that show where it is not.

A fact is the name of a field that has been set, or ``approved(step)``. The certain facts are a greatest fixed point
over the edges; paths are searched one at a time, never listed.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from perdure.route import (
    ApprovalStep,
    Condition,
    EndStep,
    ModelStep,
    Route,
    Step,
    ToolStep,
    WaitStep,
)
from perdure.toolfile import ToolFile

Facts = frozenset[str]
NOTHING: Facts = frozenset()


@dataclass(frozen=True)
class Edge:
    """One way from a step to the next, and the facts that it makes true.

    Nothing ends a fact: the first entry to an approval step comes without its fact, so its rejected branch never has
    it.
    """

    origin: str
    target: str
    makes: Facts = NOTHING


@dataclass
class Graph:
    """The steps that exist and the edges between them. ``certain`` holds reachable steps alone."""

    start: str
    given: Facts
    edges: dict[str, list[Edge]]
    certain: dict[str, Facts] = field(default_factory=dict)

    def path_without(self, fact: str, step: str) -> tuple[str, ...]:
        """The shortest path from the start on which ``fact`` does not hold at ``step``; empty when there is none."""
        first = (self.start, fact in self.given)
        came: dict[tuple[str, bool], tuple[str, bool] | None] = {first: None}
        waiting = deque([first])
        while waiting:
            at = waiting.popleft()
            if at == (step, False):
                return _walked(came, at)
            for edge in self.edges[at[0]]:
                then = (edge.target, at[1] or fact in edge.makes)
                if then not in came:
                    came[then] = at
                    waiting.append(then)
        return ()

    def path_to(self, step: str) -> tuple[str, ...]:
        """A shortest path from the start."""
        return self.path_without("", step)


def build(route: Route, tools: ToolFile | None) -> Graph:
    """The graph with its certain facts."""
    edges = {
        name: [edge for edge in _edges(route, name, step, tools) if edge.target in route.steps]
        for name, step in route.steps.items()
    }
    given = frozenset(name for name, declared in route.input.items() if declared.required)
    graph = Graph(route.start, given, edges)
    if route.start in route.steps:
        graph.certain = _fixed_point(graph)
    return graph


def approved(step: str) -> str:
    """The fact that this approval step was left by its branch ``approved``."""
    return f"approved({step})"


def writes(route: Route, step: Step, tools: ToolFile | None) -> Facts:
    """Fields that are set whenever a model or tool step has been done."""
    match step:
        case ModelStep():
            return frozenset(step.sets)
        case ToolStep():
            return frozenset(name for name, path in step.sets.items() if _is_sure(tool_of(route, step), path, tools))
        case _:
            return NOTHING


def tool_of(route: Route, step: ToolStep) -> str | None:
    """The tool that the step calls: its own, or the one its approval names."""
    approval = route.steps.get(step.intent) if step.intent is not None else None
    return approval.intent.tool if isinstance(approval, ApprovalStep) else step.tool


def when_true(condition: Condition) -> Facts:
    """Fields that are set if the condition holds: an unset field satisfies nothing but ``is_set: false``."""
    if condition.all is not None:
        return frozenset().union(*map(when_true, condition.all))
    if condition.any is not None:
        return frozenset.intersection(*map(when_true, condition.any))
    return NOTHING if condition.is_set is False or condition.field is None else frozenset({condition.field})


def when_false(condition: Condition) -> Facts:
    """Fields that are set if the condition does not hold."""
    if condition.all is not None:
        return frozenset.intersection(*map(when_false, condition.all))
    if condition.any is not None:
        return frozenset().union(*map(when_false, condition.any))
    return frozenset({condition.field}) if condition.is_set is False and condition.field is not None else NOTHING


def unbounded_cycles(route: Route, graph: Graph) -> Iterator[tuple[str, ...]]:
    """One cycle of each knot of reachable steps none of which has ``max_visits``."""
    free = {name for name in graph.certain if route.steps[name].max_visits is None}
    reach = {name: _reached(graph, name, free) for name in sorted(free)}
    told: set[str] = set()
    for name in sorted(free):
        if name in reach[name] and name not in told:
            told |= {other for other in reach[name] if name in reach[other]}
            yield _cycle(graph, name, free)


def dead_ends(route: Route, graph: Graph) -> list[str]:
    """Reachable steps from which no end can be reached, nearest to the start first."""
    alive = {name for name in graph.certain if isinstance(route.steps[name], EndStep)}
    back: dict[str, list[str]] = {}
    for name in graph.certain:
        for edge in graph.edges[name]:
            back.setdefault(edge.target, []).append(name)
    waiting = deque(alive)
    while waiting:
        new = [name for name in back.get(waiting.popleft(), ()) if name not in alive]
        alive.update(new)
        waiting.extend(new)
    return sorted((name for name in graph.certain if name not in alive), key=lambda name: len(graph.path_to(name)))


def _edges(route: Route, name: str, step: Step, tools: ToolFile | None) -> Iterator[Edge]:
    match step:
        case ApprovalStep():
            yield Edge(name, step.approved, makes=frozenset({approved(name)}))
            yield Edge(name, step.rejected)
        case WaitStep():
            yield Edge(name, step.next, makes=frozenset(step.sets))
            if step.on_timeout is not None:
                yield Edge(name, step.on_timeout)
        case ModelStep() | ToolStep():
            done = writes(route, step, tools)
            for target, learnt in _learnt(step):
                yield Edge(name, target, makes=done | learnt)
        case EndStep():
            return


def _learnt(step: ModelStep | ToolStep) -> Iterator[tuple[str, Facts]]:
    if isinstance(step.next, str):
        yield step.next, NOTHING
        return
    known = NOTHING
    for branch in step.next:
        if branch.when is None:
            yield branch.go, known
        else:
            yield branch.go, known | when_true(branch.when)
            known |= when_false(branch.when)


def _is_sure(tool: str | None, path: str, tools: ToolFile | None) -> bool:
    declared = tools.tools.get(tool) if tools is not None and tool is not None else None
    value = None if declared is None else declared.result.get(path)
    return value is None or value.required


def _fixed_point(graph: Graph) -> dict[str, Facts]:
    certain = {graph.start: graph.given}
    waiting = deque([graph.start])
    while waiting:
        name = waiting.popleft()
        for edge in graph.edges[name]:
            after, before = certain[name] | edge.makes, certain.get(edge.target)
            then = after if before is None else before & after
            if then != before:
                certain[edge.target] = then
                waiting.append(edge.target)
    return certain


def _walked(came: Mapping[tuple[str, bool], tuple[str, bool] | None], at: tuple[str, bool]) -> tuple[str, ...]:
    path = []
    here: tuple[str, bool] | None = at
    while here is not None:
        path.append(here[0])
        here = came[here]
    return tuple(reversed(path))


def _reached(graph: Graph, origin: str, inside: set[str]) -> set[str]:
    found: set[str] = set()
    waiting = [origin]
    while waiting:
        new = {edge.target for edge in graph.edges[waiting.pop()]} & inside - found
        found |= new
        waiting.extend(new)
    return found


def _cycle(graph: Graph, origin: str, inside: set[str]) -> tuple[str, ...]:
    came: dict[str, str] = {}
    waiting = deque([origin])
    while origin not in came:
        name = waiting.popleft()
        for edge in graph.edges[name]:
            if edge.target in inside and edge.target not in came:
                came[edge.target] = name
                waiting.append(edge.target)
    path = [origin, came[origin]]
    while path[-1] != origin:
        path.append(came[path[-1]])
    return tuple(reversed(path))
