"""The figures of a run and what is drawn of them."""

from __future__ import annotations

import io
from typing import Any, ClassVar

from rich.console import Console

from penstock.spark.progress import Figures, ProgressDisplay, sparkline

BATCH = {
    "events": 1000,
    "results": 7,
    "late": 2,
    "rejected": 1,
    "state_bytes": 5_000_000,
    "state_written": 1_000_000,
    "bytes_read": 7,
    "restored": 1,
    "last_time": 1_704_067_200_000_000,
}


def test_figures_are_sums_and_last_values() -> None:
    figures = Figures()
    figures.add(BATCH, 0.5)
    figures.add({**BATCH, "events": 3000, "state_bytes": 6_000_000}, 1.5)
    figures.add({**BATCH, "events": 0, "results": 1, "late": 0, "rejected": 0, "state_bytes": 1}, 0.1)
    assert (figures.batches, figures.events, figures.results, figures.late, figures.rejected) == (3, 4000, 15, 4, 2)
    assert (figures.state_bytes, figures.slowest_seconds, figures.restored) == (1, 1.5, 3)
    assert list(figures.rates) == [2000.0, 2000.0]
    assert figures.rate == 2000.0
    assert round(figures.mean_rate) == round(4000 / 2.1)
    assert figures.stream_time == "2024-01-01 00:00:00"


def test_times_outside_the_calendar_are_not_shown() -> None:
    figures = Figures()
    assert figures.stream_time == "-"
    figures.last_time = 1 << 61
    assert figures.stream_time == "-"


def test_the_display_says_what_happens() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with ProgressDisplay(console, 4000) as display:
        display.figures.add(BATCH, 0.5)
    display.summary("finished", 12.0)
    shown = out.getvalue()
    for text in (
        "2,000/s",
        "2024-01-01 00:00:00",
        "2 late",
        "1 rejected",
        "5.00 MB",
        "last 0.50 s",
        "finished",
        "12.0",
    ):
        assert text in shown


def test_without_a_terminal_lines_are_printed() -> None:
    out = io.StringIO()

    class Query:
        recentProgress: ClassVar[list[Any]] = []
        status: ClassVar[dict[str, str]] = {"message": "Processing new data"}

    with ProgressDisplay(Console(file=out), 4000, line_seconds=0) as display:
        display.figures.add(BATCH, 0.5)
        display.watch(Query())  # type: ignore[arg-type]
    assert out.getvalue() == (
        "1,000 events, 2,000/s, stream time 2024-01-01 00:00:00, 7 results, last micro-batch 0.50 s, "
        "state 5.00 MB, 2 late, 1 rejected\n"
    )


def test_sparklines_are_scaled_to_the_largest() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == ""
    assert sparkline([5, 5]) == "██"
    assert sparkline([0, 100]) == "▁█"
