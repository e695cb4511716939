"""Queries that go on keep what they have: the windows, aggregations, families and join cores that saved state names.

a, b: go on with aggregate-1 in window-1      c: begins
stages of a, b, c  ->  window-1 with aggregate-1 for a and b, and a stage of c as it was
"""

from __future__ import annotations

from penstock.plan.physical.circumstances import Circumstances
from penstock.plan.physical.merging import merged
from penstock.plan.physical.nodes import (
    Aggregation,
    JoinCore,
    PaneFamily,
    PhysicalPlan,
    Shareable,
    Stage,
    StoredWindow,
    WindowReader,
)


def keep_existing(plan: PhysicalPlan, circumstances: Circumstances) -> PhysicalPlan:
    existing = circumstances.existing
    aggregations: dict[str, list[Stage]] = {}
    cores: dict[str, list[Stage]] = {}
    for stage in plan.stages:
        match stage.form:
            case StoredWindow() as stored:
                (reader,) = stored.readers
                if reader.query in existing.aggregations:
                    aggregations.setdefault(existing.aggregations[reader.query][reader.number], []).append(stage)
            case JoinCore((joining,)):
                if joining.query in existing.joins:
                    cores.setdefault(existing.joins[joining.query][joining.number], []).append(stage)
    windows: dict[str, list[str]] = {}
    groups: list[tuple[list[Stage], Shareable]] = []
    for name, stages in aggregations.items():
        if name in existing.windows:
            windows.setdefault(existing.windows[name], []).append(name)
        else:
            groups.append((stages, PaneFamily(_readers(stages), name)))
    for window, names in windows.items():
        members = tuple(Aggregation(_readers(aggregations[name]), name) for name in names)
        groups.append(([stage for name in names for stage in aggregations[name]], StoredWindow(members, window)))
    for name, stages in cores.items():
        forms = [stage.form for stage in stages if isinstance(stage.form, JoinCore)]
        groups.append((stages, JoinCore(tuple(reader for form in forms for reader in form.readers), name)))
    return merged(plan, groups)


def _readers(stages: list[Stage]) -> tuple[WindowReader, ...]:
    return tuple(reader for stage in stages if isinstance(stage.form, StoredWindow) for reader in stage.form.readers)
