"""A component whose snapshot has another shape has another version, and all that looks at one reads its version."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import components
from penstock.components import Component, Saved
from penstock.engine.checkpoint import APP
from penstock.engine.inspect import inspect_app
from penstock.spark import processor
from penstock.spark.directory import DIRECTORY
from penstock.spark.live import LiveObjects

from .programs import PROGRAMS, Program
from .runs import (
    differences,
    resumed,
    resumed_in_buckets,
    uninterrupted,
    uninterrupted_in_buckets,
    written,
    written_in_buckets,
)
from .shapes import recorded, shapes_of_today

pytestmark = pytest.mark.filterwarnings("ignore:three")

HAND_ON = {
    "AggregationOutput": "the snapshot of what it shows",
    "ArgumentColumns": "one of each column of texts",
    "Dispatcher": "that of its buffers",
    "Firings": "numbers by the names of rules",
    "Inputs": "a part of that of the app",
    "JoinOutput": "that of its view",
    "OverJoin": "that of what is over the join",
    "Pipeline": "one of each part",
    "RateSizedWindow": "that of its sizer",
    "SegmentStores": "one of each store",
    "SideWindow": "nothing",
    "SpilledRun": "a part of that of its store",
    "TableTexts": "one of each column of texts",
    "TextTable": "a part of that of the interner",
    "StoreManager": "one of each store",
    "Union": "that of its ports",
    "WindowTexts": "that of its pairs",
    "_Operated": "that of its operator",
    "_Shared": "that of its output",
    "Output": "nothing",
}
"""Classes with `snapshot` that are no components, and what it returns."""

ELSEWHERE = {
    "MemoryDevice": "no checkpoint has its blocks in memory",
    "PaneShard": "in the blocks of shards",
    "ShardReading": "in the blocks of shards",
    "WriteBehind": "needs a database",
}
"""Components that no program here has."""


def classes_with_snapshots() -> dict[str, ast.ClassDef]:
    """Those that are neither abstract nor protocols."""
    found = {}
    for file in Path(penstock.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                own = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "snapshot"]
                abstract = any("abstract" in ast.unparse(d) for part in own for d in part.decorator_list)
                if own and not abstract and "Protocol" not in map(ast.unparse, node.bases):
                    found[node.name] = node
    return found


def test_every_class_with_a_snapshot_is_a_component_or_hands_on_others() -> None:
    classes = classes_with_snapshots()
    declared = {
        name
        for name, node in classes.items()
        if any(ast.unparse(decorator).startswith("component(") for decorator in node.decorator_list)
    }
    assert classes.keys() - declared == HAND_ON.keys()


def test_another_shape_has_another_version(tmp_path: Path) -> None:
    """If this fails, raise the version of the component and write the reader that makes it from the version before.
    `python -m golden.shapes` records the new version."""
    on_record, today = recorded(), shapes_of_today(tmp_path)
    told = []
    for component, versions in today.items():
        for version, shape in versions.items():
            before = on_record.get(component, {}).get(version)
            if before is None:
                told.append(f"{component} version {version} is not on record: run python -m golden.shapes")
            elif before != shape:
                paths = sorted(p for p in before.keys() | shape.keys() if before.get(p) != shape.get(p))
                told.append(f"{component} version {version} was different at {', '.join(paths)}: raise its version")
    assert not told, "\n".join(told)
    assert {name for name in components._declared if name[0].isupper()} - today.keys() == ELSEWHERE.keys()


class Raised(Component):
    """A component whose version 2 has another shape: all of version 1 is under one key. The class is as it was."""

    def saved(self, content: dict[str, Any]) -> Saved:
        return Saved({"version 1": content}, self.name, 2)

    def read(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(snapshot, Saved):
            return snapshot
        assert snapshot.component in ("", self.name)
        version_2 = {"version 1": snapshot} if snapshot.version == 1 else snapshot
        content: dict[str, Any] = version_2["version 1"]
        return content


@pytest.fixture
def raised() -> Iterator[None]:
    """Every component has version 2."""
    every = (*components._declared.values(), APP, processor.BUCKET, DIRECTORY)
    for component in every:
        object.__setattr__(component, "__class__", Raised)
    yield
    for component in every:
        object.__setattr__(component, "__class__", Component)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_all_that_looks_at_a_snapshot_reads_its_version(program: Program, tmp_path: Path, raised: None) -> None:
    written(program, tmp_path / "app")
    looked_at = inspect_app(tmp_path / "app").saved.queries
    assert looked_at
    assert differences(resumed(program, tmp_path / "app"), uninterrupted(program)) == []


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.on_spark], ids=lambda program: program.name)
def test_so_does_a_bucket(program: Program, tmp_path: Path, raised: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_live", LiveObjects())
    written_in_buckets(program, tmp_path / "bucket")
    expected = uninterrupted_in_buckets(program, tmp_path / "whole")
    monkeypatch.setattr(processor, "_live", LiveObjects())
    assert differences(resumed_in_buckets(program, tmp_path / "bucket"), expected) == []
