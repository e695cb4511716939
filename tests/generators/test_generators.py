"""The generators: the same rows however they are read, and the cardinalities they promise."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connect.generate import Generator
from penstock.generators import callcentre, stock
from penstock.generators.chunks import CHUNK_ROWS
from penstock.lang import parse
from penstock.plan.aggregations import Counts, count
from penstock.plan.physical.readers import aggregations
from penstock.plan.physical.rules import plan_program
from penstock_bench.workloads import callcentre_kpis

START = 1_704_067_200_000_000


def call_centre(seed: int = 1) -> Generator:
    return callcentre.generator(rate=1000, seconds=200, seed=seed, start=START)


def stocks(seed: int = 1) -> Generator:
    return stock.generator(rate=777, seconds=200, seed=seed, start=START)


@pytest.fixture(scope="module")
def calls() -> pa.RecordBatch:
    generator = call_centre()
    return generator.batch(0, 200_000, generator.schema.names)


@pytest.mark.parametrize("make", [call_centre, stocks])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_stretch_of_any_columns_is_the_same(make: type, data: st.DataObject) -> None:
    generator = make()
    names = generator.schema.names
    whole = generator.batch(0, CHUNK_ROWS * 2 + 100, names)
    start = data.draw(st.integers(0, CHUNK_ROWS * 2))
    count = data.draw(st.integers(1, min(CHUNK_ROWS + 5, whole.num_rows - start)))
    some = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    piece = make().batch(start, count, some)
    assert piece.equals(whole.select(some).slice(start, count))


@pytest.mark.parametrize("make", [call_centre, stocks])
def test_the_seed_matters_and_time_does_not_depend_on_it(make: type) -> None:
    one, two = (make(seed).batch(0, 1000, make().schema.names) for seed in (1, 2))
    assert one.column(0).equals(two.column(0))
    assert not one.equals(two)


def test_call_centre_cardinalities(calls: pa.RecordBatch) -> None:
    assert calls.num_columns == 23
    distinct = {name: pc.count_distinct(calls.column(name)).as_py() for name in callcentre.GROUP_KEYS}
    assert distinct == {
        "instance": 4,
        "serviceId": 200,
        "agentId": 12_000,
        "mediaId": 5,
        "interactionLegId": 20_000,
        "agentSite": 20,
        "callSite": 20,
        "direction": 3,
    }
    assert all(pc.min(calls.column(name)).as_py() >= 0 for name in callcentre.FIELDS)
    assert not any(column.null_count for column in calls.columns)
    pairs = pa.Table.from_batches([calls.select(["agentId", "agentSite"])]).group_by(["agentId"])
    assert set(pairs.aggregate([("agentSite", "count_distinct")]).column(1).to_pylist()) == {1}


def test_all_groups_of_the_call_centre() -> None:
    """Every leg comes once in 677,480 events; at 1,000 events a second 10 seconds have about 8,000 groups."""
    generator = callcentre.generator(rate=1000, seconds=0, seed=1, start=START)
    legs = generator.batch(0, callcentre.LEGS * callcentre.LEG_EVENTS, ["interactionLegId"]).column(0)
    assert pc.count_distinct(legs).as_py() == callcentre.LEGS
    others = (callcentre.INSTANCES, callcentre.SERVICES, callcentre.AGENTS, callcentre.MEDIA, callcentre.DIRECTIONS)
    assert sum((*others, callcentre.LEGS, callcentre.SITES, callcentre.SITES)) == 80_000
    slide = generator.batch(500_000, 10_000, callcentre.GROUP_KEYS)
    assert 7_000 < sum(pc.count_distinct(column).as_py() for column in slide.columns) < 9_000


def test_the_example_has_the_papers_kpis() -> None:
    text = (Path(__file__).parents[2] / "examples" / "callcentre_kpis.sql").read_text()
    assert callcentre_kpis.kpi_queries() in text
    program = parse(text)
    groups = aggregations(plan_program(program))
    assert count(groups) == Counts(asked=144, aggregates=104, states=56)
    assert len(groups) == 8


def test_rate_in_event_time(calls: pa.RecordBatch) -> None:
    times = calls.column("timestamp")
    assert times[0].as_py() == datetime(2024, 1, 1, tzinfo=UTC)
    assert times[199_999].as_py() == datetime(2024, 1, 1, 0, 3, 19, 999_000, tzinfo=UTC)
    uneven = stocks().batch(0, 155_400, ["Timestamp"]).column(0).cast(pa.int64()).to_numpy()
    assert uneven.tolist() == [START + i * 1_000_000 // 777 for i in range(155_400)]


def test_stock_cycles_through_its_symbols() -> None:
    ticks = stocks().batch(0, 100_000, ["Symbol", "Price", "Volume"])
    assert ticks.column("Symbol").to_pylist()[:201:100] == ["SYM000"] * 3
    assert pc.count_distinct(ticks.column("Symbol")).as_py() == 100
    cents = pc.multiply(ticks.column("Price"), 100.0)
    assert pc.max(pc.abs(pc.subtract(cents, pc.round(cents)))).as_py() < 1e-6
    assert pc.min_max(ticks.column("Volume")).as_py() == {"min": 1, "max": 10_000}
