"""The keyed store against a dictionary: what is put, changed and taken out, in any order and however it grows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BudgetError
from penstock.store import keyed
from penstock.store.blocks import ColumnSpec
from penstock.store.budget import Budget
from penstock.store.keyed import KeyedStore
from penstock.store.keyed_pages import KeyedPages
from penstock.store.memory_device import MemoryDevice

COLUMNS = [ColumnSpec("a", np.dtype(np.int32), True), ColumnSpec("b", np.dtype(np.float64), True)]

Row = tuple[int, float | None]


def make(words: int = 1, narrow: bool = True) -> KeyedStore:
    return KeyedStore(words, narrow, COLUMNS, Budget(1 << 30).account("t"))


def words_of(keys: list[tuple[int, ...]], words: int) -> Any:
    return np.array(keys, np.int64).reshape(len(keys), words)


def put(store: KeyedStore, model: dict[tuple[int, ...], Row], rows: dict[tuple[int, ...], Row], words: int) -> None:
    places, fresh = store.put(words_of(list(rows), words))
    assert fresh.tolist() == [key not in model for key in rows]
    values = list(rows.values())
    store.write(0, places, np.array([a for a, _ in values], np.int32), None)
    valid = np.array([b is not None for _, b in values], np.bool_)
    store.write(1, places, np.array([b or 0.0 for _, b in values]), None if valid.all() else valid)
    model.update(rows)


def check(store: KeyedStore, model: dict[tuple[int, ...], Row], asked: list[tuple[int, ...]], words: int) -> None:
    assert store.rows == len(model)
    valid = np.arange(len(asked)) % 7 != 3
    for grace in (False, True, None, None):  # the last one finds dense keys directly
        found = store.find(words_of(asked, words), valid, grace)
        there = found.in_order() >= 0
        a, b = store.column(0, found), store.column(1, found)
        for i, key in enumerate(asked):
            wanted = model.get(key) if valid[i] else None
            assert there[i] == (wanted is not None)
            if wanted is not None:
                got = b.values[i] if b.valid is None or b.valid[i] else None
                assert (a.values[i], got) == wanted
        keys = store.key_words(found)
        assert [tuple(k) for k in keys[there].tolist()] == [k for k, t in zip(asked, there, strict=True) if t]
    assert len(store.all_rows()) == len(model)


KEYS = st.integers(-40, 40) | st.sampled_from([2**31 - 1, -(2**31)])
ROW = st.tuples(st.integers(-9, 9), st.none() | st.floats(allow_nan=False))


DENSE = st.integers(0, 60) | st.sampled_from([-1, 2**31 - 1])


@pytest.mark.parametrize(
    ("words", "narrow", "word"),
    [(1, True, KEYS), (1, True, DENSE), (1, False, KEYS | st.integers(-(2**63), 2**63 - 1)), (2, True, KEYS)],
)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_like_a_dictionary(words: int, narrow: bool, word: st.SearchStrategy[int], data: st.DataObject) -> None:
    key = st.tuples(*[word] * words)
    store, model = make(words, narrow), {}
    pages = KeyedPages(store, MemoryDevice(256))
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()):
            put(store, model, data.draw(st.dictionaries(key, ROW, max_size=40)), words)
        else:
            gone = data.draw(st.lists(key, max_size=30))
            store.remove(words_of(gone, words))
            for k in gone:
                model.pop(k, None)
        check(store, model, data.draw(st.lists(key, max_size=20)) + list(model), words)
        if data.draw(st.booleans()):
            saved = pages.snapshot()
            other = make(words, narrow)
            KeyedPages(other, pages._device).restore(saved)
            check(other, model, list(model), words)


def test_grows_by_splitting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed, "PARTITION_ROWS", 64)
    store, model = make(), {}
    rng = np.random.default_rng(1)
    for _ in range(30):
        keys = rng.integers(-(2**31), 2**31, 200)
        put(store, model, {(int(k),): (int(k) % 100, None if k % 5 == 0 else float(k)) for k in keys}, 1)
        gone = list(model)[:: int(rng.integers(3, 9))]
        store.remove(words_of(gone, 1))
        for k in gone:
            del model[k]
    assert store.partitions > 8
    check(store, model, [*model, (1,), (2,)], 1)


def test_is_small() -> None:
    store = KeyedStore(1, True, [ColumnSpec(n, np.dtype(np.int32), True) for n in "abcd"], Budget(1 << 30).account("t"))
    rows = 300_000
    for begin in range(0, rows, 50_000):  # grown, not made to measure
        store.put(np.arange(begin, begin + 50_000, dtype=np.int64)[:, None])
    assert store.nbytes / store.raw_nbytes <= 1.5
    store.clear()
    store.reserve(rows)
    store.put(np.arange(rows, dtype=np.int64)[:, None])
    assert store.nbytes / store.raw_nbytes <= 1.4


def test_dense_keys_are_found_directly_as_long_as_rows_stay() -> None:
    budget = Budget(1 << 20)
    store = KeyedStore(1, True, COLUMNS, budget.account("t"))
    keys = np.arange(100, dtype=np.int64)[:, None]
    rows, _ = store.put(keys)
    plain = store.nbytes
    asked = np.array([[3], [-1], [99], [100], [2**31 - 1]])
    for _ in range(30):
        assert store.find(asked).rows.tolist() == [rows[3], -1, rows[99], -1, -1]
    assert budget.used == store.nbytes == plain + 4 * 100
    store.put(np.array([[100]]))
    assert budget.used == store.nbytes == plain
    assert store.find(asked).rows.tolist()[3] >= 0
    for _ in range(30):
        store.find(asked)
    assert store.nbytes > plain
    store.remove(np.array([[3]]))
    assert budget.used == store.nbytes == plain
    assert store.find(asked).rows.tolist()[0] == -1
    for _ in range(30):
        store.find(asked)
    other = budget.account("other")
    other.resize(budget.total - plain)  # the index is given up
    assert budget.used == budget.total
    assert store.nbytes == plain


def test_asks_before_it_grows() -> None:
    budget = Budget(20_000)
    store = KeyedStore(1, False, COLUMNS, budget.account("t"))
    with pytest.raises(BudgetError):
        store.put(np.arange(5000, dtype=np.int64)[:, None])
    assert budget.used == store.nbytes <= 20_000


def test_pages_that_did_not_change_are_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed, "PARTITION_ROWS", 64)
    store, device = make(), MemoryDevice(4096)
    pages = KeyedPages(store, device)
    store.reserve(2000)
    store.put(np.arange(2000, dtype=np.int64)[:, None])
    pages.snapshot()
    before = device.written
    rows, _ = store.put(np.array([[7]]))
    store.write(0, rows, np.array([3], np.int32), None)
    pages.snapshot()
    assert 0 < device.written - before <= 4096


@pytest.mark.parametrize("left", [0, 3, 4000])
def test_few_rows_of_many_give_their_room_back(left: int) -> None:
    store, model = make(), {}
    budget = store._account
    put(store, model, {(k,): (k, None if k % 3 == 0 else k / 2) for k in range(60_000)}, 1)
    before = budget.nbytes
    store.shrink()
    assert budget.nbytes == before
    store.remove(words_of([(k,) for k in range(left, 60_000)], 1))
    for k in range(left, 60_000):
        del model[(k,)]
    store.shrink()
    assert budget.nbytes == store.nbytes
    assert budget.nbytes < before / 5
    check(store, model, [(k,) for k in range(5000)], 1)
    put(store, model, {(k,): (-k, float(k)) for k in range(70_000, 70_100)}, 1)
    check(store, model, [(k,) for k in range(69_990, 70_110)], 1)


def test_rows_stay_where_there_is_no_memory_to_move_them() -> None:
    budget = Budget(1 << 30)
    store, model = KeyedStore(1, True, COLUMNS, budget.account("t")), {}
    put(store, model, {(k,): (k, 1.0) for k in range(60_000)}, 1)
    store.remove(words_of([(k,) for k in range(4000, 60_000)], 1))
    for k in range(4000, 60_000):
        del model[(k,)]
    other = budget.account("other")
    other.charge(budget.free)
    held = budget.used
    store.shrink()
    assert budget.used == held
    check(store, model, [(k,) for k in range(5000)], 1)
    other.resize(0)
    store.shrink()
    assert budget.used < held / 5
    check(store, model, [(k,) for k in range(5000)], 1)
