"""Every decision is in the index, names modules that exist, and is named by each of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "decisions"
RECORDS = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")

_EXPLAINS = re.compile(r"^Explains: (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)]+)\)")
_WHY = re.compile(r"^Why: docs/decisions/(\S+)$", re.MULTILINE)
MOST_LINES = 20


def modules(record: Path) -> list[Path]:
    """The files that a record explains."""
    found = _EXPLAINS.search(record.read_text(encoding="utf-8"))
    assert found is not None, f"{record.name} has no line 'Explains: ...'"
    return [(record.parent / target).resolve() for target in _LINK.findall(found[1])]


def reasons(module: Path) -> list[str]:
    """The records that a module's docstring names."""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return _WHY.findall(docstring)


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_a_record_is_short_and_says_what_and_why(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert text.startswith("# ")
    for part in ("**Decision.**", "**Why.**", "**Price and alternatives.**"):
        assert part in text, f"{record.name} has no part {part}"
    assert len(text.splitlines()) <= MOST_LINES


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_its_modules_exist_and_link_back(record: Path) -> None:
    named = modules(record)
    assert named, f"{record.name} explains no module"
    for module in named:
        assert module.is_file(), f"{record.name} explains {module}, which does not exist"
        assert record.name in reasons(module), f"the docstring of {module} does not name {record.name}"


def test_the_index_lists_every_record_once() -> None:
    listed = _LINK.findall((FOLDER / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == [record.name for record in RECORDS]


def test_every_reason_in_a_docstring_is_a_record_that_explains_the_module() -> None:
    for module in sorted((ROOT / "src").rglob("*.py")):
        if "Why: docs/decisions/" not in module.read_text(encoding="utf-8"):
            continue
        for name in reasons(module):
            assert module in modules(FOLDER / name), f"{name} does not explain {module}"
