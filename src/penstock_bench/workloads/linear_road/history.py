"""The ten weeks before the three hours, made from a seed: what cars paid, and how the segments were.

Both tables are computed from their keys, so any part of them can be made alone. On each day a car was on one
expressway. Segments are slow and dear in the morning and in the evening of working days, most so in the middle of the
road.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.instruments import kernel
from penstock.types import Field, Schema, SqlType
from penstock_bench.workloads.linear_road.reports import SEGMENTS

DAYS = 69
TOLL = Schema(tuple(Field(name, SqlType.INT, nullable=False) for name in ("vid", "day", "xway", "toll")))
SEGMENT = Schema(
    tuple(Field(name, SqlType.INT, nullable=False) for name in ("xway", "dir", "seg", "dow", "hour", "lav", "toll"))
)
Ints = NDArray[np.int32]


@kernel
def mixed(seed: int, one: int, other: int, third: int) -> int:
    """A number from 0 to 2³¹ − 1 that depends on all four."""
    value = np.uint64(seed)
    for part in (np.uint64(one), np.uint64(other), np.uint64(third)):
        value = (value ^ part) + np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        value ^= value >> np.uint64(31)
    return int(value >> np.uint64(33))


@kernel
def road_of_day(seed: int, roads: int, vid: int, day: int) -> int:
    """The expressway on which a car was that day."""
    return mixed(seed, 1, vid, day) % roads


def tolls(seed: int, roads: int, vids: NDArray[Any]) -> pa.Table:
    """What these cars paid on each of the 69 days: vid, day, expressway and toll."""
    columns = _tolls(seed, roads, np.asarray(vids, np.int64))
    return pa.table(list(columns), schema=TOLL.arrow)


def segments(seed: int, roads: int) -> pa.Table:
    """The mean speed and toll of each segment in each hour of the week."""
    columns = _segments(seed, roads)
    return pa.table(list(columns), schema=SEGMENT.arrow)


@kernel
def _tolls(seed: int, roads: int, vids: NDArray[np.int64]) -> Ints:
    out = np.empty((4, len(vids) * DAYS), np.int32)
    row = 0
    for vid in vids:
        for day in range(1, DAYS + 1):
            out[0, row], out[1, row] = vid, day
            out[2, row] = road_of_day(seed, roads, vid, day)
            out[3, row] = mixed(seed, 2, vid, day) % 100
            row += 1
    return out


@kernel
def _segments(seed: int, roads: int) -> Ints:
    out = np.empty((7, roads * 2 * SEGMENTS * 7 * 24), np.int32)
    row = 0
    for road in range(roads):
        for way in range(2):
            for segment in range(SEGMENTS):
                middle = 1.0 - abs(segment - SEGMENTS / 2) / (SEGMENTS / 2)
                for day in range(1, 8):
                    for hour in range(24):
                        rush = max(1.0 - abs(hour - 8) / 3, 1.0 - abs(hour - 17) / 3, 0.1)
                        crowd = middle * rush * (1.0 if day <= 5 else 0.4)
                        drawn = mixed(seed, 3 + road * 2 + way, segment, day * 24 + hour)
                        speed = int(65 - 45 * crowd) + drawn % 11 - 5
                        out[0, row], out[1, row], out[2, row] = road, way, segment
                        out[3, row], out[4, row], out[5, row] = day, hour, speed
                        out[6, row] = 2 * int(300 * crowd) ** 2 // 10 if speed < 40 else 0
                        row += 1
    return out
