"""Parquet input: pruning, types that fit, values that do not, files that do not."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from streams import read_all, stream

from penstock.connect import open_source
from penstock.errors import InputError
from penstock.types import Field, Schema, SqlType

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def one_column(tmp_path: Path, values: Any, kind: SqlType) -> tuple[pa.Table, list[Any]]:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"t": pa.array(range(len(values)), pa.int64()), "v": values}), path)
    schema = Schema((Field("t", SqlType.BIGINT), Field("v", kind)))
    return read_all(stream(path, schema))


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([1, None], pa.int16()), SqlType.BIGINT, [1, None]),
        (pa.array([1, 2], pa.uint64()), SqlType.INT, [1, 2]),
        (pa.array([1, 2], pa.int64()), SqlType.DOUBLE, [1.0, 2.0]),
        (pa.array([Decimal("1.50")]), SqlType.DOUBLE, [1.5]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), SqlType.STRING, ["a", "b", "a"]),
        (pa.array(["a"], pa.large_string()), SqlType.STRING, ["a"]),
        (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ms")), SqlType.TIMESTAMP, [NOON]),
        (pa.array([NOON], pa.timestamp("ns", tz="Asia/Tokyo")), SqlType.TIMESTAMP, [NOON]),
        (pa.nulls(2), SqlType.INT, [None, None]),
    ],
    ids=str,
)
def test_types_that_fit(tmp_path: Path, values: Any, kind: SqlType, expected: list[Any]) -> None:
    table, rejects = one_column(tmp_path, values, kind)
    assert rejects == []
    assert table.schema.field("v").type == kind.arrow
    assert table.column("v").to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1"], SqlType.INT),
        ([1.0], SqlType.INT),
        ([1], SqlType.STRING),
        ([1], SqlType.BOOLEAN),
        ([1], SqlType.TIMESTAMP),
        ([[1]], SqlType.INT),
    ],
    ids=str,
)
def test_types_that_do_not(tmp_path: Path, values: Any, kind: SqlType) -> None:
    with pytest.raises(InputError, match=rf"a\.parquet: column 'v' is .* there and {kind} in CREATE STREAM"):
        one_column(tmp_path, values, kind)


def test_values_that_do_not_fit_take_their_rows_out(tmp_path: Path) -> None:
    table, rejects = one_column(tmp_path, pa.array([1, 2**40, None, -(2**31)]), SqlType.INT)
    assert table.column("v").to_pylist() == [1, None, -(2**31)]
    assert [(r.row, r.reason) for r in rejects] == [(2, "value of column 'v' does not fit INT")]
    assert rejects[0].raw == '{"t": 1, "v": 1099511627776}'


def test_pruning_reads_only_some_columns_but_checks_that_all_are_there(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"T": [1, 2], "v": [5, 6], "w": ["x", "y"]}), path)
    schema = Schema((Field("t", SqlType.BIGINT), Field("v", SqlType.BIGINT), Field("w", SqlType.STRING)))
    table, _ = read_all(stream(path, schema), columns=["v"])
    assert table.to_pydict() == {"t": [1, 2], "v": [5, 6]}
    wider = Schema((*schema.fields, Field("z", SqlType.INT)))
    with pytest.raises(InputError, match="column 'z' is missing; there are T, v, w"):
        read_all(stream(path, wider), columns=["v"])


def test_a_null_time_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"t": pa.array([1, None, 3], pa.int64())}), path)
    table, rejects = read_all(stream(path, Schema((Field("t", SqlType.BIGINT),))))
    assert table.column("t").to_pylist() == [1, 3]
    assert [(r.row, r.reason) for r in rejects] == [(2, "column 't' is NULL")]


def test_row_groups_and_every_restart(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"t": list(range(25))}), path, row_group_size=7)
    definition = stream(path, Schema((Field("t", SqlType.BIGINT),)))
    for batch_rows in (1, 4, 10, 100):
        seen: list[int] = []
        for got in open_source(definition, batch_rows=batch_rows):
            seen += got.batch.column("t").to_pylist()
            for other_size in (1, 3, 50):
                rest, _ = read_all(definition, batch_rows=other_size, position=got.position)
                assert seen + (rest.column("t").to_pylist() if rest.num_rows else []) == list(range(25))


def test_what_is_no_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 but not really")
    with pytest.raises(InputError, match=r"a\.parquet: cannot be read as Parquet"):
        read_all(stream(path, Schema((Field("t", SqlType.BIGINT),))))
    parquet.write_table(pa.table({"t": list(range(100_000))}), path, compression=None)
    data = bytearray(path.read_bytes())
    data[:2000] = b"\xff" * 2000
    path.write_bytes(bytes(data))
    with pytest.raises(InputError, match="cannot be read"):
        read_all(stream(path, Schema((Field("t", SqlType.BIGINT),))))
