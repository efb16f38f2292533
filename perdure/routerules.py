"""What must hold of each field and each step of a route by itself, whatever the paths."""

from collections.abc import Iterator

from perdure.problem import Problem
from perdure.route import (
    RESERVED_OUTCOMES,
    ApprovalStep,
    Argument,
    Arguments,
    EndStep,
    FieldType,
    InputField,
    ModelStep,
    Next,
    Route,
    Setter,
    StateField,
    Step,
    ToolStep,
    WaitStep,
    step_targets,
)
from perdure.routeconditions import condition_problems
from perdure.routegraph import tool_of
from perdure.toolfile import Tool, ToolFile
from perdure.values import fault

_TEXTS = (FieldType.IDENTIFIER, FieldType.STRING, FieldType.TEXT)
_FITS = {
    FieldType.STRING: {FieldType.IDENTIFIER, FieldType.DECIMAL, FieldType.DATE, FieldType.DATETIME},
    FieldType.TEXT: {FieldType.IDENTIFIER, FieldType.STRING, FieldType.DECIMAL, FieldType.DATE, FieldType.DATETIME},
}


class Rules:
    """The rules for one route in one file; every method yields problems."""

    def __init__(self, route: Route, tools: ToolFile | None, file: str) -> None:
        self._route = route
        self._tools = tools
        self._file = file
        self._fields: dict[str, InputField | StateField] = {**route.state, **route.input}

    def problems(self) -> Iterator[Problem]:
        yield from self._declarations()
        yield from self._subject()
        yield from self._compliance()
        if self._route.start not in self._route.steps:
            yield self._problem("start names an unknown step", field="start")
        for name, step in self._route.steps.items():
            for target in sorted(set(step_targets(step)) - self._route.steps.keys()):
                yield self._problem(f"goes to the unknown step {target}", name)
            yield from self._step(name, step)

    def _problem(self, message: str, step: str | None = None, field: str | None = None) -> Problem:
        return Problem(self._file, message, step=step, field=field)

    # ------------------------------------------------------------ fields

    def _declarations(self) -> Iterator[Problem]:
        for name in sorted(self._route.input.keys() & self._route.state.keys()):
            yield self._problem("is declared in input and in state; a field has one home", field=name)
        declarations: list[tuple[str, InputField | StateField]] = [
            *self._route.input.items(),
            *self._route.state.items(),
        ]
        for name, declared in declarations:
            if declared.personal and declared.type not in (FieldType.TEXT, FieldType.STRING):
                yield self._problem("is personal, so its type must be text or string", field=name)
            yield from self._choices(name, declared)

    def _choices(self, name: str, declared: InputField | StateField) -> Iterator[Problem]:
        if declared.choices is None:
            return
        if declared.personal or declared.type not in _TEXTS:
            yield self._problem("choices are for identifier, string and text fields that are not personal", field=name)
        elif not declared.choices or any(fault(declared.type, choice) for choice in declared.choices):
            yield self._problem("choices must be at least one, each of the field's type", field=name)

    def _subject(self) -> Iterator[Problem]:
        subject = self._route.subject
        if subject is None:
            return
        declared = self._route.input.get(subject.id)
        if declared is None:
            yield self._problem("the subject's id must be an input field", field=subject.id)
        elif declared.personal or not declared.required or declared.type is not FieldType.IDENTIFIER:
            yield self._problem("the subject's id must be a required identifier that is not personal", field=subject.id)

    def _compliance(self) -> Iterator[Problem]:
        for name, data_class in self._route.compliance.data_classes.items():
            declared = self._fields.get(name)
            if declared is None:
                yield self._problem("compliance names an unknown field", field=name)
            elif declared.personal and data_class != "personal":
                yield self._problem(f"is personal and cannot be classed {data_class}", field=name)

    # ------------------------------------------------------------ steps

    def _step(self, name: str, step: Step) -> Iterator[Problem]:
        match step:
            case ModelStep():
                yield from self._known(name, step.reads)
                yield from self._sets(name, step.sets, (Setter.MODEL,))
                yield from self._branches(name, step.next)
            case ToolStep():
                yield from self._tool_step(name, step)
                yield from self._branches(name, step.next)
            case ApprovalStep():
                yield from self._approval(name, step)
            case WaitStep():
                yield from self._sets(name, step.sets, (Setter.USER, Setter.TOOL))
            case EndStep():
                if step.outcome in RESERVED_OUTCOMES:
                    yield self._problem(
                        f"the outcome {step.outcome} means that a run did not come to an end step; choose another", name
                    )

    def _known(self, step: str, names: tuple[str, ...]) -> Iterator[Problem]:
        for field in sorted(set(names) - self._fields.keys()):
            yield self._problem("is not declared in input or state", step, field)

    def _sets(self, step: str, names: tuple[str, ...], setters: tuple[Setter, ...]) -> Iterator[Problem]:
        who = " or ".join(setters)
        for field in names:
            declared = self._route.state.get(field)
            if declared is None:
                kind = "input, which is set once, at the start" if field in self._route.input else "not declared"
                yield self._problem(f"cannot be set here: it is {kind}", step, field)
            elif not set(setters) & set(declared.set_by):
                yield self._problem(f"cannot be set here: set_by does not have {who}", step, field)

    def _branches(self, step: str, following: Next) -> Iterator[Problem]:
        if isinstance(following, str):
            return
        if following[-1].when is not None:
            yield self._problem("the last branch has a condition; the last one is for all other cases", step)
        if any(branch.when is None for branch in following[:-1]):
            yield self._problem("a branch without a condition hides the ones after it", step)
        for branch in following:
            if branch.when is not None:
                for field, message in condition_problems(branch.when, self._fields):
                    yield self._problem(message, step, field)

    # ------------------------------------------------------------ tools

    def _tool_step(self, name: str, step: ToolStep) -> Iterator[Problem]:
        yield from self._sets(name, tuple(step.sets), (Setter.TOOL,))
        if step.intent is None and step.tool is None:
            yield self._problem("needs a tool or an intent", name)
        elif step.intent is None:
            yield from self._call(name, step.tool or "", step.arguments, effect=False)
        elif not isinstance(self._route.steps.get(step.intent), ApprovalStep):
            yield self._problem(f"intent names {step.intent}, which is no approval step", name)
        elif step.tool is not None or step.arguments:
            yield self._problem("tool and arguments come from the approved intent; leave them out here", name)
        tool = self._tool(tool_of(self._route, step))
        if tool is not None:
            yield from self._results(name, step, tool)

    def _results(self, name: str, step: ToolStep, tool: Tool) -> Iterator[Problem]:
        for field, path in step.sets.items():
            declared, value = self._route.state.get(field), tool.result.get(path)
            if value is None:
                yield self._problem(f"the tool's result has no {path}", name, field)
            elif declared is not None and not fits(value.type, declared.type):
                yield self._problem(f"is {declared.type}, but {path} of the result is {value.type}", name, field)

    def _tool(self, name: str | None) -> Tool | None:
        return None if self._tools is None or name is None else self._tools.tools.get(name)

    def _call(self, step: str, name: str, arguments: Arguments, *, effect: bool) -> Iterator[Problem]:
        yield from self._known(step, tuple(source for source in arguments.values() if isinstance(source, str)))
        if self._tools is None:
            return
        tool = self._tools.tools.get(name)
        if tool is None:
            yield self._problem(f"tool {name} is not in the tools file", step)
            return
        if tool.effect and not effect:
            yield self._problem(f"tool {name} acts on the world: it needs an approved intent", step)
        if effect and not tool.effect:
            yield self._problem(f"tool {name} only reads: an intent needs a tool with effect: true", step)
        yield from self._arguments(step, name, tool, arguments)

    def _arguments(self, step: str, name: str, tool: Tool, arguments: Arguments) -> Iterator[Problem]:
        for extra in sorted(arguments.keys() - tool.parameters.keys()):
            yield self._problem(f"tool {name} has no parameter {extra}", step)
        for parameter, wanted in tool.parameters.items():
            source = arguments.get(parameter)
            if source is None:
                if wanted.required:
                    yield self._problem(f"parameter {parameter} of tool {name} is missing", step)
            elif isinstance(source, Argument):
                wrong = fault(wanted.type, source.value)
                if wrong is not None:
                    yield self._problem(f"the value of parameter {parameter} of tool {name} {wrong}", step)
            elif source in self._fields and not fits(self._fields[source].type, wanted.type):
                is_type = self._fields[source].type
                yield self._problem(f"is {is_type}, but parameter {parameter} of {name} is {wanted.type}", step, source)

    # ------------------------------------------------------------ approvals

    def _approval(self, name: str, step: ApprovalStep) -> Iterator[Problem]:
        intent = step.intent
        if not step.approvers:
            yield self._problem("has no approvers: nobody could decide", name)
        if step.warn_before is not None and step.warn_before >= step.expires_after:
            yield self._problem("warn_before must be shorter than expires_after", name)
        yield from self._call(name, intent.tool, intent.arguments, effect=True)
        if step.comment is not None:
            yield from self._sets(name, (step.comment,), (Setter.APPROVAL,))
            yield from self._comment(name, step.comment)
        yield from self._limits(name, step)
        for field in rests_on(step):
            declared = self._fields.get(field)
            if declared is None:
                yield self._problem("is not declared in input or state", name, field)
            elif isinstance(declared, StateField) and Setter.MODEL in declared.set_by:
                message = "what a decision rests on needs evidence, and set_by lets a model set it"
                yield self._problem(message, name, field)

    def _comment(self, step: str, field: str) -> Iterator[Problem]:
        declared = self._route.state.get(field)
        if declared is not None and not declared.personal:
            yield self._problem("takes the reviewer's words, so it must be personal", step, field)

    def _limits(self, step: str, approval: ApprovalStep) -> Iterator[Problem]:
        intent = approval.intent
        expected = (
            ("object", intent.object.id, (FieldType.IDENTIFIER,)),
            ("amount", intent.amount, (FieldType.DECIMAL, FieldType.INTEGER)),
            ("currency", intent.currency, (FieldType.STRING, FieldType.IDENTIFIER)),
        )
        for role, field, types in expected:
            declared = self._fields.get(field) if field is not None else None
            if declared is not None and (declared.type not in types or declared.personal):
                yield self._problem(f"is the {role}: it must be {' or '.join(types)}, not personal", step, field)
        if intent.currency is not None and intent.amount is None:
            yield self._problem("a currency needs an amount", step, intent.currency)


def rests_on(step: ApprovalStep) -> tuple[str, ...]:
    """Every field that a decision rests on: object, arguments, amount, currency and evidence, each once."""
    intent = step.intent
    named = [source for source in intent.arguments.values() if isinstance(source, str)]
    limits = [field for field in (intent.amount, intent.currency) if field is not None]
    return tuple(dict.fromkeys([intent.object.id, *named, *limits, *step.evidence]))


def fits(given: FieldType, wanted: FieldType) -> bool:
    """Whether every value of one type is a value of the other."""
    return given is wanted or given in _FITS.get(wanted, ())
