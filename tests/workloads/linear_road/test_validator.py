"""The validator: exact on the public validator's input and answers, and each rule by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import InputError
from penstock_bench.workloads.linear_road.answers import (
    BALANCE,
    EXPENDITURE,
    NOTICE,
    TRAVEL_TIME,
    WARNING,
    Answers,
    compare,
    read_answers,
)
from penstock_bench.workloads.linear_road.history import SEGMENT, TOLL, segments
from penstock_bench.workloads.linear_road.reports import COLUMNS, REPORT, read_integers, read_reports
from penstock_bench.workloads.linear_road.validator import Lav, expected_answers

HERE = Path(__file__).parent


def table(*rows: dict[str, int]) -> pa.Table:
    defaults = dict.fromkeys(COLUMNS, -1) | {"type": 0, "xway": 0, "dir": 0, "lane": 1, "speed": 30}
    return pa.Table.from_pylist([defaults | row for row in rows], schema=REPORT.arrow)


def at(time: int, vid: int, position: int, **more: int) -> dict[str, int]:
    return {"time": time, "vid": vid, "pos": position, "seg": position // 5280, **more}


def balance(time: int, vid: int, qid: int) -> dict[str, int]:
    return {"type": 2, "time": time, "vid": vid, "qid": qid}


def answered(*rows: dict[str, int], lav: Lav = Lav.POOLED) -> Answers:
    return expected_answers(table(*sorted(rows, key=lambda row: row["time"])), lav=lav)


def crowd(time: int, position: int, cars: int = 60, speed: int = 30) -> list[dict[str, int]]:
    """So many cars that stay in one segment and have entered it in the minute before."""
    return [at(time, 1000 + car, position + car, speed=speed) for car in range(cars)]


TOLL_OF_60 = 2 * (60 - 50) ** 2


def test_the_public_validator_s_answers() -> None:
    reports, tolls = read_reports(HERE / "east_in.csv.gz"), read_integers(HERE / "east_tolls.csv.gz", TOLL)
    expected = read_answers(HERE / "east_expected.csv.gz")
    differences = compare(expected, expected_answers(reports, tolls))
    assert [(d.expected, d.missing, d.extra) for d in differences] == [
        (15453, 0, 0),
        (740, 0, 0),
        (262, 0, 0),
        (39, 0, 0),
        (0, 0, 0),
    ]


def test_a_toll_is_charged_at_the_next_change_and_told_from_the_minute_after() -> None:
    found = answered(
        *crowd(10, 52800),
        at(50, 1, 52700),
        at(80, 1, 52900),
        balance(80, 1, 1),
        balance(110, 1, 2),
        at(110, 1, 58100),
        at(140, 1, 58200),
        balance(140, 1, 3),
    )
    own = found.of(NOTICE)[found.of(NOTICE)[:, 0] == 1]
    assert own.tolist() == [[1, 50, 0, 0], [1, 80, 30, TOLL_OF_60], [1, 110, 0, 0]]
    assert found.of(BALANCE).tolist() == [[80, 1, 0], [110, 2, TOLL_OF_60], [140, 3, TOLL_OF_60]]


@pytest.mark.parametrize(("speed", "cars", "toll"), [(39, 51, 2), (40, 60, 0), (39, 50, 0)])
def test_slow_and_full_segments_cost(speed: int, cars: int, toll: int) -> None:
    found = answered(*crowd(10, 52800, cars, speed), at(70, 1, 52800))
    assert found.of(NOTICE)[-1].tolist() == [1, 70, speed, toll]


def test_a_car_that_leaves_in_the_same_segment_owes_nothing_and_comes_back_as_new() -> None:
    rows = [*crowd(10, 52800), at(70, 1, 52900), at(100, 1, 53000, lane=4), balance(100, 1, 1)]
    again = [at(161, 1, 52800, lane=0), at(191, 1, 58500), balance(200, 1, 2)]
    found = answered(*rows, *again)
    assert found.of(BALANCE).tolist() == [[100, 1, 0], [200, 2, 0]]
    own = found.of(NOTICE)[found.of(NOTICE)[:, 0] == 1]
    assert own[:, 1].tolist() == [70, 161, 191]


def test_a_car_that_leaves_in_a_new_segment_pays_and_gets_no_notice() -> None:
    found = answered(*crowd(10, 52800), at(70, 1, 52900), at(100, 1, 58200, lane=4), balance(100, 1, 1))
    assert found.of(BALANCE).tolist() == [[100, 1, TOLL_OF_60]]
    assert found.of(NOTICE)[-1].tolist() == [1, 70, 30, TOLL_OF_60]


def test_reports_after_the_exit_count_only_from_an_entry_on() -> None:
    rows = [at(0, 1, 100), at(30, 1, 200, lane=4), at(60, 1, 5300), at(90, 1, 10600), at(120, 1, 5300, lane=0)]
    assert answered(*rows).of(NOTICE)[:, 1].tolist() == [0, 120]


def test_a_car_on_another_road_begins_anew_with_the_same_account() -> None:
    elsewhere = [at(130, 1, 52800, xway=1), balance(131, 1, 2)]
    found = answered(*crowd(10, 52800), at(70, 1, 52900), at(100, 1, 58200), *elsewhere)
    assert found.of(BALANCE).tolist() == [[131, 2, TOLL_OF_60]]
    assert found.of(NOTICE)[-1].tolist() == [1, 130, 0, 0]


def stopped(vid: int, begin: int, until: int, **more: int) -> list[dict[str, int]]:
    """Stands at the beginning of segment 10, and then goes on."""
    return [*(at(t, vid, 52810, **more) for t in range(begin, until, 30)), at(until, vid, 52900, **more)]


def warned(found: Answers) -> list[list[int]]:
    return found.of(WARNING)[:, [0, 2, 4]].tolist()


@pytest.mark.parametrize(("way", "segments_warned"), [(0, range(6, 11)), (1, range(10, 15))])
def test_the_zone_of_an_accident(way: int, segments_warned: range) -> None:
    """Both stand from second 0 on: stopped in second 90, the second minute; so the zone is from the third on."""
    cars = [row | {"dir": way} for vid in (1, 2) for row in stopped(vid, 0, 300)]
    before = [at(115, 100 + s, s * 5280 + 9, dir=way) for s in range(20)]
    during = [at(120, 200 + s, s * 5280 + 9, dir=way) for s in range(20)]
    clearing = [at(359, 300 + s, s * 5280 + 9, dir=way) for s in range(20)]
    after = [at(360, 400 + s, s * 5280 + 9, dir=way) for s in range(20)]
    elsewhere = [at(130, 500 + s, s * 5280 + 9, dir=1 - way) for s in range(20)]
    found = answered(*cars, *before, *during, *clearing, *after, *elsewhere)
    expected = [[t, 10, base + s] for t, base in ((120, 200), (359, 300)) for s in segments_warned]
    assert warned(found) == expected


def test_no_accident_without_two_stopped_cars_at_one_spot() -> None:
    other_lane = [*stopped(1, 0, 300), *stopped(2, 0, 300, lane=2)]
    three_reports = [*stopped(1, 0, 300), *stopped(2, 0, 90)]
    probe = at(130, 9, 52815)
    assert warned(answered(*other_lane, probe)) == []
    assert warned(answered(*three_reports, probe)) == []
    assert warned(answered(*stopped(1, 0, 300), *stopped(2, 0, 300), probe)) == [[130, 10, 9]]


def test_no_toll_in_a_zone_and_the_nearest_accident_is_named() -> None:
    far = [row | {"pos": 52810 + 2 * 5280, "seg": 12, "vid": row["vid"] + 10} for row in stopped(1, 0, 300)]
    far += [row | {"vid": 12} for row in far]
    near = [*stopped(1, 0, 300), *stopped(2, 0, 300)]
    found = answered(*far, *near, *crowd(70, 52800), at(130, 8, 52815), at(131, 9, 58100), at(131, 7, 63400))
    assert warned(found) == [[130, 10, 8], [131, 12, 9], [131, 12, 7]]
    assert found.of(NOTICE)[-3:, 3].tolist() == [0, 0, 0]


def test_both_kinds_of_lav() -> None:
    """In minute 1 one car reports twice and another once, in minute 3 one car once."""
    rows = [at(0, 1, 10, speed=10), at(30, 1, 20, speed=30), at(40, 2, 30, speed=50), at(150, 3, 40, speed=61)]
    probe = at(200, 9, 50)
    assert answered(*rows, probe).of(NOTICE)[-1].tolist() == [9, 200, 38, 0]
    assert answered(*rows, probe, lav=Lav.SPEC).of(NOTICE)[-1].tolist() == [9, 200, 48, 0]
    late = at(300, 9, 50)
    assert answered(*rows, late).of(NOTICE)[-1].tolist() == [9, 300, 38, 0]
    assert answered(*rows, at(360, 9, 50)).of(NOTICE)[-1].tolist() == [9, 360, 61, 0]


def test_daily_expenditure_is_in_the_table_or_not_answered() -> None:
    def asked(qid: int, vid: int, day: int, xway: int) -> dict[str, int]:
        return {"type": 3, "time": 7, "vid": vid, "qid": qid, "day": day, "xway": xway}

    tolls = pa.table([[5, 5, 6], [3, 0, 3], [0, 0, 1], [70, 71, 0]], schema=TOLL.arrow)
    rows = table(asked(1, 5, 3, 0), asked(2, 5, 3, 1), asked(3, 5, 0, 0), asked(4, 6, 3, 1), asked(5, 4, 3, 0))
    assert expected_answers(rows, tolls).of(EXPENDITURE).tolist() == [[7, 1, 70], [7, 4, 0]]
    assert len(expected_answers(rows, TOLL.arrow.empty_table()).of(EXPENDITURE)) == 0


def test_travel_time_against_its_definition() -> None:
    statistics = segments(1, 2)
    rows = [
        {"type": 4, "time": 9, "vid": 1, "qid": q, "xway": x, "s_init": a, "s_end": b, "dow": d, "tod": t}
        for q, (x, a, b, d, t) in enumerate([(0, 3, 9, 1, 1), (1, 90, 20, 7, 1440), (0, 5, 5, 3, 480), (2, 1, 2, 1, 1)])
    ]
    found = expected_answers(table(*rows), segments=statistics).of(TRAVEL_TIME).tolist()
    expected = []
    for row in rows[:3]:
        way = 0 if row["s_init"] <= row["s_end"] else 1
        passed = [
            s
            for s in statistics.to_pylist()
            if (s["xway"], s["dir"], s["dow"], s["hour"]) == (row["xway"], way, row["dow"], (row["tod"] - 1) // 60)
            and min(row["s_init"], row["s_end"]) <= s["seg"] <= max(row["s_init"], row["s_end"])
        ]
        seconds = sum(int(3600 / s["lav"] + 0.5) for s in passed)
        expected.append([9, row["qid"], seconds, sum(s["toll"] for s in passed)])
    assert found == expected
    assert statistics.schema == SEGMENT.arrow
    assert np.min(statistics["lav"].to_numpy()) >= 1


def test_an_input_out_of_order_is_refused() -> None:
    with pytest.raises(InputError, match="row 2 of the input is earlier"):
        expected_answers(table(at(5, 1, 1), at(4, 1, 2)))
