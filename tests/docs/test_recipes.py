"""The recipes of CONTRIBUTING.md work: their edits are applied to a copy of the sources, and their commands run there.

All recipes go into one copy, so that they share compiled kernels. A `diff` block names its file in the first line; what
it shows besides `+` lines must be in the file exactly once. A `... file` block is a new file, named by its first line.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
COPIED = ("pyproject.toml", "README.md", "docs", "src", "tests")

_RECIPE = re.compile(r"^### (?P<title>[^\n]+)\n(?P<body>.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```(?P<language>[a-z ]+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_PYTEST = ".venv/bin/python -m "
_PATH = re.compile(r"`((?:src|tests|docs|expressions|aggregates|plan|operators|windows|lang|connect|spark)/[\w./]+\w)`")


@dataclass(frozen=True)
class Recipe:
    title: str
    body: str = field(repr=False)

    def blocks(self, language: str) -> list[str]:
        return [found["body"] for found in _FENCE.finditer(self.body) if found["language"] == language]

    @property
    def edits(self) -> list[str]:
        return self.blocks("diff")

    @property
    def files(self) -> dict[str, str]:
        """The content of new files by their paths."""
        split = [body.split("\n", 1) for body in self.blocks("python file") + self.blocks("text file")]
        return {first.removeprefix("# "): rest for first, rest in split}

    @property
    def commands(self) -> list[list[str]]:
        lines = [line for block in self.blocks("console") for line in block.splitlines()]
        assert all(line.startswith(_PYTEST) for line in lines), f"{self.title}: a command that the test cannot run"
        return [shlex.split(line.removeprefix(_PYTEST)) for line in lines]


RECIPES = [Recipe(found["title"], found["body"]) for found in _RECIPE.finditer(PAGE)]


def apply(edit: str, root: Path) -> Path:
    """Changes the file that an edit names."""
    first, *lines = edit.splitlines()
    path = root / first.removeprefix("--- ")
    before = "\n".join(line[1:] for line in lines if not line.startswith("+"))
    after = "\n".join(line[1:] for line in lines if not line.startswith("-"))
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{path.name} has this {text.count(before)} times:\n{before}"
    path.write_text(text.replace(before, after), encoding="utf-8")
    return path


def run(root: Path, *command: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=root, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A copy of the sources with all recipes applied, and the files that they touch."""
    root = tmp_path_factory.mktemp("recipes")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__", "images"))
        else:
            shutil.copy(source, root / name)
    touched: list[Path] = []
    for recipe in RECIPES:
        for path, text in recipe.files.items():
            assert not (root / path).exists(), f"{recipe.title}: {path} exists already"
            (root / path).write_text(text, encoding="utf-8")
            touched.append(root / path)
        touched += [apply(edit, root) for edit in recipe.edits]
    return root, sorted(set(touched))


def test_there_is_a_recipe_for_each_common_change() -> None:
    assert [recipe.title for recipe in RECIPES] == [
        "Add a scalar function",
        "Add an aggregate",
        "Add a window",
        "Add a connector",
    ]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_its_commands_succeed(recipe: Recipe, changed: tuple[Path, list[Path]]) -> None:
    assert recipe.commands, f"{recipe.title} says nothing to run"
    for command in recipe.commands:
        run(changed[0], *command, "-p", "no:cacheprovider")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_files_that_its_prose_names_exist(recipe: Recipe) -> None:
    for name in _PATH.findall(_FENCE.sub("", recipe.body)):
        assert (ROOT / name).exists() or (ROOT / "src" / "penstock" / name).exists(), f"{recipe.title}: {name}"


def test_their_code_is_in_style(changed: tuple[Path, list[Path]]) -> None:
    root, touched = changed
    files = [str(path) for path in touched if path.suffix == ".py"]
    run(root, "ruff", "check", *files)
    run(root, "ruff", "format", "--check", *files)


@pytest.mark.slow
def test_their_types_fit(changed: tuple[Path, list[Path]]) -> None:
    run(changed[0], "mypy", "--cache-dir", str(changed[0] / ".mypy_cache"))
