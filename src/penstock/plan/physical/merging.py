"""Stages become one: how a plan is written anew when rules merge its stages.

    0: window of a    1: window of b    2: project over place 1.0
    stages 0 and 1 become one:
    0: window of a and b                2: project over place 0.1

The merged stage has the number and the position of the first, and the places of all of them one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.plan.physical.nodes import Form, PhysicalPlan, Place, Shareable, Source, Stage


def merged(plan: PhysicalPlan, groups: Sequence[tuple[Sequence[Stage], Shareable]]) -> PhysicalPlan:
    """Stages of each group become one stage of the form that is given with them, whose readers are those of the stages,
    in that order. The stages of a group read the same."""
    forms: dict[int, Form] = {}
    moved: dict[int, tuple[int, int]] = {}
    for stages, form in groups:
        outputs = 0
        for stage in stages:
            moved[stage.number] = (stages[0].number, outputs)
            assert isinstance(stage.form, Shareable)
            outputs += len(stage.form.readers)
        forms[stages[0].number] = form
    kept = [stage for stage in plan.stages if moved.get(stage.number, (stage.number, 0))[0] == stage.number]
    return PhysicalPlan(
        tuple(
            Stage(stage.number, forms.get(stage.number, stage.form), tuple(_moved(i, moved) for i in stage.inputs))
            for stage in kept
        ),
        tuple(replace(planned, rows=_moved(planned.rows, moved)) for planned in plan.queries),
    )


def _moved(source: Source, moved: Mapping[int, tuple[int, int]]) -> Source:
    if isinstance(source, str) or source.stage not in moved:
        return source
    stage, outputs = moved[source.stage]
    return Place(stage, outputs + source.output)
