"""JSON lines input: values, rows that do not fit, and bytes that would hurt the parser underneath."""

from __future__ import annotations

import gzip
import json
import math
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import TICKS, read_all, stream

from penstock.errors import InputError
from penstock.types import Field, Schema, SqlType

FIRST = '{"t":"2024-01-01T00:00:00Z","name":"a","n":1,"x":1.5,"ok":true,"day":"2024-01-31","more":{"deep":[1]}}'


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_values_nulls_and_unknown_keys(tmp_path: Path) -> None:
    table, rejects = read_all(stream(write(tmp_path / "a.jsonl", FIRST, '{"n":2,"t":"2024-01-01 00:00:01.5"}')))
    assert rejects == []
    assert table.schema == TICKS.arrow
    assert table.to_pylist() == [
        {
            "t": datetime(2024, 1, 1, tzinfo=UTC),
            "name": "a",
            "n": 1,
            "x": 1.5,
            "ok": True,
            "day": date(2024, 1, 31),
        },
        {"t": datetime(2024, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC), "n": 2} | dict.fromkeys(["name", "x", "ok", "day"]),
    ]


@pytest.mark.parametrize("ending", ["json", "ndjson", "jsonl"])
def test_endings_and_the_case_of_keys(tmp_path: Path, ending: str) -> None:
    table, _ = read_all(stream(write(tmp_path / f"a.{ending}", FIRST.replace('"n"', '"N"'))))
    assert table.column("n").to_pylist() == [1]


def test_floats_that_json_has_not(tmp_path: Path) -> None:
    values = ['"NaN"', "NaN", '"Infinity"', '"-Infinity"', "-Infinity", "1e308", "-0.0"]
    lines = [f'{{"t":"2024-01-01T00:00:00Z","n":1,"x":{v}}}' for v in values]
    table, rejects = read_all(stream(write(tmp_path / "a.jsonl", *lines)))
    assert rejects == []
    read = table.column("x").to_pylist()
    assert [math.isnan(x) for x in read] == [True, True] + [False] * 5
    assert read[2:] == [math.inf, -math.inf, -math.inf, 1e308, -0.0]


BAD = [
    ("null", "not a JSON object"),
    ("7", "not a JSON object"),
    ('{"n":1', "JSON parse error"),
    ('{"n":"1","t":"2024-01-01"}', "Column(/n) changed from number to string"),
    ('{"n":1.5,"t":"2024-01-01"}', "couldn't parse:1.5"),
    ('{"n":1,"t":"yesterday"}', "couldn't parse:yesterday"),
    ('{"n":1,"t":"2024-01-01","day":"2024-02-30"}', "2024-02-30"),
    ('{"n":1}', "column 't' is NULL"),
    ('{"t":"2024-01-01"}', "column 'n' is NULL"),
    ('{"n":1,"t":"2024-01-01"} null', "not exactly one JSON object"),
    ('{"n":1,"t":"2024-01-01"}{"n":1,"t":"2024-01-01"}', "not exactly one JSON object"),
    ("{" * 100_000, "JSON parse error"),
]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("line", "reason"), BAD, ids=[b[0][:20] for b in BAD])
def test_bad_lines(tmp_path: Path, line: str, reason: str, first: bool) -> None:
    lines = [line, FIRST] if first else [FIRST, "", line, FIRST]
    table, rejects = read_all(stream(write(tmp_path / "a.jsonl", *lines)))
    assert table.num_rows == len(lines) - 1 - lines.count("")
    assert [(r.row, r.raw) for r in rejects] == [(lines.index(line) + 1, line)]
    assert reason in rejects[0].reason


def test_an_array_is_refused_as_a_whole(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="write one JSON object a line"):
        read_all(stream(write(tmp_path / "a.json", f"[{FIRST}]")))


def test_bytes_that_are_no_text_reject_their_row(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(FIRST.encode() + b'\n{"t":"2024-01-01","n":1,"name":"\xff"}\n')
    table, rejects = read_all(stream(path))
    assert (table.num_rows, rejects[0].row) == (1, 2)
    assert rejects[0].reason.startswith("not UTF-8")


def test_gzip(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(FIRST.encode()))
    table, _ = read_all(stream(tmp_path / "a.jsonl.gz"))
    assert table.num_rows == 1


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**33), 2**33) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abn"), inner, max_size=3),
    max_leaves=4,
)
noise = st.one_of(values.map(json.dumps), st.text('{}[]",:0123456789nulNaI\\ \t', max_size=12))


@settings(max_examples=80, deadline=None)
@given(st.lists(noise, max_size=12), st.integers(1, 5))
def test_no_text_gets_through_or_hurts(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], batch_rows: int
) -> None:
    """Against Python's parser: a line fits if it is an object whose "n" is an integer of 32 bits."""
    path = tmp_path_factory.mktemp("json") / "a.jsonl"
    path.write_text('{"n":0}\n' + "".join(line + "\n" for line in lines), encoding="utf-8")
    table, rejects = read_all(stream(path, Schema((Field("n", SqlType.INT),)), "n"), batch_rows=batch_rows)

    def value(line: str) -> int | None:
        try:
            pairs: list[list[tuple[str, object]]] = []
            found = json.loads(line, object_pairs_hook=lambda p: pairs.append(p) or dict(p))
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, dict) or sum(key == "n" for key, _ in pairs[-1]) > 1:
            return None
        n = found.get("n")
        return n if type(n) is int and -(2**31) <= n < 2**31 else None

    expected = [value(line) for line in lines]
    assert table.column("n").to_pylist() == [0] + [n for n in expected if n is not None]
    bad = [i + 2 for i, line in enumerate(lines) if expected[i] is None and line.strip()]
    assert [r.row for r in rejects] == bad
