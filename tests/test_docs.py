"""What the documents name is there."""

import re
from pathlib import Path

import pytest


def named_tests(project: Path) -> list[str]:
    return re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", (project / "docs" / "coverage.md").read_text())


def test_every_test_that_covers_a_row_exists(project: Path) -> None:
    named = named_tests(project)
    assert len(named) > 50
    missing = []
    for name in named:
        file, _, test = name.partition("::")
        path = project / file
        if not path.exists() or (test and f"def {test}(" not in path.read_text()):
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize("document", ["README.md", *(f"docs/{n}.md" for n in ("architecture", "runbook", "security"))])
def test_every_file_that_a_document_links_to_exists(project: Path, document: str) -> None:
    text = (project / document).read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert [link for link in links if not (project / document).parent.joinpath(link).exists()] == []
