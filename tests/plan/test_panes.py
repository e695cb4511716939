"""Which queries are one family."""

from __future__ import annotations

from penstock.lang import parse
from penstock.plan.build import build
from penstock.plan.nodes import AggregateNode
from penstock.plan.panes import Pane, PanedWindow, families, pane_of, why_not

STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, x DOUBLE, y DOUBLE, EVENT TIME t);"


def found(*queries: str) -> list[int]:
    """The numbers of queries of each family."""
    nodes = [build(query.body) for query in parse(STREAM + ";".join(queries)).queries]
    return [len(family.nodes) for family in families([node for node in nodes if isinstance(node, AggregateNode)])]


def over(window: str, what: str = "k, SUM(x) AS a", rest: str = "GROUP BY k") -> str:
    return f"SELECT {what} FROM s [{window}] {rest}"


def test_windows_of_any_extent_slide_and_offset_are_one_family() -> None:
    assert found(
        over("RANGE 1 HOUR SLIDE 10 SECONDS"),
        over("RANGE 1 DAY SLIDE 1 MINUTE OFFSET 30 SECONDS"),
        over("RANGE 90 SECONDS SLIDE 45 SECONDS WHEN FULL"),
    ) == [3]


def test_what_else_differs_makes_another_family() -> None:
    hour = "RANGE 1 HOUR SLIDE 10 SECONDS"
    assert found(over(hour), over(hour, rest="WHERE x > 1 GROUP BY k"), over(hour, "SUM(x) AS a", "")) == [1, 1, 1]


def test_a_window_needs_the_states_of_all_its_queries() -> None:
    hour, day = "RANGE 1 HOUR SLIDE 10 SECONDS", "RANGE 1 DAY SLIDE 10 SECONDS"
    both = "k, SUM(x) AS a, MAX(y) AS b"
    assert found(over(hour), over(hour, "k, MAX(y) AS b"), over(day, both)) == [3]
    assert found(over(hour), over(day, both)) == [1, 1]


def test_what_cannot_be_made_of_panes_is_in_no_family() -> None:
    hour = "RANGE 1 HOUR SLIDE 10 SECONDS"
    assert (
        found(
            over(hour, "k, MEDIAN(x) AS a"),
            over(hour, "MAX(k) AS a", ""),
            over("RANGE 1 HOUR SLIDE 1 HOUR"),
            over("RANGE 1 HOUR"),
            over("ROWS 100 SLIDE 10 SECONDS"),
            over("RANGE 1 HOUR SLIDE 10 SECONDS ON WALL CLOCK"),
        )
        == []
    )


def test_the_reason_names_functions_as_queries_do() -> None:
    for call in ("MEDIAN", "MODE"):
        (query,) = parse(STREAM + over("RANGE 1 HOUR SLIDE 10 SECONDS", f"k, {call}(x) AS a")).queries
        node = build(query.body)
        assert isinstance(node, AggregateNode)
        assert why_not(node) == f"{call} of panes cannot be put together"


def test_a_pane_is_the_greatest_common_divisor() -> None:
    assert pane_of([PanedWindow(60, 20, 5)]) == Pane(20, 5)
    assert pane_of([PanedWindow(60, 20, 5), PanedWindow(30, 10)]) == Pane(5, 0)
    assert pane_of([PanedWindow(7, 5)]) == Pane(1, 0)
