"""Groups and interned strings against plain dictionaries: many keys, NULLs, NaN, churn, saved and restored."""

from __future__ import annotations

import bisect
import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BudgetError
from penstock.expressions.vector import ColumnView, Vector, to_arrow
from penstock.operators.groups import GroupTable
from penstock.operators.interner import Interner
from penstock.store import state as state_format
from penstock.store.budget import Budget
from penstock.types import SqlType

KINDS: dict[SqlType, st.SearchStrategy[Any]] = {
    SqlType.BIGINT: st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3),
    SqlType.TINYINT: st.integers(-128, 127),
    SqlType.BOOLEAN: st.booleans(),
    SqlType.DOUBLE: st.floats() | st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 1.5]),
    SqlType.FLOAT: st.floats(width=32),
    SqlType.STRING: st.text(max_size=3) | st.sampled_from(["", "a", "é", "\U0001f600"]),
    SqlType.TIMESTAMP: st.integers(-(1 << 60), 1 << 60),
}

ZERO: dict[SqlType, Any] = dict.fromkeys(KINDS, 0) | {
    SqlType.BOOLEAN: False,
    SqlType.DOUBLE: 0.0,
    SqlType.FLOAT: 0.0,
    SqlType.STRING: "",
}
"""What a NULL must not be taken for."""


def canonical(value: Any) -> Any:
    """Equal keys, equal canonical values: NaN is one value and -0.0 is 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value + 0.0)
    return value


def rank(kind: SqlType, value: Any) -> tuple[int, Any]:
    """NULL first, numbers up with NaN last, strings by bytes."""
    if value is None:
        return (0, 0)
    if kind is SqlType.STRING:
        return (1, value.encode())
    if kind.is_floating:
        return (2, 0) if math.isnan(value) else (1, value + 0.0)
    return (1, value)


def column(values: list[Any], kind: SqlType, encoded: bool) -> ColumnView:
    stored = pa.int64() if kind is SqlType.TIMESTAMP else kind.arrow
    array = pa.array(values, stored).cast(kind.arrow)
    return ColumnView(array.dictionary_encode() if encoded and kind is SqlType.STRING else array, kind)


@st.composite
def histories(draw: st.DrawFn) -> tuple[tuple[SqlType, ...], list[list[tuple[Any, ...]]]]:
    """Key types, and batches of keys from a small pool, so that keys come back. Some keys have 62 columns more, so that
    a key's NULLs are beyond its 64th column."""
    kinds = tuple(draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3)))
    keys = st.tuples(*(st.none() | KINDS[kind] | st.just(ZERO[kind]) for kind in kinds))
    if draw(st.integers(0, 3)) == 0:
        kinds = (*(SqlType.TINYINT,) * 62, *kinds)
        keys = st.tuples(st.sampled_from(((0,) * 62, (None, *(0,) * 61))), keys).map(lambda parts: sum(parts, ()))
    pool = draw(st.lists(keys, min_size=1, max_size=40))
    batches = st.lists(st.lists(st.sampled_from(pool), min_size=1, max_size=30), min_size=1, max_size=8)
    return kinds, draw(batches)


@settings(max_examples=150, deadline=None)
@given(histories(), st.randoms(), st.booleans())
def test_groups_are_those_of_a_dictionary(
    history: tuple[tuple[SqlType, ...], list[list[tuple[Any, ...]]]], chance: Any, encoded: bool
) -> None:
    """Rows come and leave in order; a key keeps its slot while it has rows, and slots are shown in the keys' order."""
    kinds, batches = history
    table = GroupTable(kinds)
    window: list[tuple[Any, int]] = []
    for batch in batches:
        keep = np.array([chance.random() < 0.8 for _ in batch]) if chance.random() < 0.5 else None
        columns = [column([key[w] for key in batch], kind, encoded) for w, kind in enumerate(kinds)]
        slots = table.assign(columns, len(batch), keep)
        holders = {tuple(map(canonical, key)): slot for key, slot in window}
        for i, (key, slot) in enumerate(zip(batch, slots.tolist(), strict=True)):
            if keep is not None and not keep[i]:
                assert slot == -1
                continue
            assert holders.setdefault(tuple(map(canonical, key)), slot) == slot
            window.append((key, slot))
            table.counts[slot] += 1
        assert len(set(holders.values())) == len(holders)
        check(table, kinds, window)
        leaving = chance.randrange(len(window) + 1) if window else 0
        for _, slot in window[:leaving]:
            table.counts[slot] -= 1
        window = window[leaving:]
        table.collect(leaving)
        check(table, kinds, window)
        if chance.random() < 0.3:
            fresh = GroupTable(kinds)
            fresh.restore(state_format.decode(state_format.encode(table.snapshot())))
            table = fresh
            check(table, kinds, window)
    for interner, kind in zip(table.interners, kinds, strict=True):
        assert (interner is None) == (kind is not SqlType.STRING)


