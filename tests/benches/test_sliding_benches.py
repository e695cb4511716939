"""The benches of the sliding manager: what they count does not depend on the machine, so it is checked."""

from __future__ import annotations

from penstock_bench.benches import measure
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size


def test_slides_counts_what_the_paper_counts() -> None:
    figures = measure("slides", Size.TINY, Report("slides", quiet=True))
    assert figures["figure_4_nodes_tested_graph"] == 5.0
    assert figures["figure_4_nodes_tested_optimised"] == 3.75
    assert figures["optimised_to_graph_least"] >= 1.0
    assert figures["calendar_operations_with_10_times_the_queries"] == 1.0
    for row in figures["operations_per_tuple"]:
        assert row["calendar"] < row["graph"]
    for row in figures["nodes_tested_per_tuple"]:
        assert row["by_tests"] <= row["graph"] <= row["plain"] + 1, "the root is one more"


def test_timers_keep_distances_better_than_algorithm_2() -> None:
    """Algorithm 2 slides with every second tuple for three minutes, and with every third for five."""
    figures = measure("remote-time", Size.TINY, Report("remote-time", quiet=True))
    assert figures["timer_to_algorithm2"] < 1
    assert figures["timer_to_algorithm2_lateness"] < 1
    algorithm_2 = next(row for row in figures["errors"] if row["way"] == "algorithm_2")
    assert 45 < algorithm_2["error_s"] < 75
    assert {row["way"] for row in figures["tables_1_and_2"]} == {"algorithm_2", "timers_0.8"}
