"""The application in SQL: exact on the public validator's input and on generated traffic, however it is pushed."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.engine.app import App
from penstock.errors import InputError
from penstock_bench.workloads.linear_road.answers import Answers, compare, read_answers
from penstock_bench.workloads.linear_road.application import AnswerFile, answers, embedded, program
from penstock_bench.workloads.linear_road.history import SEGMENT, TOLL
from penstock_bench.workloads.linear_road.reports import (
    COLUMNS,
    EXPENDITURE,
    REPORT,
    read_reports,
    write_integers,
    write_reports,
)
from penstock_bench.workloads.linear_road.running import run_embedded, run_on_spark
from penstock_bench.workloads.linear_road.traffic import Traffic
from penstock_bench.workloads.linear_road.validator import Lav, expected_answers

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def east() -> pa.Table:
    return read_reports(HERE / "east_in.csv.gz")


@pytest.fixture(scope="module")
def east_tolls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("east") / "tolls.csv"
    path.write_bytes(gzip.decompress((HERE / "east_tolls.csv.gz").read_bytes()))
    return path


def assert_same(expected: Answers, given: Path) -> None:
    differences = compare(expected, read_answers(given), sorted(expected.rows))
    assert sum(difference.expected for difference in differences) > 100
    assert [d for d in differences if d.wrong] == []


def write(app: App, file: AnswerFile) -> None:
    for name, rows in answers(app):
        file.write(name, rows)


@pytest.mark.parametrize("cut", [100_000, 1000])
def test_the_public_validator_s_answers(east: pa.Table, east_tolls: Path, tmp_path: Path, cut: int) -> None:
    with embedded(east_tolls, memory="64MB") as app, AnswerFile(tmp_path / "answers.csv") as file:
        for start in range(0, len(east), cut):
            app.push("input", east.slice(start, cut))
            write(app, file)
        app.finish()
        write(app, file)
        assert app.rejects == []
    assert_same(read_answers(HERE / "east_expected.csv.gz"), tmp_path / "answers.csv")


def test_it_goes_on_after_a_restart(east: pa.Table, east_tolls: Path, tmp_path: Path) -> None:
    middle = 23_456
    with AnswerFile(tmp_path / "answers.csv") as file:
        with embedded(east_tolls, checkpoint=tmp_path / "state") as app:
            app.push("input", east.slice(0, middle))
            write(app, file)
            seen = app.checkpoint().positions["input"]
            app.push("input", east.slice(middle, 5000))
        with embedded(east_tolls, checkpoint=tmp_path / "state") as app:
            app.push("input", east.slice(seen))
            app.finish()
            write(app, file)
    assert seen == middle
    assert_same(read_answers(HERE / "east_expected.csv.gz"), tmp_path / "answers.csv")


def files_of(traffic: Traffic, place: Path) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Generated traffic as files; the tables that are in them."""
    rows = pa.concat_tables(traffic.tables())
    asked = rows.filter(pc.equal(rows["type"], EXPENDITURE))
    tolls, segments = traffic.tolls(np.unique(asked["vid"].to_numpy())), traffic.segments()
    write_reports(place / "input.csv", [rows])
    write_integers(place / "tolls.csv", [tolls], TOLL)
    write_integers(place / "segments.csv", [segments], SEGMENT)
    return rows, tolls, segments


@pytest.mark.parametrize("lav", [Lav.POOLED, pytest.param(Lav.SPEC, marks=pytest.mark.slow)])
def test_generated_traffic(tmp_path: Path, lav: Lav) -> None:
    traffic = Traffic(roads=2, seconds=1500, stretch=(40, 44), seed=7)
    rows, tolls, segments = files_of(traffic, tmp_path)
    expected = expected_answers(rows, tolls, segments, lav)
    assert all(len(expected.of(kind)) for kind in range(5))
    place = tmp_path / "answers.csv"
    run_embedded(
        tmp_path / "input.csv", place, tmp_path / "tolls.csv", segments=tmp_path / "segments.csv", lav=lav.value
    )
    assert_same(expected, place)


def reports(rows: Iterable[dict[str, int]]) -> pa.Table:
    defaults = dict.fromkeys(COLUMNS, -1) | {"type": 0, "xway": 0, "dir": 0, "lane": 1, "speed": 30}
    return pa.Table.from_pylist([defaults | row for row in rows], schema=REPORT.arrow)


def test_answers_of_a_second_come_when_time_has_passed_it(tmp_path: Path) -> None:
    (tmp_path / "tolls.csv").write_text("7,3,0,55\n")
    with embedded(tmp_path / "tolls.csv") as app:
        asks = {"time": 5, "vid": 7, "qid": 1}
        rows = [{"time": 5, "vid": 7, "seg": 2, "pos": 11_000}, asks | {"type": 2}, asks | {"type": 3, "day": 3}]
        app.push("input", reports(rows))
        app.advance("input", 6_000_000)
        found = {name: table.to_pylist() for name, table in answers(app)}
    assert found == {
        "toll_notifications": [{"vid": 7, "time": 5, "lav": 0, "toll": 0}],
        "balances": [{"time": 5, "qid": 1, "balance": 0}],
        "expenditures": [{"time": 5, "qid": 1, "toll": 55}],
    }


