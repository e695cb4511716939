"""Stretches: whatever the cuts, every record is read once, as the ordinary source reads it, with its line number."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connect.streams import read_all, stream
from penstock.connect.opening import reading_of
from penstock.connect.source import Position, Reject
from penstock.connect.stretches import FileStretches, read_stretch
from penstock.errors import CheckpointError, InputError
from penstock.lang.query import StreamDef
from penstock.types import Field, Schema, SqlType

PAIRS = Schema((Field("t", SqlType.BIGINT), Field("name", SqlType.STRING)))


def through(plan: FileStretches, position: Position, most: int) -> tuple[list[Position], Position]:
    """The positions until there is nothing more."""
    positions = []
    while (following := plan.advance(position, most)) != position:
        position = json.loads(json.dumps(following))
        positions.append(position)
    return positions, position


def read(
    definition: StreamDef, plan: FileStretches, positions: list[Position], shares: int
) -> tuple[pa.Table, list[Reject]]:
    reading = reading_of(definition)
    rows, rejects = [], []
    for position in positions:
        for share in plan.shares(position, shares):
            for stretch in share:
                for batch, refused in read_stretch(stretch, reading):
                    rows.append(batch)
                    rejects += refused
    return pa.Table.from_batches(rows, reading.schema), rejects


line = st.one_of(
    st.tuples(st.integers(0, 99), st.sampled_from(["a", "bb", "ä", ""])).map(lambda pair: f"{pair[0]},{pair[1]}"),
    st.sampled_from(["", "x,y", "1", "1,2,3", '5,"two words"']),
)


@settings(max_examples=60)
@given(
    files=st.lists(st.tuples(st.lists(line, max_size=12), st.booleans()), min_size=1, max_size=4),
    most=st.integers(1, 80),
    shares=st.integers(1, 4),
)
def test_every_record_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[list[str], bool]], most: int, shares: int
) -> None:
    directory = tmp_path_factory.mktemp("in")
    for number, (lines, ended) in enumerate(files):
        (directory / f"{number}.csv").write_text("\n".join(["t,name", *lines]) + ("\n" if ended else ""))
    definition = stream(directory, PAIRS)
    plan = FileStretches(reading_of(definition), final=True)
    positions, _ = through(plan, {}, most)
    assert read(definition, plan, positions, shares) == read_all(definition)


@settings(max_examples=30)
@given(
    files=st.lists(st.lists(st.none() | st.integers(0, 99), max_size=12), min_size=1, max_size=3),
    most=st.integers(1, 400),
    shares=st.integers(1, 4),
)
def test_every_row_of_parquet_files_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[int | None]], most: int, shares: int
) -> None:
    """A directory with text among it; a row without a time is told with its number in the file."""
    directory = tmp_path_factory.mktemp("in")
    for number, times in enumerate(files):
        columns = {"t": pa.array(times, pa.int64()), "name": pa.array([f"row {i}" for i in range(len(times))])}
        pq.write_table(pa.table(columns), directory / f"{number}.parquet", row_group_size=3)
    (directory / "1.csv").write_text("t,name\n5,a\n")
    definition = stream(directory, PAIRS)
    plan = FileStretches(reading_of(definition), final=True, least=1)
    positions, _ = through(plan, {}, most)
    assert read(definition, plan, positions, shares) == read_all(definition)


def test_row_groups_are_shared_out(tmp_path: Path) -> None:
    columns = {"t": pa.array(range(1000)), "name": pa.array([str(i) for i in range(1000)])}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=100)
    plan = FileStretches(reading_of(stream(tmp_path, PAIRS)), final=True, least=1)
    positions, _ = through(plan, {}, 1 << 30)
    assert [len(plan.shares(position, 2)) for position in positions] == [2]
    assert len(through(plan, {}, 1)[0]) == 10


def test_a_position_of_another_reader_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,name\n")
    plan = FileStretches(reading_of(stream(tmp_path, PAIRS)), final=True)
    with pytest.raises(CheckpointError, match="begin again with a new checkpoint directory"):
        plan.advance({"logOffset": 3}, 100)


def test_a_stretch_is_split_into_shares_at_line_ends(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(f'{{"t": {i}, "name": "row {i}"}}\n' for i in range(20_000)))
    definition = stream(tmp_path, PAIRS)
    plan = FileStretches(reading_of(definition), final=True)
    positions, _ = through(plan, {}, 1 << 30)
    assert len(positions) == 1
    assert len(plan.shares(positions[0], 4)) == 4
    rows, rejects = read(definition, plan, positions, 4)
    assert rows.column("t").to_pylist() == list(range(20_000))
    assert rejects == []


def test_fields_with_line_ends_are_not_cut(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,name\n" + "".join(f'{i},"two\nlines"\n' for i in range(3000)) + "x,y\n")
    definition = stream(tmp_path, PAIRS, multiline="true")
    plan = FileStretches(reading_of(definition), final=True)
    positions, _ = through(plan, {}, 5000)
    assert len(positions) > 1
    rows, rejects = read(definition, plan, positions, 3)
    assert rows.column("t").to_pylist() == list(range(3000))
    assert [(reject.row, reject.raw) for reject in rejects] == [(6002, "x,y")]


def test_a_growing_file_is_read_up_to_its_last_line_end(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    definition = stream(tmp_path, PAIRS)
    plan = FileStretches(reading_of(definition), final=False)
    position: Position = {}
    seen = []
    for text in ("t,name\n", "1,a\n2,", "b\n", ""):
        with file.open("a") as out:
            out.write(text)
        positions, position = through(plan, position, 1 << 20)
        rows, _ = read(definition, plan, positions, 1)
        seen.append(rows.column("t").to_pylist())
    assert seen == [[], [1], [2], []]
    with file.open("a") as out:
        out.write("3,c")
    assert through(plan, position, 1 << 20)[0] == []
    (tmp_path / "b.csv").write_text("t,name\n4,d\n")
    positions, position = through(plan, position, 1 << 20)
    assert read(definition, plan, positions, 1)[0].column("t").to_pylist() == [3, 4]


def test_what_a_position_stands_for_does_not_change(tmp_path: Path) -> None:
    """A batch that was planned before a crash is read again after it, whatever has come since."""
    (tmp_path / "b.csv").write_text("t,name\n1,a\n")
    (tmp_path / "d.csv").write_text("t,name\n2,b\n")
    definition = stream(tmp_path, PAIRS)
    planned = FileStretches(reading_of(definition), final=False).advance({}, 1 << 20)
    (tmp_path / "c.csv").write_text("t,name\n9,z\n")
    with (tmp_path / "d.csv").open("a") as out:
        out.write("3,c\n")
    after = FileStretches(reading_of(definition), final=False)
    assert read(definition, after, [planned], 1)[0].column("t").to_pylist() == [1, 2]
    following, _ = through(after, planned, 1 << 20)
    assert read(definition, after, following, 1)[0].column("t").to_pylist() == [3]


def test_strays_are_told_once_and_frozen_input_does_not_grow(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("t,name\n1,a\n")
    plan = FileStretches(reading_of(stream(tmp_path, PAIRS)), final=False)
    _, position = through(plan, {}, 1 << 20)
    (tmp_path / "a.csv").write_text("t,name\n9,z\n")
    positions, position = through(plan, position, 1 << 20)
    assert [p["strays"] for p in positions] == [[str(tmp_path / "a.csv")]]
    assert [p["taken"] for p in positions] == [[]]
    plan.freeze()
    (tmp_path / "c.csv").write_text("t,name\n2,b\n")
    assert through(plan, position, 1 << 20)[0] == []
    assert len(through(FileStretches(reading_of(stream(tmp_path, PAIRS)), final=False), position, 1 << 20)[0]) == 1


def test_compressed_files_are_read_whole(tmp_path: Path) -> None:
    for name in ("a.csv.gz", "b.csv.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b"t,name\n1,a\nx,y\n2,b"))
    definition = stream(tmp_path, PAIRS)
    plan = FileStretches(reading_of(definition), final=False)
    positions, _ = through(plan, {}, 1)
    assert len(positions) == 2
    rows, rejects = read(definition, plan, positions, 2)
    assert rows.column("t").to_pylist() == [1, 2, 1, 2]
    assert [reject.row for reject in rejects] == [3, 3]


def test_a_file_that_shrank_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,name\n1,a\n2,b\n")
    definition = stream(tmp_path, PAIRS)
    plan = FileStretches(reading_of(definition), final=False)
    position = plan.advance({}, 1 << 20)
    (tmp_path / "a.csv").write_text("t,name\n")
    with pytest.raises(InputError, match="is shorter than at the checkpoint"):
        plan.advance(position, 1 << 20)
    with pytest.raises(InputError, match="is shorter than it was"):
        read(definition, plan, [position], 1)
