"""From evaluations to results: differences of multisets, DISTINCT, ORDER BY with NULL and NaN, HAVING, failures."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.expressions.tree import Call, Column, Literal
from penstock.lang.query import Emit, Order, Output
from penstock.operators.emitter import Emitter, Evaluations
from penstock.plan.nodes import WINDOW_COLUMNS, Emission
from penstock.store import state as state_format
from penstock.types import Field, Schema, SqlType

KINDS = {"k": SqlType.STRING, "x": SqlType.DOUBLE, "n": SqlType.BIGINT}
SCHEMA = Schema((*WINDOW_COLUMNS, *(Field(name, kind) for name, kind in KINDS.items())))
Row = tuple[Any, Any, Any]


def emitter(emit: Emit = Emit.RSTREAM, rejects: list[Any] | None = None, **options: Any) -> Emitter:
    outputs = tuple(Output(name, Column(name, kind)) for name, kind in KINDS.items())
    settings_ = {"having": None, "distinct": False, "order_by": (), "limit": None} | options
    emission = Emission(outputs=outputs, emit=emit, drain=False, **settings_)
    taken = [] if rejects is None else rejects
    return Emitter(emission, SCHEMA, lambda reason, row: taken.append((reason, row)))


def order(name: str, descending: bool = False, nulls_first: bool | None = None) -> Order:
    return Order(Column(name, KINDS[name]), descending, not descending if nulls_first is None else nulls_first)


def evaluations(relations: list[list[Row]], partitions: list[int] | None = None, first: int = 0) -> Evaluations:
    rows = [row for relation in relations for row in relation]
    columns = [pa.array([row[i] for row in rows], kind.arrow) for i, kind in enumerate(KINDS.values())]
    batch = pa.RecordBatch.from_arrays(columns, names=list(KINDS))
    upto = np.cumsum([len(relation) for relation in relations], dtype=np.int64)
    ends = 10 * np.arange(first + 1, first + len(relations) + 1)
    return Evaluations(batch, upto, ends - 10, ends, None if partitions is None else np.array(partitions))


def same(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value + 0.0 if value == 0 else value


def results(chunk: Any) -> dict[int, list[Row]]:
    """The rows of each evaluation, by its end."""
    found: dict[int, list[Row]] = {}
    assert (chunk.times == chunk.arrow.column(1).cast(pa.int64()).to_numpy() - 1).all()
    columns = [c.to_pylist() for c in chunk.arrow.columns[2:]]
    starts = chunk.arrow.column(0).cast(pa.int64()).to_pylist()
    for time, start, *row in zip(chunk.times.tolist(), starts, *columns, strict=True):
        assert start == time - 9
        found.setdefault(time + 1, []).append(tuple(row))
    return found


values = st.tuples(
    st.sampled_from([None, "a", "b", "é", ""]),
    st.sampled_from([None, 0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf]),
    st.sampled_from([None, 0, 1, -1]),
)
relations = st.lists(st.lists(values, max_size=8), min_size=1, max_size=6)


def counted(rows: list[Row]) -> Counter[Row]:
    return Counter(tuple(map(same, row)) for row in rows)


@pytest.mark.parametrize("emit", [Emit.ISTREAM, Emit.DSTREAM])
@settings(max_examples=80, deadline=None)
@given(relations, st.integers(0, 6), st.booleans())
def test_differences_are_those_of_multisets(emit: Emit, drawn: list[list[Row]], cut: int, distinct: bool) -> None:
    """In one go or in two with a restart in between."""
    cut = min(cut, len(drawn))
    operator = emitter(emit, distinct=distinct)
    found = results(operator.emit(evaluations(drawn[:cut])))
    fresh = emitter(emit, distinct=distinct)
    fresh.restore(state_format.decode(state_format.encode(operator.snapshot())))
    found |= results(fresh.emit(evaluations(drawn[cut:], first=cut)))
    before: Counter[Row] = Counter()
    for k, relation in enumerate(drawn):
        now = counted(relation)
        if distinct:
            now = Counter(dict.fromkeys(now, 1))
        expected = now - before if emit is Emit.ISTREAM else before - now
        assert counted(found.get(10 * (k + 1), [])) == expected
        before = now


def test_partitions_are_compared_with_themselves() -> None:
    a, b = ("a", 1.0, 1), ("b", 1.0, 1)
    chunk = emitter(Emit.ISTREAM).emit(evaluations([[a], [b], [a], [a, b]], partitions=[0, 1, 0, 1]))
    assert results(chunk) == {10: [a], 20: [b], 40: [a]}


@settings(max_examples=80, deadline=None)
@given(relations)
def test_distinct(drawn: list[list[Row]]) -> None:
    found = results(emitter(distinct=True).emit(evaluations(drawn)))
    for k, relation in enumerate(drawn):
        rows = found.get(10 * (k + 1), [])
        assert counted(rows) == Counter(dict.fromkeys(counted(relation), 1))
        firsts = list(dict.fromkeys(tuple(map(same, row)) for row in relation))
        assert [tuple(map(same, row)) for row in rows] == firsts, "the first of each, in order"


def rank(value: Any, descending: bool, nulls_first: bool) -> tuple[int, Any]:
    if value is None:
        return (-1 if nulls_first else 1, 0)
    if isinstance(value, str):
        image: Any = tuple(value.encode())
        return (0, (*(-byte for byte in image), 1) if descending else image)
    number = math.inf if isinstance(value, float) and math.isnan(value) else value
    last = 1 if isinstance(value, float) and math.isnan(value) else 0
    return (0, (-last, -number) if descending else (last, number))


@settings(max_examples=150, deadline=None)
@given(relations, st.sampled_from(["k", "x", "n"]), st.booleans(), st.booleans(), st.integers(1, 5) | st.none())
def test_order_and_limit(
    drawn: list[list[Row]], name: str, descending: bool, nulls_first: bool, limit: int | None
) -> None:
    """NaN is the greatest number, strings go by bytes, NULLs where the query says, ties stay as they are."""
    operator = emitter(order_by=(order(name, descending, nulls_first),), limit=limit)
    found = results(operator.emit(evaluations(drawn)))
    at = list(KINDS).index(name)
    for k, relation in enumerate(drawn):
        expected = sorted(relation, key=lambda row: rank(row[at], descending, nulls_first))[:limit]
        rows = found.get(10 * (k + 1), [])
        assert [tuple(map(same, row)) for row in rows] == [tuple(map(same, row)) for row in expected]


def test_having_and_rows_that_fail() -> None:
    rejects: list[Any] = []
    passes = Call("gt", (Column("n", SqlType.BIGINT), Literal(0, SqlType.BIGINT)), SqlType.BOOLEAN)
    operator = emitter(having=passes, rejects=rejects)
    given_rows: list[Row] = [("a", 1.0, 1), ("b", 1.0, 0), ("c", 1.0, None), ("d", 1.0, 5)]
    evaluated = evaluations([given_rows])
    evaluated.failed = np.array([False, False, False, True])
    assert results(operator.emit(evaluated)) == {10: [("a", 1.0, 1)]}
    assert [(row["k"], "overflow" in reason) for reason, row in rejects] == [("d", True)]


def test_nothing_comes_of_nothing() -> None:
    for emit in (Emit.RSTREAM, Emit.ISTREAM, Emit.DSTREAM):
        assert emitter(emit).emit(evaluations([[], []])).rows == 0
