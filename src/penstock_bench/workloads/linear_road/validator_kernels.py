"""The loops of the validator: following the rides, and answering row by row.

Minutes are counted from the first row's. Tables are by place (road · 100 + segment) and minute.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.instruments import kernel
from penstock_bench.workloads.linear_road.reports import ENTRY_LANE, EXIT_LANE, SEGMENTS

Ints = NDArray[np.int64]
Column = NDArray[np.int32]
Table = NDArray[np.int32]
Flags = NDArray[np.bool_]

IGNORED, SAME_SEGMENT, NEW_SEGMENT, ENTERED = 0, 1, 2, 3
"""What a position report is; a car that entered is in a new segment, too."""

NEW_ENTRY_AFTER = 60
STOPPED_AFTER = 4
ZONE = 5
LOOK_BACK = 5
FEWEST_CARS, FAST = 50, 40
_PLACE, _DETECTED, _CLEARED = 0, 1, 2
_STANDING, _ACCIDENT = 3, 4


@kernel
def numbered(keys: Ints) -> tuple[Ints, int]:
    """Numbers equal keys alike, from 0 on in the order in which they come; a negative key gets -1."""
    size = 1024
    slots, numbers = np.full(size, -1, np.int64), np.zeros(size, np.int64)
    out = np.full(len(keys), -1, np.int64)
    count = 0
    for row in range(len(keys)):
        key = keys[row]
        if key < 0:
            continue
        if 2 * count >= size:
            old, old_numbers = slots, numbers
            size *= 4
            slots, numbers = np.full(size, -1, np.int64), np.zeros(size, np.int64)
            for i in range(len(old)):
                if old[i] >= 0:
                    at = _slot(old[i], slots)
                    slots[at], numbers[at] = old[i], old_numbers[i]
        at = _slot(key, slots)
        if slots[at] < 0:
            slots[at], numbers[at] = key, count
            count += 1
        out[row] = numbers[at]
    return out, count


@kernel
def _slot(key: int, slots: Ints) -> int:
    mask = len(slots) - 1
    at = int((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
    while slots[at] >= 0 and slots[at] != key:
        at = (at + 1) & mask
    return at


@kernel
def follow(
    is_position: Flags,
    time: Column,
    minute: Column,
    ride: Ints,
    rides: int,
    lane: Column,
    position: Column,
    place: Column,
    speed: Column,
    cars: Table,
    speeds: Table,
    readings: Table,
) -> tuple[NDArray[np.int8], Ints]:
    """Says of each row what it is, fills the statistics of places and minutes, and finds the accidents: their places
    and the minutes of detection and clearing."""
    step = np.zeros(len(time), np.int8)
    last = np.full(rides, -1, np.int64)
    """The last row of a ride that was not ignored."""
    repeats = np.zeros(rides, np.int64)
    standing = np.full(rides, -1, np.int64)
    """Of a car that has stopped: its spot."""
    seen_minute = np.full(rides, -1, np.int64)
    seen = np.zeros((rides, 2), np.uint64)
    """The segments that a car was counted in, in that minute."""
    spots = np.full((64, 5), -1, np.int64)
    """Where cars have stopped: place, position, lane, how many stand there now, and the last accident there."""
    spot_count = 0
    accidents = np.full((64, 3), -1, np.int64)
    accident_count = 0
    for row in range(len(time)):
        if not is_position[row]:
            continue
        car = ride[row]
        before = last[car]
        if before >= 0 and lane[row] == ENTRY_LANE and time[row] > time[before] + NEW_ENTRY_AFTER:
            repeats[car] = 0
            before = -1
        if before >= 0 and lane[before] == EXIT_LANE and lane[row] != ENTRY_LANE:
            continue
        if before >= 0 and position[before] == position[row] and lane[before] == lane[row]:
            step[row] = SAME_SEGMENT
            repeats[car] += 1
            if repeats[car] == STOPPED_AFTER:
                spot = _spot_at(place[row], position[row], lane[row], spots, spot_count)
                if spot == spot_count:
                    if spot_count == len(spots):
                        spots = _grown(spots)
                    spots[spot, 0], spots[spot, 1], spots[spot, 2] = place[row], position[row], lane[row]
                    spots[spot, _STANDING] = 0
                    spot_count += 1
                standing[car] = spot
                spots[spot, _STANDING] += 1
                if spots[spot, _STANDING] == 2:
                    if accident_count == len(accidents):
                        accidents = _grown(accidents)
                    accidents[accident_count, _PLACE] = place[row]
                    accidents[accident_count, _DETECTED] = minute[row]
                    spots[spot, _ACCIDENT] = accident_count
                    accident_count += 1
        else:
            if standing[car] >= 0:
                spots[standing[car], _STANDING] -= 1
                if spots[standing[car], _STANDING] == 1:
                    accidents[spots[standing[car], _ACCIDENT], _CLEARED] = minute[row]
                standing[car] = -1
            repeats[car] = 1
            if before < 0:
                step[row] = ENTERED
            else:
                step[row] = SAME_SEGMENT if place[before] == place[row] else NEW_SEGMENT
        last[car] = row
        speeds[place[row], minute[row]] += speed[row]
        readings[place[row], minute[row]] += 1
        if seen_minute[car] != minute[row]:
            seen_minute[car] = minute[row]
            seen[car, 0] = seen[car, 1] = np.uint64(0)
        segment = place[row] % SEGMENTS
        bit = np.uint64(1) << np.uint64(segment % 64)
        if not seen[car, segment // 64] & bit:
            seen[car, segment // 64] |= bit
            cars[place[row], minute[row]] += 1
    return step, accidents[:accident_count]


@kernel
def _spot_at(place: int, position: int, lane: int, spots: Ints, count: int) -> int:
    """The spot of that place, position and lane; `count` if there is none yet."""
    for i in range(count):
        if spots[i, 0] == place and spots[i, 1] == position and spots[i, 2] == lane:
            return i
    return count


@kernel
def _grown(table: Ints) -> Ints:
    grown = np.full((2 * len(table), table.shape[1]), -1, np.int64)
    grown[: len(table)] = table
    return grown


@kernel
def pooled(speeds: Table, readings: Table) -> Table:
    """For each place and minute the sum of the speeds by the readings of the five minutes before, rounded half up."""
    out = np.zeros(speeds.shape, np.int32)
    for place in range(speeds.shape[0]):
        for minute in range(1, speeds.shape[1]):
            total, count = 0, 0
            for back in range(1, min(LOOK_BACK, minute) + 1):
                total += speeds[place, minute - back]
                count += readings[place, minute - back]
            if count:
                out[place, minute] = (2 * total + count) // (2 * count)
    return out


@kernel
def mean_of_five(means: NDArray[np.float64], seen: Flags) -> Table:
    """For each place and minute the mean of those of the five minutes before that have one, rounded half up."""
    out = np.zeros(means.shape, np.int32)
    for place in range(means.shape[0]):
        for minute in range(1, means.shape[1]):
            total, count = 0.0, 0
            for back in range(1, min(LOOK_BACK, minute) + 1):
                if seen[place, minute - back]:
                    total += means[place, minute - back]
                    count += 1
            if count:
                out[place, minute] = int(np.floor(total / count + 0.5))
    return out


@kernel
def zones(accidents: Ints, places: int, minutes: int) -> NDArray[np.int8]:
    """For each place and minute the segment of the nearest accident ahead, at most four segments away, or -1."""
    out = np.full((places, minutes), -1, np.int8)
    for at in range(len(accidents)):
        road, segment = divmod(accidents[at, _PLACE], SEGMENTS)
        stop = accidents[at, _CLEARED] + 1 if accidents[at, _CLEARED] >= 0 else minutes
        for behind in range(ZONE):
            where = segment - behind if road % 2 == 0 else segment + behind
            if 0 <= where < SEGMENTS:
                for minute in range(accidents[at, _DETECTED] + 1, stop):
                    there = out[road * SEGMENTS + where, minute]
                    if there < 0 or abs(there - where) > behind:
                        out[road * SEGMENTS + where, minute] = segment
    return out


@kernel
def answer(
    is_position: Flags,
    time: Column,
    minute: Column,
    ride: Ints,
    rides: int,
    account: Ints,
    accounts: int,
    lane: Column,
    place: Column,
    step: NDArray[np.int8],
    cars: Table,
    average: Table,
    zones: NDArray[np.int8],
) -> tuple[Ints, Ints, Ints]:
    """Notices (row, LAV, toll), warnings (row, segment) and balances (row, balance)."""
    notices, warnings = np.empty((len(time), 3), np.int64), np.empty((len(time), 2), np.int64)
    balances = np.empty((len(time), 2), np.int64)
    told, warned, asked, answered = 0, 0, 0, 0
    owed = np.zeros(rides, np.int64)
    paid = np.zeros(accounts, np.int64)
    for row in range(len(time)):
        if row and time[row] != time[row - 1]:
            answered = _answer_balances(balances, answered, asked, account, paid)
        if not is_position[row]:
            balances[asked, 0] = row
            asked += 1
            continue
        if step[row] < NEW_SEGMENT:
            continue
        car, here, now = ride[row], place[row], minute[row]
        if step[row] == NEW_SEGMENT:
            paid[account[row]] += owed[car]
        owed[car] = 0
        if lane[row] == EXIT_LANE:
            continue
        zone = zones[here, now]
        lav = average[here, now]
        crowd = cars[here, now - 1] if now else 0
        toll = 2 * (crowd - FEWEST_CARS) ** 2 if crowd > FEWEST_CARS and lav < FAST and zone < 0 else 0
        owed[car] = toll
        notices[told, 0], notices[told, 1], notices[told, 2] = row, lav, toll
        told += 1
        if zone >= 0:
            warnings[warned, 0], warnings[warned, 1] = row, zone
            warned += 1
    _answer_balances(balances, answered, asked, account, paid)
    return notices[:told].copy(), warnings[:warned].copy(), balances[:asked].copy()


@kernel
def _answer_balances(balances: Ints, begin: int, end: int, account: Ints, paid: Any) -> int:
    for at in range(begin, end):
        balances[at, 1] = paid[account[balances[at, 0]]]
    return end
