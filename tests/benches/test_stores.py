"""The network of stores computes the same answers however its stores are made, and they are right."""

from __future__ import annotations

import numpy as np
import pytest

from penstock_bench.benches import engine_stores
from penstock_bench.benches.linear_road_network import (
    BASELINE,
    WITH_READ,
    WITH_UPDATE,
    Knowledge,
    pass_through,
    positions,
)
from penstock_bench.benches.stores import queue_response
from penstock_bench.workloads.linear_road.traffic import Traffic

TRAFFIC = Traffic(begin=10_000, seconds=10_150, stretch=(49, 51))


def balances_by_hand() -> dict[int, int]:
    """What each driver pays, recomputed without stores: the toll of the segment a minute ago, none at an accident."""
    reports = positions(TRAFFIC)
    minutes: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for time, car, speed, _, _, direction, segment, _ in reports:
        minutes.setdefault((time // 60, direction, segment), []).append((car, speed))
    tolls = {}
    for place, seen in minutes.items():
        cars, mean = len({car for car, _ in seen}), sum(speed for _, speed in seen) // len(seen)
        tolls[place] = 2 * (cars - 50) ** 2 if mean < 40 and cars > 50 else cars
    balance: dict[int, int] = {}
    segment_of: dict[int, int] = {}
    accidents: dict[int, tuple[int, int]] = {}
    for before, report in zip([None, *reports], reports, strict=False):
        time, car, speed, _, _, direction, segment, position = report
        if before is not None and before[0] // 60 == time // 60:
            if speed:
                accidents.pop(car, None)
            elif before[2] == 0 and before[7] == position and car not in accidents:
                accidents[car] = direction, segment
        if segment_of.get(car) != segment:
            segment_of[car] = segment
            if time >= 60:
                blocked = (direction, segment) in accidents.values()
                toll = 0 if blocked else tolls.get((time // 60 - 1, direction, segment), 0)
                balance[car] = balance.get(car, 0) + toll
    return balance


@pytest.mark.parametrize("knowledge", [BASELINE, WITH_UPDATE, WITH_READ], ids=lambda k: k.name)
def test_every_network_gives_the_right_answers(knowledge: Knowledge) -> None:
    passage = pass_through(knowledge, positions(TRAFFIC))
    assert passage.balance == balances_by_hand()
    assert sum(passage.alerts) > 100


def test_the_stores_of_the_engine_hold_the_same_rows_whatever_they_are_told() -> None:
    rows = np.random.default_rng(5).integers(0, 100, (3, 7000))
    reports = engine_stores.Reports(np.sort(rows[0]), rows[1], rows[2])
    figures = engine_stores.measure(reports, rounds=1)
    assert figures["engine_answers_equal"]
    assert [step["stores"] for step in figures["engine_steps"]] == [k.name for k in (BASELINE, WITH_UPDATE, WITH_READ)]


def test_a_queue_against_its_definition() -> None:
    random = np.random.default_rng(3)
    arrivals, service = np.cumsum(random.exponential(1, 500)), random.exponential(0.9, 500)
    free, expected = 0.0, []
    for arrival, taken in zip(arrivals, service, strict=True):
        free = max(free, arrival) + taken
        expected.append(free - arrival)
    assert np.allclose(queue_response(arrivals, service), expected)
