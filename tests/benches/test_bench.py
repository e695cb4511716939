"""Every bench runs, on a few thousand events, and gives the figures it promises; how large they are is not judged.

Those on Spark are in `test_spark_benches`.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.engine.app import App
from penstock.errors import InputError
from penstock_bench.benches import NAMES, SERIES, column_kernels, document, heap_tuples, measure, run
from penstock_bench.benches.belady import fewest_requests, references
from penstock_bench.benches.budget_cases import CASES
from penstock_bench.benches.feed import evenly, number_ring
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Timing, cpu_ratio, in_turns, ratio

FIGURES = {
    "vwap": ("paged_to_memory", "events_per_second", "added_mb", "window_events", "window_bytes"),
    "flat-window": ("slowest_to_fastest",),
    "flat-slide": ("at_86400_to_60", "at_86400_to_1"),
    "peers": ("sum_to_polars", "max_to_polars", "sum_to_duckdb", "max_to_duckdb", "median_to_duckdb"),
    "push": ("us_per_event", "us_per_batch_of_100", "us_fixed_12_queries"),
    "start": ("warm_seconds", "cold_seconds"),
    "istream": ("to_default", "slowest_to_fastest"),
    "relation": ("to_last", "events_per_second", "last_events_per_second"),
    "latency": ("p50_us", "p99_us", "p999_ms", "max_ms", "mean_us", "achieved_rate"),
    "ssm": ("requests_ratio_4", "space_ratio_4", "hit_rate_error", "requests_to_formula_4_1", "requests_to_belady"),
    "tuples": ("bytes_to_raw", "buffered_to_plain"),
    "callcentre": ("events_per_second", "state_mb", "peak_mb", "aggregates", "states", "groups"),
    "slides": ("graph_to_plain", "graph_to_plain_800", "graph_to_plain_200", "optimised_to_graph", "calendar_to_graph"),
    "remote-time": ("timer_to_algorithm2",),
    "stores": ("speedup", "wrong_pattern_slower", "shared_to_unshared", "clustered_slower", "random_slower"),
    "pairs": ("sf", "p_score", "wrong", "p50_ms", "p99_ms", "max_ms", "orders", "strategies", "ticks_per_second"),
    "queries": ("cost_20_to_1", "cost_20_to_1_with_result_rows"),
    "rate-sizing": ("saving_async", "saving_variable", "overhead", "overhead_of_work", "lost"),
    "dispatch": ("ejf_saving", "fcfs_seconds", "ejf_seconds", "real_ejf_saving"),
    "join-window": ("flat", "flat_cpu", "matched_events_per_second"),
    "join-table": ("grace_to_hash", "bytes_to_raw", "events_per_second"),
    "pattern": ("flat", "events_per_second"),
    "join-db": ("batched_to_single",),
    "driver": ("events_per_second", "wall_events_per_second", "schedule_error"),
    "budget": ("worst_overshoot", "budget_bytes"),
    "groups": (
        *("keys_reached", "paged_to_memory", "paged_to_memory_even", "added_to_budget", "state_to_budget"),
        *("distinct_values", "distinct_paged_to_memory", "table_rows", "table_paged_to_memory"),
        *("percentile_values", "percentile_paged_to_memory", "percentile_paged_to_memory_events"),
        *("join_to_budget", "join_paged_to_memory"),
        *("sessions_open", "sessions_to_budget", "sessions_paged_to_memory"),
    ),
    "multi": ("one_stream_to_1", "n_streams_to_1", "n_threads_to_1"),
}


@cache
def tiny(name: str) -> dict[str, Any]:
    """Measured once, for all tests that look at it."""
    return measure(name, Size.TINY, Report(name, quiet=True))


ON_SPARK = {
    "linear-road",
    "blowup",
    "spark-throughput",
    "spark-flat",
    "spark-latency",
    "spark-state",
    "recovery",
    "snapshot",
}


def test_every_bench_is_checked() -> None:
    assert set(FIGURES) | ON_SPARK == set(NAMES)


SLOW = {"stores", "start", "driver", "rate-sizing", "callcentre", "budget", "ssm"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in FIGURES]
)
def test_bench_gives_its_figures(name: str) -> None:
    figures = tiny(name)
    assert json.loads(json.dumps(figures)) == figures
    for field in FIGURES[name]:
        assert isinstance(figures[field], (int, float)), field
        assert math.isfinite(figures[field]), field
        assert figures[field] >= 0, field
    assert figures["machine"]["cores"] >= 1


def test_pairs_answers_what_the_validator_expects() -> None:
    figures = tiny("pairs")
    assert figures["wrong"] == 0
    assert figures["strategies"] == 50
    (trial,) = figures[SERIES]["by_sf"]["penstock"]
    assert trial["orders"] == sum(figures[SERIES]["histogram"]["penstock"]["orders"]) > 0


def test_vwap_pages_one_window_and_keeps_the_other() -> None:
    figures = tiny("vwap")
    assert figures["blocks_written"] > 0
    assert figures["blocks_written_in_memory"] == 0
    measured, skipped = figures["table_1"]
    assert measured["average_ms"] <= measured["max_ms"]
    assert measured["space_gb"] > 0
    assert "disk" in skipped["skipped"]


def test_many_windows_are_made_of_panes_and_one_is_not() -> None:
    assert [row["panes"] for row in tiny("queries")["costs"]] == [False, True]


def test_flat_slide_makes_more_result_rows_as_the_slide_shrinks() -> None:
    rows = [row["result_rows_per_event"] for row in tiny("flat-slide")["rates"]]
    assert rows == sorted(rows)
    assert rows[-1] > 1


@pytest.mark.slow
def test_windows_that_share_a_store_need_what_belady_needs_and_the_space_of_the_largest() -> None:
    figures = tiny("ssm")
    assert figures["requests_to_formula_4_1"] <= 1
    assert figures["requests_to_belady"] <= 1.02
    assert figures["hit_rate_error"] <= 0.05
    assert figures["space_ratio_4"] == pytest.approx((3600 + 4800 + 6000 + 7200) / 7200, rel=0.1)


def test_belady_needs_no_more_than_any_other_choice() -> None:
    """All choices of victims, tried one after the other, on references of two windows."""
    events = list(references([4, 10], block_rows=2, turn_rows=2, rows=24))
    for frames in (3, 4, 5):
        fewest = fewest_requests(events, frames, 0, 24)
        tried = [(e.kind.value, e.block) for e in events]
        assert fewest.reads == fewest_reads(tried, frames)


def fewest_reads(events: list[tuple[str, int]], frames: int) -> int:
    states = {frozenset[int](): 0}
    for kind, block in events:
        following: dict[frozenset[int], int] = {}
        for memory, reads in states.items():
            kept = [memory] if len(memory) < frames or block in memory else [memory - {one} for one in memory]
            if kind == "release":
                kept = [memory - {block}]
            for others in kept:
                now = others if kind == "release" else others | {block}
                cost = reads + (kind == "use" and block not in memory)
                following[now] = min(cost, following.get(now, cost))
        states = following
    return min(states.values())


def test_callcentre_answers_as_duckdb_does() -> None:
    figures = tiny("callcentre")
    assert figures["answers_equal"]
    assert (figures["kpis"], figures["aggregates"], figures["states"]) == (144, 104, 56)
    assert figures["state_mb"] <= figures["budget_mb"]


def test_budget_says_for_each_case_what_the_process_took_and_how_it_ended() -> None:
    figures = tiny("budget")
    assert sorted(figures["cases"]) == ["joins", "keys"]
    assert figures["overshoots"] == sorted(figures["overshoots"], reverse=True)
    assert figures["worst_overshoot"] == figures["overshoots"][0]
    assert figures["budget_errors"] == []
    assert all(isinstance(figure, (int, float, str, list)) for name, figure in figures.items() if name != "machine")


@pytest.mark.parametrize("name", list(CASES))
def test_the_events_of_a_budget_case_fit_its_program(name: str) -> None:
    """Whatever their number: none is late or rejected, but where the case is about that."""
    case = CASES[name]
    with App(case.program) as app:
        pushed = 0
        for stream, piece in case.pushes(40):
            app.push(stream, piece)
            pushed += piece.num_rows
        app.finish()
        assert app.metrics.rejected == 0
        assert app.metrics.late == (40 if name == "late events" else 0)
    assert pushed >= 40


def test_latency_reads_blocks_back_while_it_measures() -> None:
    figures = tiny("latency")
    assert figures["p50_us"] <= figures["p99_us"] <= figures["max_ms"] * 1e3 * 1.01
    assert figures["events"] > 0


def test_the_command_prints_the_figures_last(tmp_path: Path) -> None:
    script = (
        "import penstock_bench.benches as b; from penstock_bench.benches.sizes import Size;"
        "b.Size = type('S', (), {'QUICK': Size.TINY, 'FULL': Size.TINY}); b.run('flat-window', True)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(done.stdout.splitlines()[-1])["bench"] == "flat-window"
    assert "window_rows" in done.stderr


def test_a_bench_keeps_its_figures_with_their_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = {"rate": 1.5, SERIES: {"curve": [[0, 1]]}}
    monkeypatch.setattr("penstock_bench.benches.measure", lambda *_: figures)
    run("vwap", quick=True, output=tmp_path / "new" / "results")
    assert json.loads((tmp_path / "new" / "results" / "vwap.json").read_text()) == figures
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"rate": 1.5}
    with pytest.raises(InputError, match="results"):
        run("vwap", quick=True, output=tmp_path / "new" / "results" / "vwap.json" / "results")


@pytest.mark.slow
def test_curves_are_drawn_from_the_right_stretch() -> None:
    """The paper's figures show the middle third of a run; the tiny run is 24 s long."""
    waits = tiny("rate-sizing")[SERIES]["q3-async"]["waits"]
    assert waits
    assert all(8 <= time < 16 and 0 <= wait <= 10 for time, wait in waits)


