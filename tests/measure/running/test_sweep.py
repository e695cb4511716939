"""Series of runs: which points there are, and that a series survives failures and stops."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from rich.console import Console

from penstock.errors import InputError
from penstock_bench.cli.bench_series import _swept
from penstock_bench.measure.running.controller import Controller
from penstock_bench.measure.running.sweep import Point, Sweep, points_of, series_of
from penstock_bench.measure.setup.model import Series

SETUP = """
name = "small"
[parameters]
rate = 2000
column = "n"
[streams.s]
columns = { ts = "TIMESTAMP", n = "BIGINT" }
[[drivers]]
name = "d"
[drivers.fields.s]
n = { generator = "sequential" }
[[drivers.phases]]
rate = "${rate}"
duration = "300 ms"
[queries.q]
text.penstock = "SELECT ts, ${column} FROM s"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SETUP, encoding="utf-8")
    return path


def test_values_are_shown_as_they_are(file: Path, tmp_path: Path) -> None:
    """What a terminal's library takes for a tag is a value like any other."""
    sweep = Sweep(file, tmp_path / "out", points_of([series_of(["column=[/red],[b]"])]))
    for outcome in sweep.outcomes:
        outcome.state = "failed"
    console = Console(width=160)
    with console.capture() as shown:
        console.print(_swept(sweep))
    assert "[/red]" in shown.get()
    assert "[b]" in shown.get()


def test_points_are_all_combinations() -> None:
    points = points_of([series_of(["rate=1,2", "adapter=a,b"])], repeat=2)
    assert [point.name for point in points] == [
        "rate=1,adapter=a",
        "rate=1,adapter=b",
        "rate=2,adapter=a",
        "rate=2,adapter=b",
        "rate=1,adapter=a,run=2",
        "rate=1,adapter=b,run=2",
        "rate=2,adapter=a,run=2",
        "rate=2,adapter=b,run=2",
    ]


def test_points_of_a_setups_own_series() -> None:
    series = [
        Series(name="size", vary={"window": (10, 20, 30)}, quick={"window": (10,)}),
        Series(name="rate", vary={"rate": (1,)}, fixed={"window": 5}),
    ]
    assert [point.name for point in points_of(series, quick=True)] == ["size,window=10", "rate,window=5,rate=1"]
    assert len(points_of(series)) == 4


@pytest.mark.parametrize("vary", ["rate", "=1", "rate=", "rate=,"])
def test_vary_is_told_how_to_be_written(vary: str) -> None:
    with pytest.raises(InputError, match="write NAME=VALUE,VALUE"):
        series_of([vary])
    with pytest.raises(InputError, match="varied twice"):
        series_of(["a=1", "a=2"])


def test_mistakes_are_told_before_the_first_run(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no parameter 'speed'"):
        Sweep(file, tmp_path / "out", [Point("", {"rate": "1"}), Point("", {"speed": "1"})])
    with pytest.raises(InputError, match="no rate"):
        Sweep(file, tmp_path / "out", [Point("", {"rate": "-1"})])
    with pytest.raises(InputError, match="rate=1 is there twice"):
        Sweep(file, tmp_path / "out", [Point("", {"rate": 1}), Point("", {"rate": "1"})])
    assert not (tmp_path / "out").exists()


def rows(directory: Path) -> list[dict[str, str]]:
    with (directory / "table.csv").open(encoding="utf-8") as text:
        return list(csv.DictReader(text))


def finish(controller: Controller) -> bool:
    controller.wait()
    return True


@pytest.mark.slow
def test_a_series_goes_on_after_failures_and_stops(file: Path, tmp_path: Path) -> None:
    directory = tmp_path / "out"
    points = [
        Point("", {"rate": "1000", "column": "nothing"}),
        Point("", {"rate": "1000", "column": "n"}),
        Point("", {"rate": "3000", "column": "n"}),
    ]

    def stopped(controller: Controller) -> bool:
        """The second run is stopped by Ctrl-C, and the series with it."""
        if controller.setup.parameters["column"] == "n":
            controller.stop()
            controller.wait()
            return False
        return finish(controller)

    Sweep(file, directory, points).run(stopped)
    told = json.loads((directory / "sweep.json").read_text())
    assert [point["state"] for point in told["points"]] == ["failed", "stopped", "waiting"]
    assert "unknown column 'nothing'" in told["points"][0]["error"]
    assert told["varied"] == {"rate": [1000, 3000], "column": ["nothing", "n"], "adapter": ["embedded"]}
    assert [row["state"] for row in rows(directory)] == ["failed", "stopped"]

    again = Sweep(file, directory, points[1:])
    assert len(again.waiting) == 2
    again.run(finish)
    table = rows(directory)
    assert [(row["rate"], row["state"], row["error"]) for row in table] == [("1000", "done", ""), ("3000", "done", "")]
    for row in table:
        # How fast this machine is at the moment decides how close it comes.
        assert 0 < float(row["events_per_second"]) <= 1.5 * float(row["rate"])
        assert float(row["latency_p50_ms"]) <= float(row["latency_p99_ms"]) <= float(row["latency_max_ms"])

    done = Sweep(file, directory, points[1:])
    assert done.waiting == []
    done.run(lambda _: pytest.fail("nothing is left to run"))
    assert rows(directory) == table

    file.write_text(SETUP.replace("300 ms", "400 ms"), encoding="utf-8")
    with pytest.raises(InputError, match="is a run of another version of this setup; give another --output"):
        Sweep(file, directory, points)
