"""Every example in README.md and docs/ runs.

A ```python block runs after those before it in the same file, in an empty directory. With prompts (`>>>`) it is a
doctest; otherwise, where a ```text block follows at once, that is what it prints. A ```python spark block needs a
Spark session, `spark`. A ```sql block is parsed; declarations of earlier blocks of the file stay in force.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.lang import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]

_FENCE = re.compile(r"^```(?P<language>[a-z ]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_DECLARATION = re.compile(r"^\s*CREATE\s+(?:STREAM|SINK|TABLE|FUNCTION)\s+(\w+)", re.IGNORECASE)
_NAME = re.compile(r"`(penstock(?:_bench)?(?:\.\w+)+)")
_NOT_PYTHON = {"penstock.adapters", "penstock.commands", "penstock.events", "penstock.results"}
"""Names in the documents that are no Python names: entry points, and the beginnings of Kafka topics."""
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


@dataclass(frozen=True)
class Block:
    language: str
    body: str
    line: int
    printed: str | None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = list(_FENCE.finditer(text))
    result = []
    for index, match in enumerate(found):
        following = found[index + 1] if index + 1 < len(found) else None
        printed = None
        if following and following["language"] == "text" and not text[match.end() : following.start()].strip():
            printed = following["body"]
        line = text.count("\n", 0, match.start()) + 2
        result.append(Block(match["language"].strip(), match["body"], line, printed))
    return result


def run(page: Path, languages: set[str], names: dict[str, Any]) -> None:
    for block in blocks(page):
        if block.language not in languages:
            continue
        if ">>>" in block.body:
            run_session(page, block, names)
            continue
        out = io.StringIO()
        # The blank lines make the lines of a traceback those of the page.
        code = compile("\n" * (block.line - 1) + block.body, str(page), "exec")
        with contextlib.redirect_stdout(out):
            exec(code, names)
        if block.printed is not None:
            assert out.getvalue() == block.printed, f"{page.name}:{block.line} prints something else"


def run_session(page: Path, block: Block, names: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.body, names, page.name, str(page), block.line - 1)
    report = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=report.write, clear_globs=False)
    assert runner.failures == 0, report.getvalue()
    names.update(test.globs)


def having(language: str) -> list[Path]:
    return [page for page in PAGES if any(block.language == language for block in blocks(page))]


@pytest.mark.parametrize("page", having("python"), ids=lambda page: page.name)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, {"python"}, {"__name__": "example"})


@pytest.mark.parametrize("page", having("python spark"), ids=lambda page: page.name)
def test_python_runs_on_spark(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, {"python spark"}, {"__name__": "example", "spark": spark})


def statements(text: str) -> Iterator[str]:
    """The statements of a block whose strings and comments hold no semicolon."""
    yield from (part for part in text.split(";") if part.strip())


@pytest.mark.parametrize("page", having("sql"), ids=lambda page: page.name)
def test_sql_parses(page: Path) -> None:
    declared: dict[str, str] = {}
    for block in blocks(page):
        if block.language != "sql":
            continue
        own = {}
        for statement in statements(re.sub(r"--.*", "", block.body)):
            if match := _DECLARATION.match(statement):
                own[match[1].lower()] = statement
        before = [text for name, text in declared.items() if name not in own]
        parse(";\n".join([*before, block.body]))
        declared |= own


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_exist(page: Path) -> None:
    for name in set(_NAME.findall(page.read_text(encoding="utf-8"))) - _NOT_PYTHON:
        pkgutil.resolve_name(name)
