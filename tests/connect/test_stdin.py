"""Standard input: a pipe that is slow, CSV and JSON lines, a last line without its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from io import TextIOWrapper

import pytest
from streams import stream

from penstock.connect import open_source
from penstock.connect.source import SourceBatch
from penstock.errors import InputError
from penstock.types import Field, Schema, SqlType

NUMBERS = Schema((Field("n", SqlType.BIGINT),))


def numbers(batches: Iterable[SourceBatch]) -> list[int]:
    return [n for got in batches for n in got.batch.column("n").to_pylist()]


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    out, into = os.pipe()
    with TextIOWrapper(os.fdopen(out, "rb")) as reader:
        monkeypatch.setattr(sys, "stdin", reader)
        yield into


def test_lines_come_as_they_are_written(pipe: int) -> None:
    source = open_source(stream("-", NUMBERS, "n"))
    assert next(source).batch.num_rows == 0
    os.write(pipe, b'{"n":1}\n{"n":2}\n{"n"')
    assert numbers(next(source) for _ in range(3)) == [1, 2]
    os.write(pipe, b':3}\nbad\n{"n":4}')
    os.close(pipe)
    rest = list(source)
    assert numbers(rest) == [3, 4]
    rejects = [reject for got in rest for reject in got.rejects]
    assert [(r.source, r.row, r.raw) for r in rejects] == [("<stdin>", 4, "bad")]


def test_csv(pipe: int) -> None:
    os.write(pipe, b"m,n\n7,1\n8,2\n")
    os.close(pipe)
    source = open_source(stream("stdin:", NUMBERS, "n", format="csv"))
    assert numbers(source) == [1, 2]


def test_other_formats_are_refused() -> None:
    with pytest.raises(InputError, match="csv or jsonl, not 'parquet'"):
        open_source(stream("-", NUMBERS, "n", format="parquet"))
