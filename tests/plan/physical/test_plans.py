"""What holds for every physical plan, whichever rules have made it: on the programs of examples and of EXPLAIN."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest

from penstock.lang import parse
from penstock.plan.build import build
from penstock.plan.joins.sharing import joins
from penstock.plan.nodes import Node
from penstock.plan.physical.circumstances import Circumstances, OnSpark
from penstock.plan.physical.lower import lower
from penstock.plan.physical.nodes import JoinCore, PhysicalPlan, Place, Shareable, Source
from penstock.plan.physical.rules import RULES
from penstock.plan.sharing import shareable

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "examples").glob("*.sql")) + sorted((ROOT / "tests" / "plan" / "fixtures").glob("*.txt"))
STRATEGIES = ("auto", "panes", "window")


def plans(path: Path, strategy: str) -> list[PhysicalPlan]:
    """The plan without any rule, and what each rule makes of it."""
    program = parse(path.read_text().partition("----\n")[0])
    asked = {query.name: strategy for query in program.queries}
    known = Circumstances(strategies=asked, on_spark=OnSpark())
    plan = lower([(query, build(query.body)) for query in program.queries])
    return list(accumulate(RULES, lambda before, rule: rule(before, known), initial=plan))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_stages_read_what_stands_before_them(path: Path, strategy: str) -> None:
    for plan in plans(path, strategy):
        places: dict[int, int] = {}
        for stage in plan.stages:
            assert stage.number not in places
            assert all(_is_there(source, places) for source in stage.inputs)
            places[stage.number] = len(stage.form.readers) if isinstance(stage.form, Shareable) else 1
        assert all(_is_there(planned.rows, places) for planned in plan.queries)


def _is_there(source: Source, places: dict[int, int]) -> bool:
    return isinstance(source, str) or source.output < places[source.stage]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_window_and_join_of_a_query_is_read_by_it_once(path: Path, strategy: str) -> None:
    for plan in plans(path, strategy):
        for planned in plan.queries:
            windows: dict[int, Node] = {}
            found: dict[int, Node] = {}
            for place in _places(plan, planned.rows):
                form = plan.by_number[place.stage].form
                if isinstance(form, Shareable):
                    reader = form.readers[place.output]
                    assert reader.query == planned.name
                    own = found if isinstance(form, JoinCore) else windows
                    assert reader.number not in own
                    own[reader.number] = reader.node
            assert [windows[number] for number in sorted(windows)] == shareable(planned.node)
            assert [found[number] for number in sorted(found)] == joins(planned.node)


def _places(plan: PhysicalPlan, source: Source) -> list[Place]:
    """All places that rows of a query come from."""
    if isinstance(source, str):
        return []
    return [source, *(place for read in plan.by_number[source.stage].inputs for place in _places(plan, read))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_plans_are_values(path: Path) -> None:
    """Equal programs have equal plans, in which every query is placed."""
    one, other = plans(path, "auto")[-1], plans(path, "auto")[-1]
    assert one == other
    assert hash(one) == hash(other)
    assert set(one.placements) == {planned.name for planned in one.queries}
