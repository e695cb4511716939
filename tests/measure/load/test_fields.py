"""Made values: their types, their statistics, and that they repeat."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from pydantic import TypeAdapter

from penstock.errors import InputError
from penstock.types import SqlType
from penstock_bench.measure.load.fields import Fields
from penstock_bench.measure.load.share import Share
from penstock_bench.measure.load.tables import write_table
from penstock_bench.measure.setup.generators import Generator
from penstock_bench.measure.setup.model import Table


def generator(kind: str, **about: object) -> Generator:
    made: Generator = TypeAdapter(Generator).validate_python({"generator": kind, **about})
    return made


def fields(kind: SqlType, made: Generator, share: Share | None = None, seed: int = 0) -> Fields:
    return Fields({"x": kind}, {"x": made}, share or Share(), seed, "fields")


def column(kind: SqlType, made: Generator, count: int = 100_000, share: Share | None = None) -> pa.Array:
    array = fields(kind, made, share).take(count)["x"]
    assert array.type == kind.arrow
    assert len(array) == count
    assert array.null_count == 0
    return array


def numbers(kind: SqlType, made: Generator, count: int = 100_000) -> np.ndarray:
    return column(kind, made, count).to_numpy()


def test_sequential() -> None:
    made = generator("sequential", start=10, step=5)
    assert column(SqlType.INT, made, 4).to_pylist() == [10, 15, 20, 25]
    assert column(SqlType.STRING, made, 3).to_pylist() == ["10", "15", "20"]
    assert column(SqlType.DOUBLE, made, 2).to_pylist() == [10.0, 15.0]
    assert column(SqlType.BIGINT, generator("sequential", limit=3), 5).to_pylist() == [1, 2, 3, 1, 2]


def test_sequences_of_copies_are_one() -> None:
    made = generator("sequential")
    parts = [column(SqlType.BIGINT, made, 10, Share(copy, 3, copy, 3)).to_pylist() for copy in range(3)]
    assert sorted(value for part in parts for value in part) == list(range(1, 31))


def test_uniform() -> None:
    whole = numbers(SqlType.INT, generator("uniform", min=1, max=10))
    counts = np.bincount(whole)[1:]
    assert len(counts) == 10
    # Chi-square with 9 degrees of freedom at 0.1 %.
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 27.9
    real = numbers(SqlType.DOUBLE, generator("uniform", min=-1, max=3))
    assert -1 <= real.min() < -0.99
    assert 2.99 < real.max() < 3
    assert real.mean() == pytest.approx(1, abs=0.02)
    assert set(column(SqlType.STRING, generator("uniform", min=1, max=2), 100).to_pylist()) == {"1", "2"}


def test_normal() -> None:
    real = numbers(SqlType.DOUBLE, generator("normal", mean=50, stdev=4))
    assert real.mean() == pytest.approx(50, abs=0.06)
    assert real.std() == pytest.approx(4, rel=0.01)
    assert np.mean(np.abs(real - 50) < 4) == pytest.approx(0.6827, abs=0.006)
    whole = numbers(SqlType.SMALLINT, generator("normal", mean=50, stdev=4))
    assert whole.mean() == pytest.approx(50, abs=0.06)


def test_zipf() -> None:
    whole = numbers(SqlType.INT, generator("zipf", count=100, exponent=1.2))
    weights = 1 / np.arange(1, 101) ** 1.2
    expected = weights / weights.sum() * len(whole)
    counts = np.bincount(whole, minlength=101)[1:]
    assert whole.min() == 1
    assert whole.max() == 100
    # Chi-square with 99 degrees of freedom at 0.1 %.
    assert ((counts - expected) ** 2 / expected).sum() < 148.2


def test_random_walk() -> None:
    free = numbers(SqlType.DOUBLE, generator("random walk", start=100, step=0.5))
    assert free[0] == 100
    assert np.diff(free).std() == pytest.approx(0.5, rel=0.01)
    held = numbers(SqlType.DOUBLE, generator("random walk", start=5, step=0.5, min=0, max=10))
    assert 0 <= held.min() < 0.1
    assert 9.9 < held.max() <= 10
    assert np.abs(np.diff(held)).max() < 3
    # A walk between two walls is everywhere equally often.
    assert np.mean(held < 5) == pytest.approx(0.5, abs=0.1)
    assert numbers(SqlType.DOUBLE, generator("random walk", start=1, min=0)).min() >= 0
    assert numbers(SqlType.DOUBLE, generator("random walk", start=1, max=2)).max() <= 2
    assert set(numbers(SqlType.INT, generator("random walk", start=1, min=1, max=1), 50).tolist()) == {1}
    with pytest.raises(InputError, match=r"start = 5 is not between"):
        fields(SqlType.INT, generator("random walk", start=5, max=2))


def test_constant_and_list() -> None:
    assert column(SqlType.STRING, generator("constant", value="a"), 3).to_pylist() == ["a"] * 3
    assert column(SqlType.BOOLEAN, generator("constant", value=True), 2).to_pylist() == [True, True]
    day = column(SqlType.DATE, generator("constant", value="2024-02-29"), 1)[0].as_py()
    assert day.isoformat() == "2024-02-29"
    for value in ("2024-02-29T12:00:00Z", "2024-02-29 12:00:00", 1_709_208_000_000_000):
        moment = column(SqlType.TIMESTAMP, generator("constant", value=value), 1)[0]
        assert moment.value == 1_709_208_000_000_000
    picked = column(SqlType.STRING, generator("list", values=["x", "y", "z"], weights=[1, 0, 3]))
    counts = {entry["values"]: entry["counts"] for entry in pc.value_counts(picked).to_pylist()}
    assert set(counts) == {"x", "z"}
    assert counts["z"] / 100_000 == pytest.approx(0.75, abs=0.006)
    equal = numbers(SqlType.INT, generator("list", values=[1, 2]))
    assert np.mean(equal == 1) == pytest.approx(0.5, abs=0.007)


GENERATORS = [
    (SqlType.BIGINT, generator("sequential", limit=700)),
    (SqlType.INT, generator("uniform", min=1, max=6)),
    (SqlType.FLOAT, generator("uniform", min=0, max=1)),
    (SqlType.DOUBLE, generator("normal", mean=0, stdev=1)),
    (SqlType.INT, generator("zipf", count=50)),
    (SqlType.DOUBLE, generator("random walk", min=99, max=101)),
    (SqlType.STRING, generator("list", values=["a", "b"])),
    (SqlType.STRING, generator("constant", value="c")),
]


@settings(max_examples=60, deadline=None)
@given(which=st.sampled_from(GENERATORS), cuts=st.lists(st.integers(0, 400), max_size=6), seed=st.integers(-2, 2))
def test_the_same_whatever_the_cuts(which: tuple[SqlType, Generator], cuts: list[int], seed: int) -> None:
    kind, made = which
    whole = fields(kind, made, seed=seed).take(sum(cuts))["x"]
    again = fields(kind, made, seed=seed)
    pieces = [again.take(count)["x"] for count in cuts]
    assert pa.chunked_array(pieces, kind.arrow).combine_chunks() == whole


def test_columns_of_one_stream_are_independent() -> None:
    made = generator("uniform", min=0, max=1)
    both = Fields(dict.fromkeys("ab", SqlType.DOUBLE), dict.fromkeys("ab", made), Share(), 0, "fields").take(1000)
    assert abs(np.corrcoef(both["a"].to_numpy(), both["b"].to_numpy())[0, 1]) < 0.15


@pytest.mark.parametrize(
    ("kind", "value"), [(SqlType.DATE, "hello"), (SqlType.TIMESTAMP, "noon"), (SqlType.TIMESTAMP, 10**30)]
)
def test_a_constant_that_is_no_date_names_its_place(kind: SqlType, value: object) -> None:
    with pytest.raises(InputError, match=r"fields\.x: a value does not fit its column"):
        fields(kind, generator("constant", value=value))


def test_a_value_that_does_not_fit_names_its_place() -> None:
    with pytest.raises(InputError, match=r"fields\.x: a value does not fit its column"):
        fields(SqlType.TINYINT, generator("sequential")).take(200)
    with pytest.raises(InputError, match="no whole number between"):
        fields(SqlType.INT, generator("uniform", min=0.2, max=0.4))


def table(**about: object) -> Table:
    raw = {
        "columns": {"id": "INT", "name": "STRING"},
        "key": "id",
        "rows": 100_000,
        "fields": {"id": {"generator": "sequential"}, "name": {"generator": "list", "values": ["a", "b"]}},
    }
    return Table.model_validate({**raw, **about})


def test_made_tables(tmp_path: Path) -> None:
    write_table("t", table(), tmp_path / "t.parquet")
    write_table("t", table(), tmp_path / "again.parquet")
    found = parquet.read_table(tmp_path / "t.parquet")
    assert found.column("id").to_pylist() == list(range(1, 100_001))
    assert found.schema.field("name").type == pa.string()
    assert found == parquet.read_table(tmp_path / "again.parquet")
    write_table("t", table(rows=0), tmp_path / "empty.parquet")
    assert parquet.read_table(tmp_path / "empty.parquet").num_rows == 0


def test_keys_must_differ(tmp_path: Path) -> None:
    named = {"name": {"generator": "constant", "value": "a"}}
    for key in ({"generator": "uniform", "min": 1, "max": 5}, {"generator": "sequential", "limit": 10}):
        with pytest.raises(InputError, match=r"tables\.t\.fields\.id: a key has no value twice"):
            write_table("t", table(fields={"id": key, **named}), tmp_path / "t.parquet")
