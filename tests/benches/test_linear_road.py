"""The bench of Linear Road: its load is all rows, its search finds what a system can do, its checks see mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import InputError
from penstock_bench.benches.linear_road_embedded import busy_minute, rater
from penstock_bench.benches.linear_road_exact import Given, check, given_files
from penstock_bench.benches.linear_road_hours import three_hours
from penstock_bench.benches.linear_road_load import Part, Stretch, peaks
from penstock_bench.benches.linear_road_profile import shares
from penstock_bench.benches.linear_road_rating import LIMIT, PRECISION, Trial, best, search
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.workloads.linear_road.reports import BALANCE, POSITION, REPORT_EVERY
from penstock_bench.workloads.linear_road.traffic import repeated


@pytest.fixture(scope="module")
def stretch() -> Stretch:
    (made,) = peaks((4,), boundary=600)
    return made


def test_a_stretch_has_a_full_minute_in_its_middle_and_its_cars_have_reported_before(stretch: Stretch) -> None:
    time = stretch.reports["time"].to_numpy()
    assert sorted(set(time.tolist())) == [598, 599, 600, 601]
    assert stretch.lead_up["time"].to_numpy().max() < 598 - REPORT_EVERY + 4
    known = set(stretch.lead_up["vid"].to_pylist())
    before = [vid for vid, lane in zip(*(stretch.reports[c].to_pylist() for c in ("vid", "lane")), strict=True) if lane]
    assert len(before) > 100
    assert all(vid in known for vid in before)


def test_the_parts_of_a_load_are_the_whole_and_all_get_the_balances(stretch: Stretch) -> None:
    whole = pa.Table.from_batches(stretch.reports_of(Part(5)))
    parts = [pa.Table.from_batches(stretch.reports_of(Part.of(5, number, 2))) for number in range(2)]
    own = [part.filter(pa.array(_in(part, road))) for part, road in zip(parts, ((0, 1), (2, 3, 4)), strict=True)]
    in_order = [("xway", "ascending"), ("time", "ascending"), ("vid", "ascending"), ("type", "ascending")]
    assert pa.concat_tables(own).sort_by(in_order).equals(whole.sort_by(in_order))
    asked = {qid for kind, qid in _rows(whole, "type", "qid") if kind == BALANCE}
    assert asked
    for part in parts:
        assert {qid for kind, qid in _rows(part, "type", "qid") if kind == BALANCE} == asked
        foreign = part.filter(pa.array(~_in(part, (0, 1)) if part is parts[0] else _in(part, (0, 1))))
        assert set(foreign["type"].to_pylist()) <= {BALANCE}


def test_a_whole_load_is_the_road_repeated(stretch: Stretch) -> None:
    whole = pa.Table.from_batches(stretch.reports_of(Part(3)))
    (expected,) = repeated([stretch.reports], 3)
    assert whole.sort_by("time").equals(expected.sort_by("time"))
    assert (whole["type"].to_numpy() == POSITION).sum() > 1000


def _in(rows: pa.Table, roads: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.isin(rows["xway"].to_numpy(), roads)


def _rows(rows: pa.Table, *columns: str) -> list[tuple[int, ...]]:
    return list(zip(*(rows[column].to_pylist() for column in columns), strict=True))


@pytest.mark.parametrize("capacity", [3.0, 70.0, 333.0, 1234.0])
@pytest.mark.parametrize("start", [1, 200])
def test_the_search_ends_close_below_what_a_system_can_do(capacity: float, start: int) -> None:
    def trial(roads: int) -> Trial:
        busy = roads / capacity
        return Trial(roads, 6, roads, np.full(3, 0.5 if busy <= 1 else 2 * LIMIT), busy)

    trials = search(trial, start, 1e9, lambda done: None)
    found = best(trials)
    assert found is not None
    assert len(trials) <= 8
    assert capacity / PRECISION - 1 <= found.roads <= capacity


def test_no_trial_is_begun_that_would_not_end_in_time_unless_none_was_held() -> None:
    tried: list[int] = []

    def trial(roads: int) -> Trial:
        tried.append(roads)
        return Trial(roads, 6, roads, np.full(1, 1.0 if roads <= 50 else 9.0), roads / 50)

    assert best(search(trial, 10, 0, lambda done: None)).roads == 10  # type: ignore[union-attr]
    assert tried == [10]
    assert best(search(trial, 400, 0, lambda done: None)) is not None


def test_a_system_that_answers_in_time_but_falls_behind_has_not_held() -> None:
    assert Trial(9, 6, 1, np.ones(2), 0.9).held
    assert "60 s" not in Trial(9, 6, 1, np.ones(2), 1.2).why
    assert "72 s" in Trial(9, 6, 1, np.ones(2), 1.2).why
    assert "5.5 s" in Trial(9, 6, 1, np.full(2, 5.5), 0.5).why
    assert busy_minute([1.0, 1.0, 1.0, 61.0]) == 2.0


def test_compiled_loops_count_for_the_module_that_calls_them() -> None:
    ours, loop = ("/x/penstock/store/keyed.py", 1, "find"), ("<compiled>", 1, "loop")
    stats = {ours: (1, 1, 1.0, 4.0, {}), loop: (1, 1, 3.0, 3.0, {ours: (1, 1, 3.0, 3.0)})}
    assert shares(stats) == {"store.keyed": 1.0, "others": 0.0}


def test_an_input_comes_with_its_tolls_and_its_answers(tmp_path: Path) -> None:
    file = tmp_path / "some.csv"
    file.write_text("")
    assert given_files(None, None, None) is None
    assert given_files(file, file, file) == Given(file, file, file)
    with pytest.raises(InputError, match="--tolls"):
        given_files(file, None, file)
    with pytest.raises(InputError, match="there is no such file"):
        given_files(file, file, tmp_path / "missing.csv")


@pytest.mark.slow
def test_what_is_missing_and_what_is_undue_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right answers are those of an empty road; a car reports on the one that is given, and asks for nothing."""
    inputs, tolls, expected = (tmp_path / name for name in ("in.csv", "tolls.csv", "expected.csv"))
    inputs.write_text("0,0,1,50,0,1,0,15,79200,-1,-1,-1,-1,-1,-1\n")
    tolls.write_text("1,1,0,5\n")
    expected.write_text("0,2,0,0,0,0\n3,0,0,7,9\n")
    monkeypatch.setattr("penstock_bench.benches.linear_road_exact.run_on_spark", lambda *_, **__: None)
    found = check(Size.TINY, Given(inputs, tolls, expected), tmp_path / "place", Report("exact", quiet=True))
    by_input = {(one.input, one.engine): one for one in found}
    assert by_input["generated", "embedded"].wrong == by_input["generated", "embedded in two parts"].wrong == 0
    assert by_input["generated", "embedded"].expected > 1000
    given = by_input[str(inputs), "embedded"]
    assert (given.expected, given.missing, given.extra) == (2, 2, 1)


@pytest.mark.slow
def test_a_trial_in_two_processes_answers_all_in_real_time(stretch: Stretch) -> None:
    with rater(stretch) as processes:
        trial, profile = processes.profile(3)
        again = processes.trial(4)
    assert trial.seconds == again.seconds == 4
    assert again.reports == 4 * len(stretch.reports)
    assert len(again.responses) > len(trial.responses) > 100
    assert again.responses.min() > 0
    assert sum(profile.values()) == pytest.approx(1)


@pytest.mark.slow
def test_hours_in_real_time_can_be_seconds() -> None:
    figures = three_hours(3, Report("hours", quiet=True), seconds=4)
    assert figures["roads"] == 3
    assert figures["answers"] > 50
    assert figures["reports"] >= figures["answers"]
