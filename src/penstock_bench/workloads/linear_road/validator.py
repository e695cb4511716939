"""The answers of Linear Road, recomputed from its rules: plain loops over the columns of the input, row by row.

Nothing here is shared with an application. The rules are in docs/linear-road.md. A road is one direction of one
expressway, a place is a segment of a road, a ride is a car on a road; a car has one account for all its rides.
Statistics are tables of places by minutes, so that a minute is complete when a later one looks at it.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.errors import InputError
from penstock_bench.workloads.linear_road import answers as kinds
from penstock_bench.workloads.linear_road import validator_kernels as kernels
from penstock_bench.workloads.linear_road.answers import Answers
from penstock_bench.workloads.linear_road.reports import BALANCE, EXPENDITURE, POSITION, SEGMENTS, TRAVEL_TIME

Ints = NDArray[np.int64]


class Lav(StrEnum):
    """How the average speed of a segment is computed: as the public validator does, or as the VLDB paper says."""

    POOLED = "pooled"
    SPEC = "spec"


def expected_answers(
    reports: pa.Table, tolls: pa.Table | None = None, segments: pa.Table | None = None, lav: Lav = Lav.POOLED
) -> Answers:
    """All answers to an input in the order of time; without the table that a type of question needs, none of it."""
    time = _numbers(reports, "time")
    disorder = np.flatnonzero(np.diff(time) < 0)
    if len(disorder):
        raise InputError(
            f"row {disorder[0] + 2} of the input is earlier than the one before it: rows must be in order."
        )
    rows = _on_the_road(reports, lav)
    if tolls is not None:
        rows[kinds.EXPENDITURE] = _expenditures(reports, tolls)
    if segments is not None:
        rows[kinds.TRAVEL_TIME] = _travel_times(reports, segments)
    return Answers(rows)


def _on_the_road(reports: pa.Table, lav: Lav) -> dict[int, Ints]:
    """Notices, warnings and balances."""
    names = ["type", "time", "vid", "speed", "xway", "lane", "dir", "seg", "pos", "qid"]
    table = reports.select(names).filter(pc.less_equal(reports["type"], BALANCE))
    kind, time, vid, speed, xway, lane, way, segment, position, qid = map(_column, table.columns)
    is_position = kind == POSITION
    xways = int(xway.max(initial=0)) + 1
    roads = 2 * xways
    road = 2 * xway + way
    first = int(time[0]) // 60 if len(time) else 0
    minute = time // 60 - first
    """Counted from the first row's."""
    minutes = int(minute[-1]) + 1 if len(time) else 1
    ride, rides = kernels.numbered(np.where(is_position, vid.astype(np.int64) * roads + road, -1))
    account, accounts = kernels.numbered(vid.astype(np.int64))
    place = road * SEGMENTS + segment
    shape = (roads * SEGMENTS, minutes)
    cars, speeds, readings = (np.zeros(shape, np.int32) for _ in range(3))
    step, accidents = kernels.follow(
        is_position, time, minute, ride, rides, lane, position, place, speed, cars, speeds, readings
    )
    if lav is Lav.POOLED:
        average = kernels.pooled(speeds, readings)
    else:
        counted = step != kernels.IGNORED
        average = _spec(ride[counted], minute[counted], place[counted], speed[counted], shape)
    zones = kernels.zones(accidents, *shape)
    notices, warnings, balances = kernels.answer(
        is_position, time, minute, ride, rides, account, accounts, lane, place, step, cars, average, zones
    )
    told, warned, asked = notices[:, 0], warnings[:, 0], balances[:, 0]
    return {
        kinds.NOTICE: np.stack([vid[told], time[told], notices[:, 1], notices[:, 2]], axis=1),
        kinds.WARNING: np.stack([time[warned], xway[warned], warnings[:, 1], way[warned], vid[warned]], axis=1),
        kinds.BALANCE: np.stack([time[asked], qid[asked], balances[:, 1]], axis=1),
    }


