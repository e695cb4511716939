"""Files that are not quite as they should be: each ends in rows, rejects, or an error that says what to do."""

from __future__ import annotations

import gzip
import random
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from streams import read_all, stream

from penstock.errors import InputError
from penstock.types import Field, Schema, SqlType

KEYED = Schema((Field("t", SqlType.BIGINT), Field("k", SqlType.STRING), Field("x", SqlType.DOUBLE)))


def rows(path: Path, data: bytes, **options: str) -> tuple[list[tuple[object, ...]], list[str]]:
    path.write_bytes(data)
    table, rejects = read_all(stream(path, KEYED, **options))
    return [tuple(row.values()) for row in table.to_pylist()], [reject.reason for reject in rejects]


def test_lines_that_end_with_a_carriage_return_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"lines end with a carriage return alone.*tr"):
        rows(tmp_path / "a.csv", b"t,k,x\r1,a,2\r2,b,3\r")
    found, reasons = rows(tmp_path / "b.csv", b"1,a,2\r2,b,3\r", header="false")
    assert (found, len(reasons)) == ([], 1)
    assert "carriage return" in reasons[0]


@pytest.mark.parametrize("header", [b"t,k,k,x", b"t,K,kK,K,x"])
def test_a_header_with_a_column_twice(tmp_path: Path, header: bytes) -> None:
    data = header + b"\n1" + b",2" * header.count(b",") + b"\n"
    with pytest.raises(InputError, match=r"column 'k' is there 2 times: .* rename all but one"):
        rows(tmp_path / "a.csv", data)


def test_a_column_as_declared_counts_before_one_in_another_case(tmp_path: Path) -> None:
    assert rows(tmp_path / "a.csv", b"t,K,k,x\n1,a,b,2\n") == ([(1, "b", 2.0)], [])


def test_a_parquet_file_with_a_column_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table([[1], ["a"], ["b"], [2.0]], names=["t", "k", "k", "x"]), path)
    with pytest.raises(InputError, match="column 'k' is there 2 times"):
        read_all(stream(path, KEYED))
    parquet.write_table(pa.table([[1], ["a"], [1], [2], [2.0]], names=["t", "k", "z", "z", "x"]), path)
    assert read_all(stream(path, KEYED))[0].num_rows == 1


def test_json_keys_match_whatever_their_case_in_each_row(tmp_path: Path) -> None:
    lines = [
        b'{"t": 1, "k": "a", "x": 1}',
        b'{"T": 2, "K": "b", "X": 2.5}',
        b'{"t": 3, "k": "\\"K\\": z", "x": null}',
        b'{"t": 4, "K": "not this", "k": "this"}',
        b'{"inner": {"K": 1}, "t": 5, "K": "outer"}',
    ]
    expected = [(1, "a", 1.0), (2, "b", 2.5), (3, '"K": z', None), (4, "this", None), (5, "outer", None)]
    assert rows(tmp_path / "a.jsonl", b"\n".join(lines)) == (expected, [])
    found = [row for i, line in enumerate(lines) for row in rows(tmp_path / f"{i}.jsonl", line)[0]]
    assert found == expected


def test_half_of_a_surrogate_pair_rejects_its_row(tmp_path: Path) -> None:
    found, reasons = rows(tmp_path / "a.jsonl", b'{"t":1,"k":"\\ud800","x":1}\n{"t":2,"k":"b","X":1}\n')
    assert (found, len(reasons)) == ([(2, "b", 1.0)], 1)


def test_two_objects_on_a_line_of_which_the_second_is_broken(tmp_path: Path) -> None:
    """The parser counts objects, and there are more of them than lines."""
    found, reasons = rows(tmp_path / "a.jsonl", b'{"t":1}\n{"t":2}{{"t{:3}\n')
    assert (found, len(reasons)) == ([(1, None, None)], 1)


GOOD = {
    "csv": b't,k,x\n1,a,2.5\n2,"b,c",3\n3,,\n',
    "jsonl": b'{"t":1,"k":"a","x":2.5}\n{"t":2,"k":"b\\n","x":null}\n{"t":3}\n',
}


@pytest.mark.parametrize("kind", [*GOOD, "parquet", "csv.gz"])
def test_bytes_that_are_changed_end_in_rows_rejects_or_an_error(tmp_path: Path, kind: str) -> None:
    """Never in an error of a library underneath."""
    chance = random.Random(kind)
    whole = GOOD.get(kind, b"")
    if kind == "parquet":
        parquet.write_table(pa.table({"t": [1, 2], "k": ["a", None], "x": [1.0, 2.0]}), tmp_path / "good")
        whole = (tmp_path / "good").read_bytes()
    elif kind == "csv.gz":
        whole = gzip.compress(GOOD["csv"])
    for number in range(150):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(data))
            piece = bytes(chance.choice(b'\x00\xff\r\n",{}[]:e-') for _ in range(chance.randint(0, 3)))
            data[place : place + chance.randint(0, 3)] = piece
        path = tmp_path / f"{number}.{kind}"
        path.write_bytes(data)
        with suppress(InputError):
            read_all(stream(path, KEYED))
