"""The shapes of all components' snapshots: `PYTHONPATH=tests python -m golden.shapes` records those of new versions.

A shape is what `snapshot` returns, without the values: the paths of its parts, and the kinds of what is there. It ends
where another component begins. `shapes.json` has a shape for each component and version.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from penstock.components import Saved
from penstock.spark.directory import Directory, StateFile
from penstock.store.state import decode

from .programs import PROGRAMS
from .runs import InBuckets, written, written_in_buckets

RECORDED = Path(__file__).with_name("shapes.json")
Shape = dict[str, list[str]]
Shapes = dict[str, dict[str, Shape]]
"""By component, version and path."""

_NAMED = {
    "Aggregation": ["states"],
    "App": ["declared", "declared.*.columns", "late_outlets", "stores", "streams"],
    "Bucket": ["clocks", "ties"],
    "BucketApp": ["fired", "stores", "streams", "types", "types.*"],
    "Emitter": ["before"],
    "Flow": ["aggregations", "joins", "passed", "queries", "stepped", "strategies", "windows"],
    "HeldRows": ["answers"],
    "InputBuffers": ["passed", "waiting"],
    "Intake": ["texts", "window_texts"],
    "PaneResults": ["", "*.before"],
    "PagedTexts": ["counts"],
    "PaneTotals": ["states"],
    "Rates": [""],
    "RuleCalls": ["fired", "workers"],
    "SharedWindow": ["groups", "texts"],
    "Table": ["strings"],
    "TableSet": [""],
    "TableWriter": ["heard", "passed"],
}
"""The paths of dictionaries whose keys are names: of streams, queries, states ..."""


def shapes_of_today(root: Path) -> Shapes:
    """The shapes in the checkpoints of all programs."""
    found: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for program in PROGRAMS:
        written(program, root / "embedded" / program.name)
        if program.on_spark:
            written_in_buckets(program, root / "spark" / program.name)
    trees = [decode(file.read_bytes()) for file in root.rglob("embedded/*/state")]
    in_buckets = (InBuckets(program, root / "spark" / program.name) for program in PROGRAMS if program.on_spark)
    trees += [saved for run in in_buckets for saved in run.saved()]
    # What is inside of a directory, and what is retired, depends on sizes.
    trees.append(decode(Directory("", "", "", (StateFile("", 0, 0),), (b"",), (("", 0),)).encoded()))
    for tree in trees:
        for saved in _components(tree):
            shape = found[saved.component, str(saved.version)]
            for path, kind in _parts(saved, "", _NAMED.get(saved.component, [])):
                shape[path].add(kind)
    shapes: Shapes = {}
    for (component, version), shape in sorted(found.items()):
        own = {path: sorted(kinds) for path, kinds in sorted(shape.items())}
        shapes.setdefault(component, {})[version] = own
    return shapes


def _components(node: Any) -> Iterator[Saved]:
    if isinstance(node, Saved):
        yield node
    if isinstance(node, (dict, list)):
        for item in node.values() if isinstance(node, dict) else node:
            yield from _components(item)


def _parts(node: dict[str, Any], path: str, named: list[str]) -> Iterator[tuple[str, str]]:
    for key, value in node.items():
        name = "*" if path in named else key
        yield from _part(value, f"{path}.{name}" if path else name, named)


def _part(value: Any, path: str, named: list[str]) -> Iterator[tuple[str, str]]:
    yield path, _kind(value)
    if isinstance(value, list):
        for item in value:
            yield from _part(item, f"{path}[]", named)
    elif isinstance(value, dict) and not isinstance(value, Saved):
        yield from _parts(value, path, named)


def _kind(value: Any) -> str:
    if isinstance(value, Saved):
        return value.component
    if isinstance(value, np.ndarray):
        return f"array {value.dtype.str} of {value.ndim} dimensions"
    return type(value).__name__


def recorded() -> Shapes:
    found: Shapes = json.loads(RECORDED.read_text())
    return found


def record(*, programs_came: bool) -> None:
    """Adds the shapes of new versions. A shape on record changes only because new programs show more of it."""
    shapes = recorded() if RECORDED.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        today = shapes_of_today(Path(name))
    for component, versions in today.items():
        for version, shape in versions.items():
            before = shapes.setdefault(component, {}).get(version, shape)
            if before != shape and not programs_came:
                sys.exit(f"{component} has another shape than version {version} on record: raise its version")
            shapes[component][version] = shape
    RECORDED.write_text(json.dumps(shapes, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    record(programs_came="--programs-came" in sys.argv[1:])