def check(table: GroupTable, kinds: tuple[SqlType, ...], window: list[tuple[Any, int]]) -> None:
    held = {slot: key for key, slot in window}
    order = [slot for slot in table.order().tolist() if table.counts[slot] > 0]
    assert sorted(order) == sorted(held)
    wanted = sorted(held, key=lambda slot: [rank(k, v) for k, v in zip(kinds, held[slot], strict=True)])
    assert order == wanted
    columns = shown(table, order)
    for w, found in enumerate(columns):
        values = found.cast(pa.int64()) if kinds[w] is SqlType.TIMESTAMP else found
        assert [canonical(v) for v in values.to_pylist()] == [canonical(held[slot][w]) for slot in order]


def shown(table: GroupTable, order: list[int]) -> list[pa.Array]:
    columns = table.keys(np.array(order, np.int32))
    return [
        to_arrow(data, kind, len(order)) if isinstance(data, Vector) else data
        for data, kind in zip(columns, table.types, strict=True)
    ]


@pytest.mark.parametrize("columns", [1, 2])
def test_runs_of_equal_keys_with_rows_that_are_left_out(columns: int) -> None:
    """Some thousand rows, so that the table grows within a call."""
    rng = np.random.default_rng(columns)
    groups = GroupTable((SqlType.BIGINT,) * columns)
    known: dict[tuple[int | None, ...], int] = {}
    for _ in range(3):
        runs = rng.integers(-500, 500, (1200, columns)).repeat(rng.integers(1, 6, 1200), axis=0)
        keep, null = rng.random(len(runs)) < 0.8, rng.random(len(runs)) < 0.1
        keys = [ColumnView(pa.array(runs[:, w], mask=null), SqlType.BIGINT) for w in range(columns)]
        slots = groups.assign(keys, len(runs), keep)
        for row, slot in enumerate(slots.tolist()):
            key = (None,) * columns if null[row] else tuple(runs[row].tolist())
            assert slot == (known.setdefault(key, slot) if keep[row] else -1)
    assert len(set(known.values())) == len(known) == groups.size


def test_many_keys_come_and_go_without_a_leak() -> None:
    """A window of 100 rows over ever new strings: memory follows the window, not the stream."""
    table = GroupTable((SqlType.STRING, SqlType.BIGINT))
    window: list[int] = []
    sizes = []
    for start in range(0, 50_000, 500):
        numbers = list(range(start, start + 500))
        columns = [
            column([f"key-{i}" for i in numbers], SqlType.STRING, False),
            column(numbers, SqlType.BIGINT, False),
        ]
        slots = table.assign(columns, 500, None).tolist()
        np.add.at(table.counts, slots, 1)
        window += slots
        np.subtract.at(table.counts, window[:-100], 1)
        left, window = len(window) - 100, window[-100:]
        table.collect(left)
        sizes.append(table.nbytes)
    assert table.capacity <= 4096
    assert max(sizes[-10:]) <= 2 * max(sizes[:10])
    interner = table.interners[0]
    assert interner is not None
    assert len(interner) <= 2048


def test_a_slot_is_free_when_no_window_holds_it() -> None:
    """Two windows over the same groups: the keys of the shorter are free only when the longer has let them go."""
    table = GroupTable((SqlType.BIGINT,))
    short, long = table.tally(), table.tally()
    old = table.assign([column(list(range(40)), SqlType.BIGINT, False)], 40, None)
    for tally in (short, long):
        tally.rows[old] += 1
    short.rows[old] -= 1
    table.collect(40)
    new = table.assign([column(list(range(40, 80)), SqlType.BIGINT, False)], 40, None)
    assert not set(new.tolist()) & set(old.tolist())
    assert len(short.rows) == len(long.rows) == table.capacity
    short.rows[new] += 1
    table.forget(long)
    table.collect(80)
    newest = table.assign([column(list(range(80, 120)), SqlType.BIGINT, False)], 40, None)
    assert set(newest.tolist()) == set(old.tolist())


def test_single_events_find_the_same_groups() -> None:
    table = GroupTable((SqlType.DOUBLE, SqlType.STRING))
    keys = [(0.0, "a"), (-0.0, "a"), (math.nan, "a"), (math.nan, "a"), (None, "a"), (None, None), (0.0, "b")]
    one_by_one = [
        int(table.assign([column([x], SqlType.DOUBLE, False), column([s], SqlType.STRING, False)], 1, None)[0])
        for x, s in keys * 2
    ]
    assert one_by_one[: len(keys)] == one_by_one[len(keys) :] == [0, 0, 1, 1, 2, 3, 4]
    together = [
        column([k[0] for k in keys], SqlType.DOUBLE, False),
        column([k[1] for k in keys], SqlType.STRING, False),
    ]
    assert table.assign(together, len(keys), None).tolist() == one_by_one[: len(keys)]


words = st.lists(st.none() | st.text(max_size=4), max_size=20)


