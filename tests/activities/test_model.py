"""The scripted model: it answers what the script says, and says that it is a script."""

from pathlib import Path

import pytest

from activities.model import ScriptedModel
from perdure.calls import ModelRequest
from perdure.errors import InvalidInput, ModelUnavailable


def request(step: str = "classify", **reads: object) -> ModelRequest:
    return ModelRequest(
        tenant="demo", run_id="r1", route="refund", step=step, prompt="?", reads=reads, sets={"kind": "string"}
    )


async def test_the_first_answer_that_fits_is_given(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(
        "- {route: refund, step: classify, when: {topic: b}, fields: {kind: second}}\n"
        "- {route: refund, step: classify, fields: {kind: first}}\n"
    )
    model = ScriptedModel.read(script)
    assert (await model.answer(request(topic="b"))).fields == {"kind": "second"}
    answer = await model.answer(request(topic="a"))
    assert (answer.fields, answer.model) == ({"kind": "first"}, "scripted")
    with pytest.raises(ModelUnavailable):
        await model.answer(request("explain"))


@pytest.mark.parametrize(
    "text", ["just text", "- {route: refund}", "- [", "{a: 1}", "- {route: r, step: s, fields: 1}"]
)
def test_a_script_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(text)
    with pytest.raises(InvalidInput, match=r"script\.yaml"):
        ScriptedModel.read(script)
