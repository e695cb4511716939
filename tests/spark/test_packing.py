"""Packing: nothing is lost on the way into packed rows and back, and every bucket hears the time."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.expressions.tree import Column
from penstock.lang.query import StreamDef
from penstock.spark.packing import Packer, decode
from penstock.types import Field, Schema, SqlType

STREAM = StreamDef(
    "s",
    Schema((Field("t", SqlType.TIMESTAMP), Field("k", SqlType.STRING), Field("v", SqlType.DOUBLE))),
    event_time="t",
)
SCHEMA = STREAM.schema.arrow
KEY = Column("k", SqlType.STRING)
LABELS = (12, 6, 2)

events = st.fixed_dictionaries(
    {
        "t": st.none() | st.integers(0, 10**12),
        "k": st.none() | st.sampled_from("abcdef"),
        "v": st.none() | st.floats(allow_nan=False),
    }
)


def micros(batch: pa.RecordBatch) -> list[int | None]:
    return batch.column("t").cast(pa.int64()).to_pylist()


@given(st.lists(st.lists(events, max_size=8), max_size=5))
def test_round_trip(batches: list[list[dict[str, object]]]) -> None:
    inputs = [pa.RecordBatch.from_pylist(rows, SCHEMA) for rows in batches]
    packed = [row for batch in Packer(STREAM, (KEY,), LABELS).pack(iter(inputs)) for row in batch.to_pylist()]
    bucket_of_key: dict[object, int] = {}
    seen = []
    for row in (r for r in packed if r["events"] is not None):
        batch = decode(row["events"], SCHEMA)
        times = [t for t in micros(batch) if t is not None]
        assert (row["t_min"], row["t_max"]) == ((min(times), max(times)) if times else (None, None))
        if not times:
            seen += batch.to_pylist()
            continue
        for event in batch.to_pylist():
            assert bucket_of_key.setdefault(event["k"], row["bucket"]) == row["bucket"]
            seen.append(event)
    given_events = [event for batch in inputs for event in batch.to_pylist()]
    assert sorted(map(repr, seen)) == sorted(map(repr, given_events))
    times = [t for batch in inputs for t in micros(batch) if t is not None]
    clocks = [(r["bucket"], r["t_min"], r["t_max"]) for r in packed if r["events"] is None]
    assert clocks == ([(label, min(times), max(times)) for label in LABELS] if times else [])


def test_order_of_arrival_is_kept_within_a_bucket() -> None:
    rows = [{"t": 5, "k": "a", "v": float(i)} for i in range(100)]
    (events_batch, _clock) = Packer(STREAM, (KEY,), LABELS).pack(iter([pa.RecordBatch.from_pylist(rows, SCHEMA)]))
    (row,) = events_batch.to_pylist()
    assert decode(row["events"], SCHEMA).column("v").to_pylist() == [float(i) for i in range(100)]


def test_times_of_integer_columns_are_in_microseconds_and_bad_ones_move_no_clock() -> None:
    schema = Schema((Field("t", SqlType.BIGINT), Field("k", SqlType.STRING, nullable=False)))
    stream = StreamDef("s", schema, event_time="t", time_unit=1000)
    rows = [(3, "a"), (1, "a"), (2**62, "out of range"), (None, "no time"), (9, None)]
    batch = pa.RecordBatch.from_pylist(
        [{"t": t, "k": k} for t, k in rows], pa.schema([("t", pa.int64()), ("k", pa.string())])
    )
    fit, unfit, clock = (packed.to_pylist() for packed in Packer(stream, (KEY,), (7,)).pack(iter([batch])))
    assert (fit[0]["t_min"], fit[0]["t_max"]) == (1000, 3000)
    assert unfit[0]["t_min"] is None
    assert decode(unfit[0]["events"], batch.schema).num_rows == 3
    assert clock == [{"bucket": 7, "t_min": 1000, "t_max": 3000, "events": None}]


def test_columns_are_pruned_and_brought_to_the_declared_types() -> None:
    wide = pa.table({"x": [1], "k": pa.array(["a"], pa.large_string()), "t": [5], "v": [1.5]})
    wide = wide.set_column(2, "t", wide.column("t").cast(pa.timestamp("us", tz="UTC")))
    (events_batch, _clock) = Packer(STREAM, (KEY,), LABELS).pack(iter(wide.to_batches()))
    assert decode(events_batch.to_pylist()[0]["events"], SCHEMA).schema == SCHEMA
