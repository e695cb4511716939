"""How cars move: one second of the traffic of all expressways after the other.

A car moves only when it reports, every 30 seconds, so a second touches one car in thirty. All numbers are drawn from
one sequence in the order of the steps, so the traffic depends on the seed and not on how the seconds are grouped.
Speeds are miles per hour, positions are feet from the west end; a mile per hour is 44 feet in 30 seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.instruments import kernel
from penstock_bench.workloads.linear_road.history import road_of_day
from penstock_bench.workloads.linear_road.reports import (
    BALANCE,
    ENTRY_LANE,
    EXIT_LANE,
    EXPENDITURE,
    FEET,
    POSITION,
    REPORT_EVERY,
    SEGMENTS,
    TRAVEL_TIME,
)

Array = np.ndarray[Any, Any]

CAR = np.dtype(
    [
        ("vid", np.int32),
        ("road", np.int32),
        ("way", np.int32),
        ("position", np.int32),
        ("leaves_at", np.int32),
        ("lane", np.int32),
        ("speed", np.int32),
        ("stands", np.int32),
    ]
)
ACCIDENT = np.dtype(
    [
        ("due", np.int64),
        ("active", np.int64),
        ("position", np.int64),
        ("lane", np.int64),
        ("missing", np.int64),
        ("standing", np.int64),
        ("until", np.int64),
    ]
)
"""Of a direction: at most one accident at a time; `missing` cars have yet to run into it."""

WORLD = np.dtype(
    [
        ("random", np.uint64),
        ("seed", np.int64),
        ("roads", np.int64),
        ("first_segment", np.int64),
        ("last_segment", np.int64),
        ("next_vid", np.int64),
        ("next_qid", np.int64),
        ("pool_begin", np.int64),
        ("pool_end", np.int64),
    ]
)

FREE_SPEED, LEAST_SPEED, FREE_CARS, CROWDING = 65.0, 24.0, 100, 0.7
"""With more cars than these in a segment of a direction the speed falls with this power of their number. The power is
less than 1, so that more cars leave a fuller segment and jams dissolve."""

SEEN_AHEAD = 5
"""Segments whose cars slow a car down: its own and those ahead."""

SPREAD = 8
"""How far the speed of a car is from that of its segment."""

JAM_FEET = 2 * FEET
"""So far behind an accident cars crawl."""

FEET_PER_SPEED = FEET * REPORT_EVERY // 3600
QUESTIONS = 0.01
"""Of the position reports; of these half are for balances, a tenth for daily expenditures, the rest for journeys."""

RETURNS = 0.5
"""The chance that a car that enters has been on the road before, if one can be."""

ABSENT_LEAST, ABSENT_SPREAD = 61, 1000
DAYS = 69


@kernel
def draw(world: Any) -> float:
    """The next number in [0, 1) of the sequence (SplitMix64)."""
    world.random += np.uint64(0x9E3779B97F4A7C15)
    mixed = world.random
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return float(mixed >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@kernel
def between(world: Any, least: int, beyond: int) -> int:
    return least + int(draw(world) * (beyond - least))


@kernel
def advance(
    begin: int,
    stop: int,
    wanted: Array,
    world_of_one: Array,
    cars: Array,
    free: Array,
    turns: Array,
    turn_cars: Array,
    counts: Array,
    on_road: Array,
    accidents: Array,
    had_accident: Array,
    pool: Array,
    out: Array,
    full_from: int,
    thinned: int,
    quiet_until: int,
) -> tuple[int, int]:
    """The seconds from `begin` to `stop`, or as many as `out` has room for: the rows written and the next second.

    `turns[k]` are the cars that report in seconds k, k + 30 and so on, `turn_cars[k]` how many; `free` is a stack of
    places in `cars`, with its height in the last element. Rows before `quiet_until` are left out (`out`
    has room for two all the same), and up to `full_from`
    those of all but one car in `thinned`; the traffic is the same.
    """
    world = world_of_one[0]
    rows = 0
    for second in range(begin, stop):
        turn = second % REPORT_EVERY
        wants = wanted[second]
        entering = max(1, (wants + REPORT_EVERY - 1) // REPORT_EVERY)
        if second >= quiet_until and rows + 2 * (turn_cars[turn] + entering * world.roads) > out.shape[1]:
            return rows, second
        for direction in range(len(accidents)):
            _begin_accident(second, direction, world, accidents, had_accident)
        at = 0
        while at < turn_cars[turn]:
            place = turns[turn, at]
            car = cars[place]
            counts[car.road, car.way, car.position // FEET] -= 1
            _move(second, car, world, counts, accidents)
            counts[car.road, car.way, car.position // FEET] += 1
            written = _report(second, car, world, out, rows)
            if second >= quiet_until and (second >= full_from or car.vid % thinned == 0):
                rows = written
            if car.lane == EXIT_LANE:
                counts[car.road, car.way, car.position // FEET] -= 1
                on_road[car.road] -= 1
                if world.pool_end - world.pool_begin < len(pool):
                    there = world.pool_end % len(pool)
                    pool[there, 0], pool[there, 1] = car.vid, second
                    world.pool_end += 1
                turn_cars[turn] -= 1
                turns[turn, at] = turns[turn, turn_cars[turn]]
                free[-1] += 1
                free[free[-1] - 1] = place
            else:
                at += 1
        for road in range(world.roads):
            room = turns.shape[1] - turn_cars[turn]
            for _ in range(min(max(wants - on_road[road], 0), entering, room)):
                place = free[free[-1] - 1]
                free[-1] -= 1
                car = cars[place]
                _enter(second, road, car, world, pool)
                on_road[road] += 1
                counts[road, car.way, car.position // FEET] += 1
                turns[turn, turn_cars[turn]] = place
                turn_cars[turn] += 1
                written = _report(second, car, world, out, rows)
                if second >= quiet_until and (second >= full_from or car.vid % thinned == 0):
                    rows = written
    return rows, stop


@kernel
def _enter(second: int, road: int, car: Any, world: Any, pool: Array) -> None:
    """A car comes onto the road: one that left it some time ago, or a new one. Two random segments are its journey."""
    here = world.pool_begin % len(pool)
    absent = ABSENT_LEAST + pool[here, 0] * 7919 % ABSENT_SPREAD
    if world.pool_begin < world.pool_end and second > pool[here, 1] + absent and draw(world) < RETURNS:
        car.vid = pool[here, 0]
        world.pool_begin += 1
    else:
        car.vid = world.next_vid
        world.next_vid += 1
    one = between(world, world.first_segment, world.last_segment + 1)
    other = between(world, world.first_segment, world.last_segment)
    if other >= one:
        other += 1
    car.road, car.stands, car.lane, car.speed = road, 0, ENTRY_LANE, 10
    if one < other:
        car.way, car.position, car.leaves_at = 0, one * FEET, (other + 1) * FEET - 1
    else:
        car.way, car.position, car.leaves_at = 1, (one + 1) * FEET - 1, other * FEET


@kernel
def _move(second: int, car: Any, world: Any, counts: Array, accidents: Array) -> None:
    accident = accidents[2 * car.road + car.way]
    if car.stands:
        if accident.missing > 0 or second < accident.until:
            return
        car.stands = 0
        accident.standing -= 1
        if accident.standing == 0:
            accident.active = 0
    ahead = 1 if car.way == 0 else -1
    to_accident = (accident.position - car.position) * ahead
    if accident.active and accident.missing < 2 and 0 < to_accident < JAM_FEET:
        car.speed = between(world, 12, 21)
    else:
        segment, cars = car.position // FEET, 0
        for k in range(SEEN_AHEAD):
            cars += counts[car.road, car.way, min(max(segment + k * ahead, 0), SEGMENTS - 1)]
        crowd = max(cars / SEEN_AHEAD, FREE_CARS)
        flow = int(max(FREE_SPEED * (FREE_CARS / crowd) ** CROWDING, LEAST_SPEED))
        car.speed = flow + between(world, -SPREAD, SPREAD + 1)
    car.lane = between(world, 1, EXIT_LANE)
    to_go = car.speed * FEET_PER_SPEED
    to_exit = (car.leaves_at - car.position) * ahead
    if accident.active and accident.missing > 0 and 0 < to_accident <= to_go and to_accident < to_exit:
        car.position, car.lane, car.speed, car.stands = accident.position, accident.lane, 0, 1
        accident.missing -= 1
        accident.standing += 1
        accident.until = second + between(world, 600, 1201)
    elif to_go >= to_exit:
        car.position, car.lane = car.leaves_at, EXIT_LANE
    else:
        car.position += to_go * ahead


@kernel
def _begin_accident(second: int, number: int, world: Any, accidents: Array, had_accident: Array) -> None:
    """When one is due: two cars that come by a random place stop there. No segment has a second one."""
    accident = accidents[number]
    if second < accident.due or accident.active:
        return
    segment = between(world, world.first_segment, world.last_segment + 1)
    accident.due = second + 1
    if had_accident[number, segment]:
        return
    had_accident[number, segment] = 1
    accident.due = second + between(world, 1200, 2401)
    accident.position = segment * FEET + between(world, 500, FEET - 500)
    accident.lane = between(world, 1, EXIT_LANE)
    accident.active, accident.missing, accident.standing = 1, 2, 0


@kernel
def _report(second: int, car: Any, world: Any, out: Array, row: int) -> int:
    """Writes the report of a car and sometimes a question after it; returns the next free row."""
    _fill(second, car, out, row)
    row += 1
    if draw(world) >= QUESTIONS:
        return row
    _fill(second, car, out, row)
    out[9, row] = world.next_qid
    world.next_qid += 1
    kind = draw(world)
    if kind < 0.5:
        out[0, row] = BALANCE
    elif kind < 0.6:
        out[0, row] = EXPENDITURE
        day = between(world, 1, DAYS + 1)
        out[4, row] = road_of_day(world.seed, world.roads, car.vid, day)
        out[14, row] = day
    else:
        out[0, row] = TRAVEL_TIME
        out[10, row], out[11, row] = between(world, 0, SEGMENTS), between(world, 0, SEGMENTS)
        out[12, row], out[13, row] = between(world, 1, 8), between(world, 1, 1441)
    return row + 1


@kernel
def _fill(second: int, car: Any, out: Array, row: int) -> None:
    out[0, row], out[1, row], out[2, row], out[3, row] = POSITION, second, car.vid, car.speed
    out[4, row], out[5, row], out[6, row] = car.road, car.lane, car.way
    out[7, row], out[8, row] = car.position // FEET, car.position
    for column in range(9, 15):
        out[column, row] = -1
