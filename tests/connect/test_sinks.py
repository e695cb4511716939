"""Sinks: what is written reads back the same, and a restart keeps exactly what was committed."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from streams import TICKS, read_all, stream

from penstock.connect import open_sink
from penstock.connect.encode import csv_lines, json_lines
from penstock.connect.rejects import RejectWriter
from penstock.connect.source import Reject
from penstock.connect.stdout import StdoutSink
from penstock.errors import CheckpointError, InputError, StorageError
from penstock.lang.query import SinkDef
from penstock.types import Field, Schema, SqlType

ROWS = pa.schema([("n", pa.int64())])


def numbers(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], schema=ROWS)


def sink(path: Path, schema: pa.Schema = ROWS, **options: str):  # type: ignore[no-untyped-def]
    return open_sink(SinkDef("out", str(path), tuple(options.items())), schema)


def numbers_in(path: Path) -> list[int]:
    table, rejects = read_all(stream(path, Schema((Field("n", SqlType.BIGINT),)), "n"))
    assert rejects == []
    return table.column("n").to_pylist() if table.num_rows else []


times = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
rows = st.fixed_dictionaries(
    {
        "t": times,
        "name": st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\x00\n\r"), max_size=6),
        "n": st.integers(-(2**31), 2**31 - 1),
        "x": st.none() | st.floats(),
        "ok": st.none() | st.booleans(),
        "day": st.none() | st.integers(-700_000, 2_900_000),
    }
)


@settings(max_examples=60, deadline=None)
@given(st.lists(rows, min_size=1, max_size=8), st.sampled_from(["out.csv", "out.jsonl", "out"]))
def test_what_is_written_reads_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, values: list[dict[str, object]], name: str
) -> None:
    arrays = [
        pa.array([row[f.name] for row in values], {"t": pa.int64(), "day": pa.int32()}.get(f.name, f.type)).cast(f.type)
        for f in TICKS.arrow
    ]
    batch = pa.record_batch(arrays, schema=TICKS.arrow)
    path = tmp_path_factory.mktemp("sink") / name
    out = sink(path, TICKS.arrow)
    out.restore(None)
    out.write(batch)
    out.commit(1)
    out.close()
    table, rejects = read_all(stream(path))
    assert rejects == []
    for field in TICKS.arrow:
        read, written = table.column(field.name).to_pylist(), batch.column(field.name).to_pylist()
        if field.name == "x":
            read, written = ([x if x is None else (math.isnan(x), str(x)) for x in xs] for xs in (read, written))
        assert read == written


def test_the_text_of_the_formats(tmp_path: Path) -> None:
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ('na"me', pa.string()), ("x", pa.float64())])
    batch = pa.record_batch(
        [pa.array([0, 1_500_000]).cast(schema[0].type), pa.array(['q"\\', None]), pa.array([math.inf, 0.1])],
        schema=schema,
    )
    for name in ("a.csv", "a.jsonl"):
        out = sink(tmp_path / name, schema)
        out.restore(None)
        out.write(batch)
        out.close()
    assert (tmp_path / "a.csv").read_text() == (
        'at,"na""me",x\n1970-01-01T00:00:00.000000Z,"q""\\",Infinity\n1970-01-01T00:00:01.500000Z,,0.1\n'
    )
    assert [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()] == [
        {"at": "1970-01-01T00:00:00.000000Z", 'na"me': 'q"\\', "x": "Infinity"},
        {"at": "1970-01-01T00:00:01.500000Z", 'na"me': None, "x": 0.1},
    ]


@pytest.mark.parametrize("name", ["deep/out.csv", "out.jsonl", "parts"])
def test_a_crash_leaves_what_was_committed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    out = sink(path)
    out.restore(None)
    out.write(numbers(1, 2))
    first = json.loads(json.dumps(out.commit(1)))
    out.write(numbers(3))
    out.commit(2)
    out.write(numbers(4))
    out.close()

    again = sink(path)
    again.restore(first)
    assert numbers_in(path) == [1, 2]
    again.write(numbers(33, 34))
    empty = again.commit(2)
    assert again.commit(3) == ({"epoch": 3, "parts": 2} if name == "parts" else empty)
    again.close()
    assert numbers_in(path) == [1, 2, 33, 34]

    fresh = sink(path)
    fresh.restore(None)
    fresh.write(numbers(9))
    fresh.commit(1)
    assert numbers_in(path) == [9]


@pytest.mark.parametrize("name", ["out.csv", "parts"])
def test_output_that_was_taken_away_is_noticed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    out = sink(path)
    out.restore(None)
    out.write(numbers(1, 2))
    position = out.commit(1)
    out.close()
    (path if path.is_file() else next(path.iterdir())).unlink()
    with pytest.raises(CheckpointError, match="where the checkpoint wrote"):
        sink(path).restore(position)


def test_parquet_leaves_strangers_alone_and_shows_only_whole_files(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"n": [0]}), tmp_path / "other.parquet")
    out = sink(tmp_path)
    out.restore(None)
    out.write(numbers(*range(200_000)))
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith(".")] == ["other.parquet"]
    out.commit(7)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["epoch-000000007.parquet", "other.parquet"]
    assert parquet.read_table(tmp_path / "epoch-000000007.parquet").column("n").to_pylist() == list(range(200_000))


@pytest.mark.parametrize("name", ["a.csv", "parts"])
def test_a_full_disk_is_told(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    out = sink(tmp_path / name)
    out.restore(None)
    out.write(numbers(1))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"cannot be written.*No space left"):
        out.commit(1)


@pytest.mark.parametrize(
    ("uri", "options", "message"),
    [
        ("a.xlsx", {}, "cannot tell the format"),
        ("a.csv.gz", {}, "cannot tell the format"),
        ("s3://b/a.csv", {}, "'s3:' is unknown"),
        ("-", {"format": "parquet"}, "standard output is written as jsonl, csv or table"),
        ("a.csv", {"colour": "red"}, "unknown option 'colour'"),
    ],
)
def test_sinks_that_cannot_be(uri: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_sink(SinkDef("out", uri, tuple(options.items())), ROWS)


def test_a_directory_and_a_file_in_each_others_place(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    (tmp_path / "b").touch()
    with pytest.raises(InputError, match="is a directory; csv results need a file"):
        sink(tmp_path / "a.csv")
    with pytest.raises(InputError, match="is a file; Parquet results need a directory"):
        sink(tmp_path / "b")


class Captured:
    def __init__(self) -> None:
        self.buffer = io.BytesIO()


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("jsonl", '{"n":1}\n{"n":2}\n{"n":100}\n'),
        ("csv", "n\n1\n2\n100\n"),
        ("table", "n\n-\n1\n2\n  n\n---\n100\n"),
    ],
)
def test_standard_output(monkeypatch: pytest.MonkeyPatch, style: str, expected: str) -> None:
    captured = Captured()
    monkeypatch.setattr(sys, "stdout", captured)
    out = sink(Path("-"), format=style)
    out.restore(None)
    out.write(numbers(1, 2))
    out.write(numbers())
    out.write(numbers(100))
    assert out.commit(1) == {}
    assert captured.buffer.getvalue().decode() == expected


def test_discard_counts_on(tmp_path: Path) -> None:
    out = open_sink(SinkDef("out", "discard:"), ROWS)
    out.restore({"rows": 5})
    out.write(numbers(1, 2))
    assert out.commit(1) == {"rows": 7}


def test_rejects_are_counted_and_cut_back(tmp_path: Path) -> None:
    path = tmp_path / "rejects.jsonl"
    rejects = RejectWriter(path)
    rejects.restore(None)
    assert rejects.commit() == {"count": 0, "bytes": 0}
    assert not path.exists()
    rejects.write([Reject("a.csv", 3, "why", 'raw "text"')])
    position = rejects.commit()
    rejects.write([Reject("a.csv", 4, "why", "é")])
    assert rejects.count == 2
    rejects.close()
    again = RejectWriter(path)
    again.restore(position)
    assert again.count == 1
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"source": "a.csv", "row": 3, "reason": "why", "raw": 'raw "text"'}
    ]


def far_times() -> pa.RecordBatch:
    moments = [
        0,
        -62_135_596_800_000_000,
        -62_135_596_800_000_001,
        253_402_300_800_000_000,
        1_730_000_000_000_000_000,
        None,
    ]
    days = [0, -719_162, -719_163, 2_932_897, 20_000_000, None]
    return pa.record_batch({"t": pa.array(moments, pa.timestamp("us", "UTC")), "d": pa.array(days, pa.date32())})


def test_years_of_more_than_four_digits_are_written_with_their_sign() -> None:
    expected = [
        ("1970-01-01T00:00:00.000000Z", "1970-01-01"),
        ("0001-01-01T00:00:00.000000Z", "0001-01-01"),
        ("0000-12-31T23:59:59.999999Z", "0000-12-31"),
        ("+10000-01-01T00:00:00.000000Z", "+10000-01-01"),
        ("+56791-07-09T03:33:20.000000Z", "+56728-02-22"),
        (None, None),
    ]
    written = [json.loads(line) for line in json_lines(far_times()).splitlines()]
    assert [(row["t"], row["d"]) for row in written] == expected
    lines = [tuple(cell or None for cell in line.split(",")) for line in csv_lines(far_times()).decode().splitlines()]
    assert lines == expected


def test_far_times_on_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", screen)
    StdoutSink(far_times().schema, "table").write(far_times())
    shown = screen.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert [line.split()[0] for line in shown.splitlines()[2:]] == [
        *("1970-01-01", "0001-01-01", "0000-12-31T23:59:59.999999Z", "+10000-01-01T00:00:00.000000Z"),
        *("+56791-07-09T03:33:20.000000Z", "NULL"),
    ]
