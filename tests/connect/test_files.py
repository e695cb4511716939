"""Which files a URI names, in which order, while more arrive, and from a saved position on."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from streams import read_all, stream

from penstock.connect import open_source
from penstock.connect.opening import is_live
from penstock.connect.source import Source
from penstock.errors import InputError
from penstock.types import Field, Schema, SqlType

NUMBERS = Schema((Field("n", SqlType.BIGINT),))


def write_numbers(path: Path, numbers: list[int]) -> None:
    if path.suffix == ".parquet":
        parquet.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), path)
        return
    csv = ".csv" in path.suffixes
    text = ("n\n" if csv else "") + "".join(f"{n}\n" if csv else f'{{"n":{n}}}\n' for n in numbers)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def numbers_of(uri: object, **how: object) -> list[int]:
    table, rejects = read_all(stream(uri, NUMBERS, "n"), **how)
    assert rejects == []
    return [int(n) for n in table.column("n").to_pylist()] if table.num_rows else []


def test_path_glob_directory_and_file_uri(tmp_path: Path) -> None:
    folder = tmp_path / "in put"
    folder.mkdir()
    write_numbers(folder / "b.csv", [3, 4])
    write_numbers(folder / "a.parquet", [1, 2])
    write_numbers(folder / "c.jsonl.gz", [5])
    for passed_over in (".hidden.csv", "_SUCCESS", "d.csv.tmp", "readme.txt"):
        (folder / passed_over).write_text("n\n99\n")
    assert numbers_of(folder) == [1, 2, 3, 4, 5]
    assert numbers_of(folder / "*.csv") == [3, 4]
    assert numbers_of(f"{folder}/[ab].*") == [1, 2, 3, 4]
    assert numbers_of((folder / "b.csv").as_uri()) == [3, 4]
    write_numbers(folder / "odd[1].csv", [6])
    assert numbers_of(folder / "odd[1].csv") == [6]


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("nowhere.csv", "file '.*nowhere.csv' does not exist"),
        ("no*.csv", r"no file matches '.*no\*.csv'"),
        ("empty", "directory '.*empty' has no file ending in .parquet"),
        ("some.dat", "cannot tell the format by the name"),
    ],
)
def test_what_is_not_there(tmp_path: Path, uri: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "some.dat").write_text("n\n1\n")
    with pytest.raises(InputError, match=message):
        numbers_of(tmp_path / uri)


def test_unknown_schemes_and_no_source_at_all() -> None:
    with pytest.raises(InputError, match="'kafka:' is unknown; there are files"):
        open_source(stream("kafka://topic", NUMBERS, "n"))
    with pytest.raises(InputError, match="has no source; add FROM 'uri'"):
        open_source(replace(stream("", NUMBERS, "n"), uri=None))


def test_an_unreadable_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(InputError, match=f"{tmp_path}: the directory cannot be read: Permission denied"):
        open_source(stream(tmp_path, NUMBERS, "n"))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_position_continues_exactly(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("files")
    endings = data.draw(st.lists(st.sampled_from(["csv", "jsonl", "parquet", "csv.gz"]), min_size=1, max_size=4))
    expected: list[int] = []
    for i, ending in enumerate(endings):
        numbers = list(range(len(expected), len(expected) + data.draw(st.integers(0, 9))))
        write_numbers(folder / f"{i}.{ending}", numbers)
        expected += numbers
    definition = stream(folder, NUMBERS, "n")
    seen: list[int] = []
    position = None
    while True:
        source = open_source(definition, position=position, batch_rows=data.draw(st.integers(1, 6)))
        for _ in range(data.draw(st.integers(1, 3))):
            got = next(source, None)
            if got is None:
                assert seen == expected
                return
            seen += got.batch.column("n").to_pylist()
            position = json.loads(json.dumps(got.position))
        source.close()


def taken(source: Source, polls: int = 2) -> list[int]:
    """What a following source has, until it answers with an empty batch."""
    found: list[int] = []
    while polls:
        got = next(source).batch.column("n").to_pylist()
        found += got
        polls -= not got
    return found


def test_following_a_directory_that_grows(tmp_path: Path) -> None:
    source = open_source(stream(tmp_path, NUMBERS, "n"), follow=True)
    assert taken(source) == []
    write_numbers(tmp_path / "1.csv", [1, 2])
    assert taken(source) == [1, 2]
    write_numbers(tmp_path / "3.parquet", [3])
    write_numbers(tmp_path / "4.jsonl", [4])
    assert taken(source) == [3, 4]
    position = next(source).position
    with (tmp_path / "4.jsonl").open("a") as tail:
        tail.write('{"n":5}\n{"n"')
        tail.flush()
        assert taken(source) == [5]
        tail.write(":6}\n")
    assert taken(source) == [6]
    write_numbers(tmp_path / "2.csv", [99])
    rejects = [reject for _ in range(2) for reject in next(source).rejects]
    assert [(Path(r.source).name, r.reason) for r in rejects] == [
        ("2.csv", f"came after {tmp_path / '4.jsonl'} was read; names must rise")
    ]
    source.close()
    assert taken(open_source(stream(tmp_path, NUMBERS, "n"), follow=True, position=position)) == [5, 6]


def test_following_remembers_a_finished_file(tmp_path: Path) -> None:
    write_numbers(tmp_path / "1.parquet", [1])
    source = open_source(stream(tmp_path, NUMBERS, "n"), follow=True)
    assert taken(source) == [1]
    position = next(source).position
    os.remove(tmp_path / "1.parquet")
    write_numbers(tmp_path / "2.parquet", [2])
    assert taken(open_source(stream(tmp_path, NUMBERS, "n"), follow=True, position=position)) == [2]


def test_a_file_that_shrank_is_refused(tmp_path: Path) -> None:
    write_numbers(tmp_path / "1.csv", [1, 2, 3])
    position = next(open_source(stream(tmp_path, NUMBERS, "n"))).position
    write_numbers(tmp_path / "1.csv", [1])
    with pytest.raises(InputError, match="is shorter than at the checkpoint"):
        numbers_of(tmp_path, position=position)


def test_progress_reaches_one(tmp_path: Path) -> None:
    write_numbers(tmp_path / "1.csv", list(range(50)))
    write_numbers(tmp_path / "2.parquet", list(range(50)))
    source = open_source(stream(tmp_path, NUMBERS, "n"), batch_rows=10)
    fractions = [source.progress.fraction for _ in source]
    assert fractions == sorted(fractions)
    assert 0 < fractions[0] < 0.5
    assert source.progress.fraction == 1.0


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connect.lines.MAX_RECORD_BYTES", 1 << 20)
    (tmp_path / "1.jsonl").write_bytes(b"x" * (5 << 20))
    with pytest.raises(InputError, match="line 1 has no end within 1 MB"):
        numbers_of(tmp_path)


def test_what_is_live() -> None:
    assert is_live(stream("-", NUMBERS, "n"), follow=False)
    assert is_live(stream("a.csv", NUMBERS, "n"), follow=True)
    assert is_live(stream("a.csv", NUMBERS, "n", follow="true"), follow=False)
    assert not is_live(stream("a.csv", NUMBERS, "n"), follow=False)
    assert not is_live(stream("generate:stock", NUMBERS, "n"), follow=True)
