"""Aggregates over windows of several lengths become one aggregation per length."""

from __future__ import annotations

from penstock.plan.nodes import AggregateNode, CombineNode, Node
from penstock.plan.placement import Spread, order_matters, place_alone
from penstock.plan.sharing import shareable
from penstock.windows.spec import Range

from .test_placement import plan

SELECT = """SELECT k, AVG(v) AS day, AVG(v) OVER [RANGE 1 HOUR] AS hour, SUM(n) OVER [RANGE 6 HOURS] AS some
FROM s [RANGE 24 HOURS SLIDE 10 SECONDS WHEN FULL] WHERE n > 0 GROUP BY k"""
HOUR = 3_600_000_000


def ranges(parts: tuple[AggregateNode, ...]) -> list[int]:
    return [part.window.extent.micros // HOUR for part in parts if isinstance(part.window.extent, Range)]


def combined(text: str) -> CombineNode:
    node: Node = plan(text)
    assert isinstance(node, CombineNode)
    return node


def test_one_aggregation_for_each_length_the_longest_first() -> None:
    node = combined(SELECT)
    assert ranges(node.inputs) == [24, 1, 6, 6], (
        "sums of integers may overflow, so one more says which groups there are"
    )
    assert node.witnesses == (0, 1, 3, 3)
    assert [(looked.input, looked.column) for looked in node.looked] == [(0, 0), (1, 0), (2, 0)]
    assert [part.window.when_full for part in node.inputs] == [True, False, False, False]
    assert all(part.where == node.inputs[0].where for part in node.inputs)


def test_the_length_of_the_window_itself_is_nothing_special() -> None:
    text = "SELECT SUM(v) OVER [RANGE 1 HOUR] AS a FROM s [RANGE 1 HOUR SLIDE 1 MINUTE]"
    assert isinstance(plan(text), AggregateNode)


def test_all_lengths_share_one_stored_window() -> None:
    assert len(shareable(combined(SELECT))) == 4


def test_by_key_where_the_query_would_be_without_over() -> None:
    by_key = "SELECT k, SUM(v) OVER [RANGE 1 HOUR] AS a FROM s [RANGE 2 HOURS SLIDE 1 HOUR] GROUP BY k"
    assert place_alone(plan(by_key)).spread is Spread.BY_KEY
    assert place_alone(plan(SELECT)).spread is Spread.ONE_PLACE
    assert not order_matters(plan(by_key))
    assert order_matters(plan(by_key.replace("SUM", "LAST")))