def test_figures_go_between_the_marks() -> None:
    page = f"above\n{document.BEGIN}\nold\n{document.END}\nbelow\n"
    shown = document.with_figures(page, [tiny("flat-window")])
    assert shown.startswith("above\n")
    assert shown.endswith("below\n")
    assert "old" not in shown
    assert "| `slowest_to_fastest` |" in shown
    assert "| window_rows | events_per_second | events_per_cpu_second |" in shown


def test_a_document_without_marks_is_refused() -> None:
    with pytest.raises(InputError, match="figures: begin"):
        document.with_figures("a page", [])


def test_turns_alternate_and_ratios_are_medians() -> None:
    order: list[str] = []

    def variant(name: str, wall: float) -> Timing:
        order.append(name)
        return Timing(100, wall, 2 * wall)

    taken = in_turns({"a": lambda: variant("a", 1.0), "b": lambda: variant("b", 4.0)}, 2)
    assert order == ["a", "b", "b", "a"]
    assert ratio(taken["a"], taken["b"]) == 4.0
    assert cpu_ratio(taken["a"], taken["b"]) == 4.0


def test_a_ring_goes_on_with_new_times() -> None:
    ring, times = number_ring(2, rows=3), evenly(5)
    first, third = ring.batch(0, times(0, 3)), ring.batch(6, times(6, 3))
    assert first.column("v").equals(third.column("v"))
    assert third.column("t").cast("int64").to_pylist() == [30, 35, 40]


