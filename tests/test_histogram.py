"""Histograms against what numpy says of the values themselves."""

from __future__ import annotations

import json
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.histogram import LONGEST, Histogram

DURATIONS = st.lists(st.one_of(st.integers(0, 2000), st.integers(0, LONGEST)), min_size=1, max_size=200)
PERCENTS = (0.1, 25, 50, 90, 99, 99.9, 100)


def of(values: list[int]) -> Histogram:
    made = Histogram()
    made.record(np.array(values, np.int64))
    return made


def same(one: Histogram, other: Histogram) -> bool:
    return one.to_json() == other.to_json() and one.count == other.count


@given(DURATIONS)
def test_percentiles_are_near_the_exact_ones(values: list[int]) -> None:
    histogram = of(values)
    for percent in PERCENTS:
        exact = float(np.percentile(np.array(values), percent, method="inverted_cdf"))
        assert histogram.percentile(percent) == pytest.approx(exact, rel=0.004)
    assert (histogram.min, histogram.max, histogram.sum) == (min(values), max(values), sum(values))
    assert histogram.squares == sum(value * value for value in values)
    assert histogram.mean == pytest.approx(statistics.fmean(values))
    if len(values) > 1:
        assert histogram.stdev == pytest.approx(statistics.stdev(values))


@given(DURATIONS, DURATIONS)
def test_what_is_added_can_be_taken_away(before: list[int], after: list[int]) -> None:
    earlier, both = of(before), of(before + after)
    merged = earlier.copy()
    merged.merge(of(after))
    assert same(merged, both)
    rest = both.minus(earlier)
    assert (rest.count, rest.sum, rest.squares) == (len(after), sum(after), sum(value * value for value in after))
    assert [part.tolist() for part in rest.bars()] == [part.tolist() for part in of(after).bars()]
    assert rest.min <= min(after)
    assert rest.max >= max(after)
    assert rest.min == pytest.approx(min(after), rel=0.008)
    assert rest.max == pytest.approx(max(after), rel=0.008)
    with pytest.raises(ValueError, match="does not"):
        earlier.minus(of([*before, *after]))


@given(st.lists(st.tuples(st.integers(-5, LONGEST * 2), st.integers(1, 5))))
def test_one_by_one_is_the_same(counted: list[tuple[int, int]]) -> None:
    singly = Histogram()
    for value, count in counted:
        singly.add(value, count)
    assert same(singly, of([value for value, count in counted for _ in range(count)]))


@given(st.lists(st.integers(0, LONGEST)))
def test_json_there_and_back(values: list[int]) -> None:
    histogram = of(values)
    assert same(Histogram.from_json(json.loads(json.dumps(histogram.to_json()))), histogram)


@given(DURATIONS)
def test_bars_hold_the_values(values: list[int]) -> None:
    low, high, counts = of(values).bars()
    assert counts.sum() == len(values)
    for begin, end, count in zip(low.tolist(), high.tolist(), counts.tolist(), strict=True):
        assert sum(begin <= value < end for value in values) == count


def test_beyond_both_ends() -> None:
    histogram = of([-5, 10, LONGEST * 1000, 2**60])
    assert (histogram.count, histogram.min, histogram.max) == (4, -5, 2**60)
    assert histogram.squares == 25 + 100 + (LONGEST * 1000) ** 2 + 2**120
    assert histogram.percentile(100) == 2**60
    assert histogram.minus(of([10])).min == -5
    assert histogram.minus(of([10])).max == 2**60


def test_nothing_recorded() -> None:
    nothing = of([])
    assert (nothing.count, nothing.mean, nothing.stdev, nothing.percentile(99)) == (0, 0.0, 0.0, 0.0)
    nothing.merge(Histogram())
    assert same(nothing.minus(Histogram()), Histogram())


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"buckets": [1], "counts": [1, 2], "sum": 0, "squares": 0, "min": 0, "max": 0},
        {"buckets": [10**6], "counts": [1], "sum": 0, "squares": 0, "min": 0, "max": 0},
        {"buckets": [1], "counts": [-1], "sum": 0, "squares": 0, "min": 0, "max": 0},
        {"buckets": ["x"], "counts": [1], "sum": 0, "squares": 0, "min": 0, "max": 0},
        {"buckets": [2**70], "counts": [1], "sum": 0, "squares": 0, "min": 0, "max": 0},
    ],
)
def test_what_is_no_histogram(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Histogram.from_json(data)


def test_recording_a_chunked_array_is_exact() -> None:
    values = np.random.default_rng(1).integers(0, 2**41, (1 << 20) + 1000)
    histogram = Histogram()
    histogram.record(values)
    assert histogram.sum == sum(values.tolist())
    assert histogram.squares == sum(value * value for value in values.tolist())
