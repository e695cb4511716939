"""Packing: nothing is lost on the way into packed rows and back, and every bucket hears the time."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.packing import Packer, decode

SCHEMA = pa.schema([("t", pa.timestamp("us", tz="UTC")), ("k", pa.string()), ("v", pa.float64())])
LABELS = (12, 6, 2)

events = st.fixed_dictionaries(
    {
        "t": st.none() | st.integers(0, 10**12),
        "k": st.none() | st.sampled_from("abcdef"),
        "v": st.none() | st.floats(allow_nan=False),
    }
)


def packer(time_unit: int = 1, schema: pa.Schema = SCHEMA, labels: tuple[int, ...] = LABELS) -> Packer:
    return Packer(schema, "t", time_unit, lambda batch: [batch.column("k")], labels)


def micros(batch: pa.RecordBatch) -> list[int | None]:
    return batch.column("t").cast(pa.int64()).to_pylist()


@given(st.lists(st.lists(events, max_size=8), max_size=5))
def test_round_trip(batches: list[list[dict[str, object]]]) -> None:
    inputs = [pa.RecordBatch.from_pylist(rows, SCHEMA) for rows in batches]
    packed = [row for batch in packer().pack(iter(inputs)) for row in batch.to_pylist()]
    bucket_of_key: dict[object, int] = {}
    seen = []
    for row in (r for r in packed if r["events"] is not None):
        batch = decode(row["events"], SCHEMA)
        times = [t for t in micros(batch) if t is not None]
        assert (row["t_min"], row["t_max"]) == ((min(times), max(times)) if times else (None, None))
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
    (events_batch, _clock) = packer().pack(iter([pa.RecordBatch.from_pylist(rows, SCHEMA)]))
    (row,) = events_batch.to_pylist()
    assert decode(row["events"], SCHEMA).column("v").to_pylist() == [float(i) for i in range(100)]


def test_times_of_integer_columns_are_in_microseconds() -> None:
    schema = pa.schema([("t", pa.int64()), ("k", pa.string())])
    batch = pa.record_batch([pa.array([3, 1]), pa.array(["a", "a"])], schema=schema)
    (events_batch, clock) = packer(1000, schema, (7,)).pack(iter([batch]))
    assert events_batch.to_pylist()[0]["t_min"] == 1000
    assert clock.to_pylist() == [{"bucket": 7, "t_min": 1000, "t_max": 3000, "events": None}]


def test_columns_are_pruned_and_brought_to_the_declared_types() -> None:
    wide = pa.table({"x": [1], "k": pa.array(["a"], pa.large_string()), "t": [5], "v": [1.5]})
    wide = wide.set_column(2, "t", wide.column("t").cast(pa.timestamp("us", tz="UTC")))
    (events_batch, _clock) = packer().pack(iter(wide.to_batches()))
    assert decode(events_batch.to_pylist()[0]["events"], SCHEMA).schema == SCHEMA
