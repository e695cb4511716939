"""Generated sources: parameters, what is refused, and that the declaration must fit the generator."""

from __future__ import annotations

import pytest
from streams import read_all, stream

import penstock.generators  # noqa: F401  registers the generators
from penstock.connect import open_source
from penstock.errors import InputError
from penstock.types import Field, Schema, SqlType

STOCK = Schema((Field("timestamp", SqlType.TIMESTAMP), Field("price", SqlType.DOUBLE)))


def test_a_declaration_may_take_some_columns() -> None:
    table, rejects = read_all(stream("generate:stock?rate=10&seconds=3", STOCK, "timestamp"))
    assert (table.num_rows, table.schema, rejects) == (30, STOCK.arrow, [])


def test_without_end_has_no_fraction() -> None:
    source = open_source(stream("generate:stock?seconds=0", STOCK, "timestamp"), batch_rows=100)
    assert next(source).batch.num_rows == 100
    assert source.progress.fraction is None


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("generate:weather", "unknown generator 'weather'; there are callcentre, "),
        ("generate:stock?rate=fast", "rate='fast' is not an integer"),
        ("generate:stock?rate=0", "rate=0; it must be at least 1"),
        ("generate:stock?start=noon", "start='noon' is no time like"),
        ("generate:stock?colour=1", "unknown parameter 'colour'; there are rate, seconds, seed, start, symbols"),
    ],
)
def test_bad_parameters(uri: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_source(stream(uri, STOCK, "timestamp"))


def test_a_declaration_that_does_not_fit() -> None:
    wrong = Schema((Field("timestamp", SqlType.TIMESTAMP), Field("symbol", SqlType.INT)))
    with pytest.raises(InputError, match="column 'symbol' is string there and INT in CREATE STREAM"):
        open_source(stream("generate:stock", wrong, "timestamp"))
