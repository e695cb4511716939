"""CSV input: values, NULLs, rows that do not fit, files that do not fit."""

from __future__ import annotations

import csv
import gzip
import io
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import TICKS, read_all, stream

from penstock.errors import InputError
from penstock.types import Field, Schema, SqlType

GOOD = "t,name,n,x,ok,day\n2024-01-01T00:00:00Z,a,1,1.5,true,2024-01-31\n2024-01-01 00:00:01.000002Z,,2,NaN,false,\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_values_and_nulls(tmp_path: Path) -> None:
    table, rejects = read_all(stream(write(tmp_path / "a.csv", GOOD)))
    assert rejects == []
    assert table.schema == TICKS.arrow
    first, second = table.to_pylist()
    assert first == {
        "t": datetime(2024, 1, 1, tzinfo=UTC),
        "name": "a",
        "n": 1,
        "x": 1.5,
        "ok": True,
        "day": date(2024, 1, 31),
    }
    assert second["t"] == datetime(2024, 1, 1, 0, 0, 1, 2, tzinfo=UTC)
    assert second["name"] is None
    assert second["day"] is None
    assert second["x"] != second["x"]


def test_columns_may_come_in_another_order_case_and_company(tmp_path: Path) -> None:
    text = "other,X,N,T,ok,day,name\nz,2.5,7,2024-01-01T00:00:00Z,true,2024-01-01,b\n"
    table, _ = read_all(stream(write(tmp_path / "a.csv", text)))
    assert table.to_pylist()[0]["n"] == 7
    assert table.schema.names == list(TICKS.names)


def test_only_the_columns_that_are_read_come_and_are_checked(tmp_path: Path) -> None:
    text = "t,name,n,x,ok,day\n2024-01-01T00:00:00Z,a,1,not a number,true,2024-01-31\n"
    table, rejects = read_all(stream(write(tmp_path / "a.csv", text)), columns=["N"])
    assert table.schema.names == ["t", "n"]
    assert (table.num_rows, rejects) == (1, [])


def test_options(tmp_path: Path) -> None:
    text = "2024-01-01T00:00:00Z;;1;\\N;true;2024-01-01\n"
    path = write(tmp_path / "a.txt", text)
    table, _ = read_all(stream(path, format="csv", delimiter=";", header="false", null="\\N"))
    assert table.to_pylist()[0]["name"] == ""
    assert table.to_pylist()[0]["x"] is None


def test_every_kind_of_bad_row_is_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    lines = [
        "t,name,n,x,ok,day",
        "2024-01-01T00:00:00Z,a,1,1.5,true,2024-01-31",
        "2024-01-01T00:00:00Z,a,1,1.5,true",
        "2024-01-01T00:00:00Z,a,one,1.5,true,2024-01-31",
        ",a,1,1.5,true,2024-01-31",
        "2024-01-01T00:00:00Z,a,,1.5,true,2024-01-31",
        "2024-01-01T00:00:00Z,a,3000000000,1.5,true,2024-01-31",
        "",
        "2024-02-30T00:00:00Z,a,1,1.5,true,2024-01-31",
        '2024-01-01T00:00:00Z,"open,1,1.5,true,2024-01-31',
        "2024-01-01T00:00:00Z,b,2,1.5,true,2024-01-31",
    ]
    path = write(tmp_path / "a.csv", "\n".join(lines) + "\n")
    table, rejects = read_all(stream(path))
    assert table.column("n").to_pylist() == [1, 2]
    assert [r.row for r in rejects] == [3, 4, 5, 6, 7, 9, 10]
    assert [r.raw for r in rejects] == [lines[r.row - 1] for r in rejects]
    assert {r.source for r in rejects} == {str(path)}
    reasons = [r.reason for r in rejects]
    assert reasons[0] == "5 fields where 6 are expected"
    assert reasons[1] == "column 'n': 'one' is no INT"
    assert reasons[2] == "column 't' is NULL"
    assert reasons[3] == "column 'n' is NULL"
    assert "3000000000" in reasons[4]


def test_bytes_that_are_no_text_reject_their_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(GOOD.encode() + b"2024-01-01T00:00:00Z,\xff\xfe,1,1,true,\n")
    table, rejects = read_all(stream(path))
    assert table.num_rows == 2
    assert "UTF8" in rejects[0].reason


