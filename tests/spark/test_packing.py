"""Packing: nothing is lost on the way into packed rows and back, and every bucket hears the time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.expressions.tree import Column
from penstock.lang.query import StreamDef
from penstock.plan.placement import Placement, Spread
from penstock.spark.packing import CLOCK, EVENTS, REJECTED, REJECTS, Packer, decode
from penstock.spark.shares import Share, StreamPart
from penstock.types import Field, Schema, SqlType

STREAM = StreamDef(
    "s",
    Schema((Field("t", SqlType.TIMESTAMP), Field("k", SqlType.STRING), Field("v", SqlType.DOUBLE))),
    event_time="t",
)
SCHEMA = STREAM.schema.arrow
LABELS = ("a", "b", "c")

events = st.fixed_dictionaries(
    {
        "t": st.none() | st.integers(0, 10**12),
        "k": st.none() | st.sampled_from("abcdef"),
        "v": st.none() | st.floats(allow_nan=False),
    }
)


def by_key(stream: StreamDef, labels: tuple[str, ...], reports: bool = True) -> Share:
    placement = Placement(Spread.BY_KEY, ((stream.name, (Column("k", SqlType.STRING),)),))
    return Share(labels[0], placement, (), (), (StreamPart(stream, reports, False),), labels)


def packed_rows(packer: Packer, inputs: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in packer.pack(iter(inputs)) for row in batch.to_pylist()]


def micros(batch: pa.RecordBatch) -> list[int | None]:
    return batch.column("t").cast(pa.int64()).to_pylist()


@given(st.lists(st.lists(events, max_size=8), max_size=5))
def test_round_trip(batches: list[list[dict[str, object]]]) -> None:
    inputs = [pa.RecordBatch.from_pylist(rows, SCHEMA) for rows in batches]
    rows = packed_rows(Packer(STREAM, (by_key(STREAM, LABELS),)), inputs)
    bucket_of_key: dict[object, str] = {}
    seen = []
    for row in (r for r in rows if r["kind"] == EVENTS):
        batch = decode(row["payload"], SCHEMA)
        assert (row["t_min"], row["t_max"]) == (min(micros(batch)), max(micros(batch)))
        for event in batch.to_pylist():
            assert bucket_of_key.setdefault(event["k"], row["bucket"]) == row["bucket"]
            seen.append(event)
    given_events = [event for batch in inputs for event in batch.to_pylist()]
    assert sorted(map(repr, seen)) == sorted(repr(event) for event in given_events if event["t"] is not None)
    rejected = [decode(r["payload"], REJECTED).num_rows for r in rows if r["kind"] == REJECTS]
    assert sum(rejected) == sum(event["t"] is None for event in given_events)
    times = [t for batch in inputs for t in micros(batch) if t is not None]
    clocks = [(r["bucket"], r["t_min"], r["t_max"]) for r in rows if r["kind"] == CLOCK]
    assert clocks == ([(label, min(times), max(times)) for label in LABELS] if times else [])


def test_every_share_gets_its_own_columns_and_one_of_them_the_rejects() -> None:
    narrow = StreamDef("s", Schema(STREAM.schema.fields[:2]), event_time="t")
    shares = (by_key(narrow, ("narrow",), reports=False), by_key(STREAM, ("wide",)))
    batch = pa.RecordBatch.from_pylist([{"t": 5, "k": "a", "v": 1.5}, {"t": None, "k": "b", "v": 2.5}], SCHEMA)
    rows = packed_rows(Packer(STREAM, shares), [batch])
    found = {(row["bucket"], row["kind"]): row["payload"] for row in rows}
    assert set(found) == {("narrow", EVENTS), ("wide", EVENTS), ("wide", REJECTS), ("narrow", CLOCK), ("wide", CLOCK)}
    assert decode(found["narrow", EVENTS], narrow.schema.arrow).column_names == ["t", "k"]
    (reject,) = decode(found["wide", REJECTS], REJECTED).to_pylist()
    assert (reject["source"], reject["reason"]) == ("s", "t is NULL")
    assert '"v": 2.5' in reject["row"]


def test_what_a_source_could_not_read_is_rejected() -> None:
    schema = SCHEMA.append(pa.field("_reject_reason", pa.string())).append(pa.field("_reject_row", pa.string()))
    rows = [{"t": 5, "k": "a", "v": 1.0}, {"_reject_reason": "no number", "_reject_row": "1;x"}]
    packed = packed_rows(Packer(STREAM, (by_key(STREAM, ("a",)),)), [pa.RecordBatch.from_pylist(rows, schema)])
    (reject,) = (decode(row["payload"], REJECTED).to_pylist() for row in packed if row["kind"] == REJECTS)
    assert reject == [{"source": "s", "reason": "no number", "row": "1;x"}]
    assert [decode(row["payload"], SCHEMA).num_rows for row in packed if row["kind"] == EVENTS] == [1]


def test_order_of_arrival_is_kept_within_a_bucket() -> None:
    rows = [{"t": 5, "k": "a", "v": float(i)} for i in range(100)]
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    (row, *_) = packed_rows(Packer(STREAM, (by_key(STREAM, LABELS),)), [batch])
    assert decode(row["payload"], SCHEMA).column("v").to_pylist() == [float(i) for i in range(100)]


def test_times_of_integer_columns_are_in_microseconds_and_bad_ones_move_no_clock() -> None:
    schema = Schema((Field("t", SqlType.BIGINT), Field("k", SqlType.STRING, nullable=False)))
    stream = StreamDef("s", schema, event_time="t", time_unit=1000)
    given_rows = [(3, "a"), (1, "a"), (2**62, "out of range"), (None, "no time"), (9, None)]
    batch = pa.RecordBatch.from_pylist(
        [{"t": t, "k": k} for t, k in given_rows], pa.schema([("t", pa.int64()), ("k", pa.string())])
    )
    rows = packed_rows(Packer(stream, (by_key(stream, ("a",)),)), [batch])
    fit, unfit, clock = (next(row for row in rows if row["kind"] == kind) for kind in (EVENTS, REJECTS, CLOCK))
    assert (fit["t_min"], fit["t_max"]) == (1000, 3000)
    assert decode(unfit["payload"], REJECTED).num_rows == 3
    assert (clock["t_min"], clock["t_max"]) == (1000, 3000)


def test_the_clock_can_be_told_by_the_times_alone() -> None:
    batch = pa.RecordBatch.from_pylist([{"t": 7}, {"t": None}, {"t": 3}], pa.schema([SCHEMA.field("t")]))
    packer = Packer(STREAM, (by_key(STREAM, ("a", "b")),))
    rows = [row for packed in packer.tell_time(iter([batch])) for row in packed.to_pylist()]
    assert [(r["bucket"], r["kind"], r["t_min"], r["t_max"]) for r in rows] == [("a", CLOCK, 3, 7), ("b", CLOCK, 3, 7)]


def test_columns_are_pruned_and_brought_to_the_declared_types() -> None:
    wide = pa.table({"x": [1], "k": pa.array(["a"], pa.large_string()), "t": [5], "v": [1.5]})
    wide = wide.set_column(2, "t", wide.column("t").cast(pa.timestamp("us", tz="UTC")))
    (row, *_) = packed_rows(Packer(STREAM, (by_key(STREAM, LABELS),)), wide.to_batches())
    assert decode(row["payload"], SCHEMA).schema == SCHEMA


@given(st.lists(st.integers(1, 20), min_size=1, max_size=5))
def test_where_it_does_not_matter_every_bucket_gets_a_piece(sizes: list[int]) -> None:
    """In one stretch nobody has more than one event more than another; single events do not all go to one bucket."""
    share = Share("p", Placement(Spread.PARTIALS), (), (), (StreamPart(STREAM, True, False),), LABELS)
    batches = [pa.RecordBatch.from_pylist([{"t": t, "k": "hot"} for t in range(size)], SCHEMA) for size in sizes]
    rows = [row for row in packed_rows(Packer(STREAM, (share,)), batches) if row["kind"] == EVENTS]
    counts = {row["bucket"]: decode(row["payload"], SCHEMA).num_rows for row in rows}
    assert sum(counts.values()) == sum(sizes)
    assert max(counts.values()) - min(counts.get(label, 0) for label in LABELS) <= 1
    single = [pa.RecordBatch.from_pylist([{"t": t, "k": "hot"}], SCHEMA) for t in range(30)]
    assert {row["bucket"] for batch in single for row in packed_rows(Packer(STREAM, (share,)), [batch])[:1]} == {
        *LABELS
    }
