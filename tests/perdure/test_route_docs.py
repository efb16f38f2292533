"""The examples in the documentation pass the check."""

import re
from pathlib import Path

from perdure.routecheck import check_file, checked
from perdure.routefile import parse_tools


def _example(page: str) -> str:
    blocks: list[str] = re.findall(r"```yaml\n(.*?)```", Path("docs", page).read_text(), re.DOTALL)
    return max(blocks, key=len)


def test_the_documented_route_passes_with_the_documented_tools(tmp_path: Path) -> None:
    (tmp_path / "route.yaml").write_text(_example("routes.md"))
    (tmp_path / "tools.yaml").write_text(_example("tools.md"))
    assert check_file(tmp_path / "route.yaml", tmp_path / "tools.yaml").route == "refund"


def test_the_documented_route_is_the_one_that_the_demo_runs() -> None:
    shown, run = _example("routes.md"), Path("examples/refund/route.yaml").read_text()
    assert checked(shown, None, "docs") == checked(run, None, "example")
    tools = Path("examples/refund/tools.yaml").read_text()
    assert parse_tools(_example("tools.md"), "docs") == parse_tools(tools, "example")