def test_all_forms_of_a_tuple_give_the_same_averages() -> None:
    size, count = 7, 50
    values = [i + 0.5 for i in range(count)]
    expected = [math.fsum(part) / len(part) for part in (values[max(0, i + 1 - size) : i + 1] for i in range(count))]
    for form in heap_tuples.FORMS:
        assert form.average([form.event(i) for i in range(count)], size) == pytest.approx(expected)
    events = np.zeros(count, column_kernels.EVENT)
    events["a1"] = values
    for loop in (column_kernels.average, column_kernels.average_buffered):
        window = (np.zeros(size, np.int32), np.zeros(size), np.zeros(size), np.zeros(size, np.int64))
        answers, state = np.empty(count), np.zeros(3)
        loop(events, *window, state, answers)
        assert answers == pytest.approx(expected)
        assert sorted(window[1]) == values[-size:]
    answers = np.empty(count)
    column_kernels.average_projected(events, np.zeros(size), np.zeros(3), answers)
    assert answers == pytest.approx(expected)


def test_all_forms_of_a_table_find_the_same_matches() -> None:
    rows = 20
    wanted = [3, 19, 0, 3]
    for form in heap_tuples.FORMS:
        table = {i: form.table_row(i) for i in range(rows)}
        joined = form.join([form.event(i) for i in wanted], table)
        assert [_t1(row) for row in joined] == [1000 + i for i in wanted]
    ids = np.random.default_rng(1).permutation(rows)
    index = np.full(64, -1, np.int32)
    column_kernels.index(ids, index)
    t1, values = (1000 + ids).astype(np.int32), np.array([0.5, 1.5, 2.5, 3.5])
    found, carried = np.empty(4, np.int32), np.empty(4)
    column_kernels.join(np.array(wanted), values, ids, t1, index, found, carried)
    assert found.tolist() == [1000 + i for i in wanted]
    assert carried.tolist() == values.tolist()


def _t1(row: Any) -> int:
    return row["T1"] if isinstance(row, dict) else row[2]