def test_times_with_and_without_a_zone_may_mix(tmp_path: Path) -> None:
    schema = Schema((Field("t", SqlType.TIMESTAMP), Field("u", SqlType.TIMESTAMP)))
    rows = ["2024-01-01T12:00:00Z,2024-01-01T12:00:00", "2024-01-01T12:00:00,2024-01-01T13:00:00+01:00"] * 3
    table, rejects = read_all(stream(write(tmp_path / "a.csv", "t,u\n" + "\n".join(rows)), schema))
    assert rejects == []
    assert set(table.column("t").to_pylist() + table.column("u").to_pylist()) == {datetime(2024, 1, 1, 12, tzinfo=UTC)}


def test_times_of_both_kinds_around_lines_that_are_no_text(tmp_path: Path) -> None:
    schema = Schema((Field("t", SqlType.TIMESTAMP), Field("s", SqlType.STRING)))
    zoned, plain, broken = b"2024-01-01T12:00:00Z,a\n", b"2024-01-01T12:00:00,b\n", b"2024-01-01T12:00:00,\xff\n"
    for mixed in ([zoned, broken, plain, plain], [plain, plain, broken, zoned], [zoned, plain, broken, plain, zoned]):
        (tmp_path / "a.csv").write_bytes(b"t,s\n" + b"".join(mixed * 2))
        table, rejects = read_all(stream(tmp_path / "a.csv", schema))
        assert table.num_rows == len(mixed) * 2 - 2
        assert set(table.column("t").to_pylist()) == {datetime(2024, 1, 1, 12, tzinfo=UTC)}
        assert [r.row for r in rejects] == [i + 2 for i, line in enumerate(mixed * 2) if line == broken]


def test_a_quoted_line_end_needs_the_option(tmp_path: Path) -> None:
    text = 't,name,n,x,ok,day\n2024-01-01T00:00:00Z,"two\nlines",1,1,true,\n2024-01-01T00:00:01Z,b,2,1,true,\n'
    path = write(tmp_path / "a.csv", text)
    table, rejects = read_all(stream(path))
    assert (table.column("n").to_pylist(), [r.row for r in rejects]) == ([2], [2, 3])
    for batch_rows in (1, 2, 100):
        table, rejects = read_all(stream(path, multiline="true"), batch_rows=batch_rows)
        assert (table.column("name").to_pylist(), rejects) == (["two\nlines", "b"], [])


def test_gzip(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(GOOD.encode()))
    table, _ = read_all(stream(tmp_path / "a.csv.gz"))
    assert table.num_rows == 2
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(GOOD.encode())[:-12])
    with pytest.raises(InputError, match=r"a\.csv\.gz: cannot be read"):
        read_all(stream(tmp_path / "a.csv.gz"))


def test_a_missing_column_is_refused_with_what_there_is(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "t,name,n,x,ok\n")
    with pytest.raises(InputError, match=r"a\.csv: column 'day' is missing; there are t, name, n, x, ok"):
        read_all(stream(path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ";;"}, "one ASCII character"),
        ({"header": "maybe"}, "write 'true' or 'false'"),
        ({"heder": "true"}, "unknown option 'heder'"),
        ({"format": "xml"}, "unknown format 'xml'"),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_all(stream(write(tmp_path / "a.csv", GOOD), **options))


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    table, rejects = read_all(stream(write(tmp_path / "a.csv", "")))
    assert (table.num_rows, rejects) == (0, [])


text_values = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x00"), max_size=8)
fields = st.one_of(st.integers(-(2**40), 2**40).map(str), text_values)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(fields, min_size=1, max_size=4), max_size=20),
    st.integers(1, 7),
)
def test_every_line_is_a_row_a_reject_or_blank(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], batch_rows: int
) -> None:
    """Against a parser of the standard library: a row fits if it has two fields and the first is a 32-bit integer."""
    schema = Schema((Field("n", SqlType.INT), Field("s", SqlType.STRING)))
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    lines = out.getvalue().split("\n")[:-1]
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_text("n,s\n" + out.getvalue(), encoding="utf-8", newline="")
    table, rejects = read_all(stream(path, schema, "n"), batch_rows=batch_rows)

    def fits(row: list[str]) -> bool:
        digits = row[0].strip(" \t").removeprefix("-")
        ascii_number = digits.isascii() and digits.isdecimal()
        return len(row) == 2 and ascii_number and -(2**31) <= int(row[0]) < 2**31

    expected = [row for row in rows if fits(row)]
    assert table.column("n").to_pylist() == [int(row[0]) for row in expected]
    assert [s or "" for s in table.column("s").to_pylist()] == [row[1] for row in expected]
    blank = [i for i, line in enumerate(lines) if not line.strip()]
    assert [r.row for r in rejects] == [i + 2 for i, row in enumerate(rows) if not fits(row) and i not in blank]
    assert table.schema == pa.schema([("n", pa.int32()), ("s", pa.string())])
