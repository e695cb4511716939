"""Generated traffic: the same however it is cut, as dense as the benchmark's, with accidents and slow segments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock_bench.workloads.linear_road.history import DAYS, tolls
from penstock_bench.workloads.linear_road.reports import (
    COLUMNS,
    ENTRY_LANE,
    EXIT_LANE,
    EXPENDITURE,
    FEET,
    POSITION,
    REPORT,
    REPORT_EVERY,
    read_reports,
    write_reports,
)
from penstock_bench.workloads.linear_road.traffic import THREE_HOURS, VEHICLES, Traffic, repeated, repeated_tolls

SMALL = Traffic(roads=2, seconds=1500, stretch=(40, 44), seed=7)


def whole(traffic: Traffic, step: int = 60) -> pa.Table:
    return pa.concat_tables(traffic.tables(step))


def of_type(table: pa.Table, kind: int) -> pa.Table:
    return table.filter(pc.equal(table["type"], kind))


@pytest.fixture(scope="module")
def small() -> pa.Table:
    return whole(SMALL)


@pytest.fixture(scope="module")
def three_hours() -> dict[str, np.ndarray]:
    """Position reports of a twentieth of the road over all three hours."""
    table = of_type(whole(Traffic(stretch=(48, 52))), POSITION)
    return {name: table[name].to_numpy() for name in COLUMNS}


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_tables_of_any_length_have_the_same_rows(small: pa.Table, step: int) -> None:
    assert whole(SMALL, step).combine_chunks().equals(small.combine_chunks())


def test_seeds_differ_and_rows_are_in_order_of_time(small: pa.Table) -> None:
    assert small.schema == REPORT.arrow
    assert not whole(Traffic(roads=2, seconds=1500, stretch=(40, 44), seed=8)).equals(small)
    assert (np.diff(small["time"].to_numpy()) >= 0).all()


def test_a_later_begin_and_thinning_leave_rows_out_and_change_none(small: pa.Table) -> None:
    cut = Traffic(roads=2, seconds=1500, stretch=(40, 44), seed=7, begin=600, full_from=900, thinned=5)
    time, vid = (small[name].to_numpy() for name in ("time", "vid"))
    kept = (time >= 900) | (time >= 600) & (vid % 5 == 0)
    assert whole(cut).combine_chunks().equals(small.filter(pa.array(kept)).combine_chunks())


def test_density_grows_to_the_benchmark_s() -> None:
    """A tenth of the road has a tenth of the cars. A car that leaves is replaced at once; so in 30 seconds there is one
    report of each car that was there, and one of each that enters."""
    end = of_type(whole(Traffic(begin=THREE_HOURS - 120, stretch=(45, 54))), POSITION)
    assert (end["lane"].to_numpy() != ENTRY_LANE).sum() / 120 == pytest.approx(170, rel=0.01)
    assert len(of_type(whole(Traffic(seconds=1)), POSITION)) == 17
    assert 11.5e6 < Traffic().cars_wanted().sum() / REPORT_EVERY < 12.5e6


def test_cars_report_every_half_minute_from_entry_to_exit(three_hours: dict[str, np.ndarray]) -> None:
    order = np.lexsort((three_hours["time"], three_hours["vid"]))
    vid, time, lane, pos, way, seg, speed = (
        three_hours[name][order] for name in ("vid", "time", "lane", "pos", "dir", "seg", "speed")
    )
    entry, leaves = lane == ENTRY_LANE, lane == EXIT_LANE
    assert entry[0]
    same = vid[1:] == vid[:-1]
    assert (entry[1:] == (~same | leaves[:-1])).all()
    steps = same & ~leaves[:-1]
    assert (np.diff(time)[steps] == REPORT_EVERY).all()
    assert (np.diff(time)[same & leaves[:-1]] > 60).all()
    moved = np.diff(pos)[steps] * np.where(way[1:], -1, 1)[steps]
    assert ((moved > 0) | (speed[1:][steps] == 0)).all()
    assert (np.abs(np.diff(seg)[steps]) <= 1).all()
    assert (seg == pos // FEET).all()
    assert (same & leaves[:-1]).sum() > 1000


def test_there_are_accidents_and_dear_segments(three_hours: dict[str, np.ndarray]) -> None:
    standing = three_hours["speed"] == 0
    spots = np.stack([three_hours[name][standing] for name in ("dir", "lane", "pos", "vid")], axis=1)
    _, reports = np.unique(spots, axis=0, return_counts=True)
    pairs = np.unique(np.unique(spots, axis=0)[:, :3], axis=0, return_counts=True)[1]
    assert len(pairs) >= 6
    assert (pairs <= 2).all()
    assert (pairs == 2).sum() >= len(pairs) - 2
    assert np.median(reports) >= 600 // REPORT_EVERY
    minute = three_hours["time"] // 60 * 1000 + three_hours["dir"] * 100 + three_hours["seg"]
    _, group = np.unique(minute, return_inverse=True)
    cars = np.bincount(group) / 2
    speed = np.bincount(group, weights=three_hours["speed"]) / np.bincount(group)
    assert ((cars > 50) & (speed < 40)).mean() > 0.3


def test_one_report_in_a_hundred_has_a_question(small: pa.Table) -> None:
    long = whole(Traffic(begin=3000, seconds=3180))
    shares = {kind: len(of_type(long, kind)) / len(of_type(long, POSITION)) for kind in (2, 3, 4)}
    assert shares == pytest.approx({2: 0.005, 3: 0.001, 4: 0.004}, rel=0.2)
    questions = small.filter(pc.not_equal(small["type"], POSITION))
    assert len(set(questions["qid"].to_pylist())) == len(questions)
    travel = of_type(questions, 4)
    assert {pc.min(travel["dow"]).as_py(), pc.max(travel["dow"]).as_py()} == {1, 7}
    assert pc.min(of_type(small, POSITION)["qid"]).as_py() == pc.max(of_type(small, POSITION)["qid"]).as_py() == -1


def test_the_tolls_of_the_ten_weeks_answer_all_questions() -> None:
    asked = of_type(whole(Traffic(roads=3, begin=9000, seconds=10_000, stretch=(50, 52))), EXPENDITURE)
    table = tolls(1, 3, np.unique(asked["vid"].to_numpy()))
    assert len(table) == len(set(asked["vid"].to_pylist())) * DAYS
    keys = set(zip(*(table[name].to_pylist() for name in ("vid", "day", "xway")), strict=True))
    assert len(keys) == len(table)
    assert len(asked) > 50
    assert set(zip(*(asked[name].to_pylist() for name in ("vid", "day", "xway")), strict=True)) <= keys
    assert set(asked["xway"].to_pylist()) == {0, 1, 2}


def test_copies_are_the_same_roads_under_other_numbers(small: pa.Table) -> None:
    copies = pa.concat_tables(repeated(SMALL.tables(), 3, roads=2))
    assert (np.diff(copies["time"].to_numpy()) >= 0).all()
    for number in range(3):
        copy = copies.filter(pc.equal(pc.divide(copies["vid"], 2 * VEHICLES), number))
        moved = {"vid": 2 * VEHICLES, "qid": 2 * VEHICLES, "xway": 2}
        for name in COLUMNS:
            expected = small[name].to_numpy()
            there = np.where(expected >= 0, expected + number * moved.get(name, 0), -1)
            assert (copy[name].to_numpy() == there).all()
    paid = repeated_tolls(SMALL.tolls(np.array([5])), 3, roads=2)
    assert sorted(set(paid["vid"].to_pylist())) == [5, 5 + 2 * VEHICLES, 5 + 4 * VEHICLES]
    assert set(paid["xway"].to_pylist()) == set(range(6))


def test_a_file_of_reports_is_read_as_it_was_written(small: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    assert write_reports(path, SMALL.tables()) == len(small)
    assert path.read_text().splitlines()[0] == ",".join(str(small[name][0]) for name in COLUMNS)
    assert read_reports(path).combine_chunks().equals(small.combine_chunks())