def test_the_ten_weeks_may_be_in_a_database(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "weeks.db") as database:
        database.execute("CREATE TABLE tolls (vid INT, day INT, xway INT, toll INT)")
        database.execute("INSERT INTO tolls VALUES (7, 3, 0, 55)")
    with embedded(f"sqlite:{tmp_path / 'weeks.db'}") as app:
        rows = [{"type": 3, "time": 5, "vid": 7, "qid": qid, "day": day} for qid, day in ((1, 3), (2, 4), (3, 0))]
        app.push("input", reports(rows))
        assert app.results("expenditures").to_pylist() == [{"time": 5, "qid": 1, "toll": 55}]


def test_a_place_is_a_literal_in_the_text() -> None:
    assert "FROM 'it''s.csv' WITH ('format' = 'csv'" in program("it's.csv")
    assert "FROM 'sqlite:x.db' WITH ('table' = 'tolls')" in program("sqlite:x.db")
    with pytest.raises(InputError, match="use pooled or spec"):
        program("tolls.csv", lav="mean")


def test_the_command(penstock: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    files_of(Traffic(roads=1, seconds=900, stretch=(40, 42), seed=2), tmp_path)
    options = ("--tolls", "tolls.csv", "--segments", "segments.csv")
    code, _, said = penstock("linear-road", "run", "input.csv", *options, "-o", "answers.csv")
    assert code == 0
    assert "toll notifications" in said
    assert penstock("linear-road", "validate", "input.csv", *options, "--answers", "answers.csv")[0] == 0
    assert penstock("linear-road", "run", "nothing.csv", *options, "-o", "answers.csv")[0] != 0


@pytest.mark.slow
@pytest.mark.spark
def test_on_spark(spark: object, east: pa.Table, east_tolls: Path, tmp_path: Path) -> None:
    write_reports(tmp_path / "input.csv", [east])
    run_on_spark(tmp_path / "input.csv", tmp_path / "answers.csv", east_tolls)
    assert_same(read_answers(HERE / "east_expected.csv.gz"), tmp_path / "answers.csv")


def crowd(seed: int) -> tuple[pa.Table, pa.Table]:
    """Some cars on few segments of four roads. They stop often, two of them at one spot, leave, and come back."""
    random = np.random.default_rng(seed)
    cars, rows = int(random.integers(60, 140)), list[tuple[int, ...]]()
    for car in range(cars):
        time = int(random.integers(0, 30))
        while time < 900:
            xway, way, segment = (int(random.integers(0, 2)) for _ in range(3))
            lane, stands, at = 0, 0, int(random.integers(1000, 5000))
            while time < 900:
                place = segment * 5280 + (car // 2 if stands else at)
                speed = 0 if stands else int(random.integers(0, 60))
                rows.append((0, time, car, speed, xway, lane, way, segment, place, *(-1,) * 6))
                if random.random() < 0.05:
                    rows.append((2, time, car, *(-1,) * 6, len(rows), *(-1,) * 5))
                if random.random() < 0.03:
                    rows.append((3, time, car, -1, xway, *(-1,) * 4, len(rows), *(-1,) * 4, int(random.integers(0, 4))))
                time += 30
                if lane == 4:
                    break
                stands = max(0, stands - 1)
                if stands:
                    continue
                luck = random.random()
                if luck < 0.2:
                    lane, stands = 1, int(random.integers(4, 12))
                    continue
                lane = 4 if luck < 0.28 else int(random.integers(1, 4))
                at = (at + int(random.integers(1, 900))) % 5280
                if random.random() < 0.5:
                    segment = max(0, segment + 1 - 2 * way)
            time += int(random.integers(31, 200))
    rows.sort(key=lambda row: row[1])
    tolls = [
        (car, day, xway, 1 + (7 * car + day) % 90) for car in range(0, cars, 2) for day in range(4) for xway in range(2)
    ]
    return (
        pa.table(dict(zip(COLUMNS, np.array(rows, np.int32).T, strict=True))),
        pa.table(dict(zip(("vid", "day", "xway", "toll"), np.array(tolls, np.int32).T, strict=True))),
    )


def random_cars(seed: int, place: Path) -> None:
    rows, tolls = crowd(seed)
    write_integers(place / "tolls.csv", [tolls], TOLL)
    cut = int(np.random.default_rng(seed).integers(50, 3000))
    with embedded(place / "tolls.csv", memory="64MB") as app, AnswerFile(place / "answers.csv") as file:
        for start in range(0, len(rows), cut):
            app.push("input", rows.slice(start, cut))
            write(app, file)
        app.finish()
        write(app, file)
    assert_same(expected_answers(rows, tolls), place / "answers.csv")


@pytest.mark.parametrize("seed", range(2))
def test_cars_that_stop_and_come_back(tmp_path: Path, seed: int) -> None:
    random_cars(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 40))
def test_many_cars_that_stop_and_come_back(tmp_path: Path, seed: int) -> None:
    random_cars(seed, tmp_path)