@settings(max_examples=150, deadline=None)
@given(st.lists(words, min_size=1, max_size=8), st.randoms())
def test_interned_strings_live_as_long_as_their_uses(batches: list[list[str | None]], chance: Any) -> None:
    account = Budget(1 << 20).account("strings")
    interner = Interner(account)
    used: list[tuple[str, int]] = []
    for batch in batches:
        array = pa.array(batch, pa.string())
        given_as = [batch, array, array.dictionary_encode()][chance.randrange(3)]
        codes = interner.encode(given_as)
        rows = [(s, int(c)) for s, c in zip(batch, codes, strict=True) if s is not None and chance.random() < 0.7]
        interner.use(np.array([c for _, c in rows], np.int32))
        interner.sweep()
        used += rows
        holders: dict[int, str] = {}
        for string, code in used:
            assert holders.setdefault(code, string) == string
        assert len(set(holders.values())) == len(holders)
        present = sorted(holders)
        assert interner.decode(np.array(present, np.int32)).to_pylist() == [holders[code] for code in present]
        ranks = interner.ranks()
        assert sorted(present, key=lambda code: ranks[code]) == sorted(present, key=lambda code: holders[code].encode())
        assert set(interner.strings.to_pylist()) == set(holders.values())
        leaving = chance.randrange(len(used) + 1)
        interner.release(np.array([c for _, c in used[:leaving]], np.int32))
        used = used[leaving:]
        assert set(interner.strings.to_pylist()) == {s for s, _ in used}
        assert account.nbytes == interner.nbytes
        if chance.random() < 0.3:
            account = Budget(1 << 20).account("strings")
            fresh = Interner(account)
            fresh.restore(state_format.decode(state_format.encode(interner.snapshot())))
            interner = fresh
    interner.release(np.array([c for _, c in used], np.int32))
    assert len(interner) == 0
    assert interner.nbytes == account.nbytes < 4096
    interner.close()
    assert account.nbytes == 0


def test_a_string_is_on_the_account_with_its_bytes_before_it_is_kept() -> None:
    budget = Budget(1_000_000)
    account = budget.account("strings")
    for texts in (["€" * 100_000], pa.array(["€" * 100_000])):
        interner = Interner(account)
        interner.encode(texts)
        assert 300_000 <= account.nbytes < 340_000
        with pytest.raises(BudgetError, match="strings needs"):
            interner.encode(pa.array([f"{i:05}" * 10_000 for i in range(100)]))
        assert account.nbytes == interner.nbytes > 900_000  # as many as there was room for
        assert len(interner) < 20
        interner.close()
        assert account.nbytes == 0


def test_a_new_string_moves_no_other_in_the_order() -> None:
    """It gets a number between those of its neighbours; only where there is none left, all get new ones."""
    interner = Interner()
    words = [f"{i:04}" for i in range(1000)]
    codes = interner.encode(words)
    before = interner.ranks()[codes].copy()
    assert (np.diff(before) > 0).all()
    for text in ("0500x", "", "zzz", "0000x", "0500w"):
        new = int(interner.encode([text])[0])
        ranks = interner.ranks()
        assert (ranks[codes] == before).all()
        assert int((ranks[codes] < ranks[new]).sum()) == bisect.bisect(words, text)
    deeper = ["0300" + "a" * depth for depth in range(1, 80)]
    for text in reversed(deeper):
        interner.encode([text])
        interner.ranks()
    ranks = interner.ranks()[interner.encode([*words[:301], *deeper, *words[301:]])]
    assert (np.diff(ranks) > 0).all()


def test_groups_are_on_the_account_while_they_are_there() -> None:
    budget = Budget(1 << 20)
    account = budget.account("groups")
    table = GroupTable((SqlType.STRING, SqlType.BIGINT), account)
    tally = table.tally()
    for start in range(0, 3000, 100):
        numbers = list(range(start, start + 100))
        texts = [f"key-{i}" for i in numbers]
        table.assign([column(texts, SqlType.STRING, False), column(numbers, SqlType.BIGINT, False)], 100, None)
        assert account.nbytes == table.nbytes
    table.collect(3000)
    assert account.nbytes == table.nbytes
    other = budget.account("restored")
    restored = GroupTable((SqlType.STRING, SqlType.BIGINT), other)
    restored.restore(state_format.decode(state_format.encode(table.snapshot())))
    assert other.nbytes == restored.nbytes
    table.forget(tally)
    table.close()
    assert account.nbytes == 0


def test_groups_beyond_the_budget_are_refused_as_they_come() -> None:
    budget = Budget(100_000)
    account = budget.account("groups")
    table = GroupTable((SqlType.BIGINT,), account)

    def fill() -> None:
        for start in range(0, 100_000, 10):
            table.assign([column(list(range(start, start + 10)), SqlType.BIGINT, False)], 10, None)

    with pytest.raises(BudgetError, match="groups needs"):
        fill()
    assert 500 < table.size < 2000
    assert account.nbytes == table.nbytes > 60_000