def _spec(
    ride: Ints, minute: kernels.Column, place: kernels.Column, speeds: kernels.Column, shape: tuple[int, int]
) -> kernels.Table:
    """The mean over minutes of the mean over cars of the mean speed of the car, for the five minutes before each."""
    order = np.lexsort((ride, place, minute))
    minute, place, ride, speed = minute[order], place[order], ride[order], speeds[order].astype(np.float64)
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (np.diff(minute) != 0) | (np.diff(place) != 0) | (np.diff(ride) != 0)
    starts = np.flatnonzero(begins)
    sizes = np.diff(np.append(starts, len(order)))
    of_car = np.add.reduceat(speed, starts) / sizes if len(starts) else speed
    total, cars = np.zeros(shape), np.zeros(shape)
    np.add.at(total, (place[starts], minute[starts]), of_car)
    np.add.at(cars, (place[starts], minute[starts]), 1)
    seen = cars > 0
    means = np.divide(total, cars, out=np.zeros(shape), where=seen)
    return kernels.mean_of_five(means, seen)


def _expenditures(reports: pa.Table, tolls: pa.Table) -> Ints:
    """One answer to each question that has a row in the table; of rows with the same key the last one counts."""
    asked = reports.filter(pc.equal(reports["type"], EXPENDITURE))
    asked = asked.filter(pc.not_equal(asked["day"], 0))
    kept, toll = _keys(tolls), _numbers(tolls, "toll")
    if not len(kept):
        return np.empty((0, 3), np.int64)
    order = np.argsort(kept, kind="stable")
    wanted = _keys(asked)
    found = order[np.maximum(np.searchsorted(kept, wanted, "right", sorter=order) - 1, 0)]
    rows = np.stack([_numbers(asked, "time"), _numbers(asked, "qid"), toll[found]], axis=1)
    answered: Ints = rows[kept[found] == wanted]
    return answered


def _keys(table: pa.Table) -> Ints:
    """One number for a car, a day and an expressway."""
    vid, day, xway = (_numbers(table, name) for name in ("vid", "day", "xway"))
    keys: Ints = (vid << 28) + (day << 20) + xway
    return keys


def _travel_times(reports: pa.Table, segments: pa.Table) -> Ints:
    """Sums over the journey are differences of sums over the whole road up to its two ends."""
    names = ("xway", "dir", "dow", "hour", "seg", "lav", "toll")
    road, way, day, hour, segment, speed, toll = (_numbers(segments, name) for name in names)
    shape = (int(road.max(initial=0)) + 1, 2, 8, 24, SEGMENTS + 1)
    sums = np.zeros((3, *shape), np.int64)
    sums[:, road, way, day, hour, segment + 1] = (7200 + speed) // (2 * speed), toll, np.ones_like(toll)
    sums = sums.cumsum(axis=-1)
    asked = reports.filter(pc.equal(reports["type"], TRAVEL_TIME))
    time, qid, xway, begin, end, dow, tod = (
        _numbers(asked, name) for name in ("time", "qid", "xway", "s_init", "s_end", "dow", "tod")
    )
    known = (xway >= 0) & (xway < shape[0]) & (dow >= 1) & (dow <= 7) & (tod >= 1) & (tod <= 1440)
    time, qid, xway, begin, end, dow, tod = (part[known] for part in (time, qid, xway, begin, end, dow, tod))
    way = (begin > end).astype(np.int64)
    upper, lower = np.maximum(begin, end) + 1, np.minimum(begin, end)
    hours = sums[:, xway, way, dow, (tod - 1) // 60]
    rows_of = np.arange(len(time))
    seconds, tolls, passed = hours[:, rows_of, upper] - hours[:, rows_of, lower]
    rows: Ints = np.stack([time, qid, seconds, tolls], axis=1)[passed > 0]
    return rows


def _column(column: pa.ChunkedArray) -> kernels.Column:
    """Always a copy: kernels are compiled for arrays that may be written."""
    copied: kernels.Column = column.to_numpy().astype(np.int32)
    return copied


def _numbers(table: pa.Table, name: str) -> Ints:
    column: Ints = table[name].to_numpy().astype(np.int64)
    return column
