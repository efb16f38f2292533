"""Model steps: who answers them. For now a script answers, and says so."""

from pathlib import Path
from typing import Any, Protocol

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from temporalio import activity

from perdure import names
from perdure.calls import ModelAnswer, ModelRequest
from perdure.errors import InvalidInput, ModelUnavailable


class Model(Protocol):
    """Answers with typed values. Raises ``ModelUnavailable`` when a later try may pass."""

    async def answer(self, request: ModelRequest) -> ModelAnswer: ...


class ScriptedAnswer(BaseModel):
    """The answer to one step of one route, given when every value in ``when`` is what the model was shown."""

    model_config = ConfigDict(extra="forbid")

    route: str
    step: str
    when: dict[str, Any] = {}
    fields: dict[str, Any]


class ScriptedModel:
    """Canned answers: the first that fits is given. Its ``model`` is ``scripted``, so nobody takes it for one."""

    def __init__(self, answers: list[ScriptedAnswer]) -> None:
        self._answers = answers

    @staticmethod
    def read(path: Path) -> "ScriptedModel":
        """Read a YAML or JSON list of answers. Raises ``InvalidInput``."""
        try:
            raw = yaml.safe_load(path.read_text())
            return ScriptedModel([ScriptedAnswer.model_validate(answer) for answer in raw])
        except (OSError, yaml.YAMLError, ValidationError, TypeError):
            raise InvalidInput(f"the model's script {path.name} is no list of answers") from None

    async def answer(self, request: ModelRequest) -> ModelAnswer:
        """Raises ``ModelUnavailable`` when the script has no answer, as a model that is not there would."""
        for answer in self._answers:
            if (answer.route, answer.step) == (request.route, request.step) and _fits(answer.when, request.reads):
                return ModelAnswer(fields=answer.fields, model="scripted")
        raise ModelUnavailable(f"the script has no answer for step {request.step} of route {request.route}")


def _fits(when: dict[str, Any], reads: dict[str, Any]) -> bool:
    return all(reads.get(field) == value for field, value in when.items())


class ModelActivities:
    """The activity of a model step."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @activity.defn(name=names.ACTIVITY_ASK_MODEL)
    async def ask_model(self, request: ModelRequest) -> ModelAnswer:
        """Ask; what the answer may set is the reducer's to say."""
        return await self._model.answer(request)
