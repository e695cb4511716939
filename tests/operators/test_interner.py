"""The codes of strings, beside a plain dictionary."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import BudgetError
from penstock.operators.interner import Interner
from penstock.store.budget import Budget

MUCH, LITTLE = 1 << 26, 200_000
LETTERS = ["", "a", "ab", "é", "\0", "\0\0", "x" * 7, "x" * 8, "x" * 9, "y" * 300]


def made_up(source: random.Random) -> str:
    length = source.choice([0, 1, 5, 7, 8, 9, 16, 17, 40])
    return source.choice(LETTERS) + "".join(source.choices("abé\0", k=length))


def strings_of(values: list[str | None], source: random.Random) -> pa.Array:
    """An array that may be a part of a longer one."""
    before, behind = source.randint(0, 3), source.randint(0, 3)
    return pa.array([*["?"] * before, *values, *["!"] * behind], pa.string()).slice(before, len(values))


@pytest.mark.parametrize("memory", [MUCH, LITTLE])
@pytest.mark.parametrize("seed", range(4))
def test_strings_keep_their_codes_as_long_as_they_are_used(seed: int, memory: int) -> None:
    source = random.Random(seed)
    interner = Interner(Budget(memory).account("strings"))
    pool = [made_up(source) for _ in range(400)]
    known: dict[str, int] = {}
    uses: dict[str, int] = {}
    for _ in range(60):
        values = [source.choice([None, *source.choices(pool, k=9)]) for _ in range(source.choice([1, 3, 80, 300]))]
        codes = interner.encode(strings_of(values, source)).tolist()
        for value, code in zip(values, codes, strict=True):
            if value is not None:
                assert known.setdefault(value, code) == code
        assert len(set(known.values())) == len(known)
        kept = [value for value in values if value is not None and source.random() < 0.5]
        interner.use(np.array([known[value] for value in kept], np.int32))
        for value in kept:
            uses[value] = uses.get(value, 0) + 1
        interner.sweep()
        gone = [value for value in uses if source.random() < 0.3]
        interner.release(np.array([known[value] for value in gone], np.int32))
        for value in gone:
            uses[value] -= 1
            if not uses[value]:
                del uses[value]
        known = {value: known[value] for value in uses}
        asked = [source.choice([None, *source.choices(pool, k=9)]) for _ in range(source.choice([1, 100]))]
        found = interner.find(strings_of(asked, source)).tolist()
        for value, code in zip(asked, found, strict=True):  # what stands in place of a NULL means nothing
            assert value is None or code == known.get(value, -1)
        shown = source.choices(list(known), k=source.choice([1, 200])) if known else []
        assert interner.decode(np.array([known[value] for value in shown], np.int32)).to_pylist() == shown
    again = Interner()
    again.restore(interner.snapshot())
    assert again.find(pa.array(list(known), pa.string())).tolist() == list(known.values())


@pytest.mark.parametrize("seed", range(6))
def test_ranks_are_the_order_of_the_bytes(seed: int) -> None:
    """Whether a few come or many, and whatever has left."""
    source = random.Random(seed)
    interner = Interner(Budget(MUCH).account("strings"))
    known: dict[str, int] = {}
    for _ in range(60):
        came = [made_up(source) for _ in range(source.choice([0, 1, 5, 200]))]
        codes = interner.encode(pa.array(came, pa.string()))
        new = {value: code for value, code in zip(came, codes.tolist(), strict=True) if value not in known}
        known |= new
        interner.use(np.array(list(new.values()), np.int32))
        interner.sweep()
        if source.random() < 0.7:
            ranks = interner.ranks()
            by_rank = sorted(known, key=lambda value: int(ranks[known[value]]))
            assert by_rank == sorted(known, key=str.encode)
            assert len({int(ranks[code]) for code in known.values()}) == len(known)
        gone = [value for value in known if source.random() < source.choice([0, 0.01, 0.5, 1])]
        interner.release(np.array([known.pop(value) for value in gone], np.int32))


@pytest.mark.parametrize("shape", ["strings", "large strings", "dictionary", "list"])
def test_strings_come_in_any_shape(shape: str) -> None:
    texts = ["b", None, "a", "b", "", "a much longer one", None]
    array = pa.array(texts, pa.large_string() if shape == "large strings" else pa.string())
    values = {"dictionary": array.dictionary_encode(), "list": texts}.get(shape, array)
    interner = Interner()
    codes = interner.encode(values)
    assert interner.encode(values).tolist() == codes.tolist()
    there = np.array([text is not None for text in texts])
    assert interner.decode(codes[there]).to_pylist() == [text for text in texts if text is not None]
    assert interner.find(values)[there].tolist() == codes[there].tolist()
    assert interner.codes_of(["a", "c"]) == [int(codes[2]), -1]
    assert interner.codes_of(["a"]) == [int(codes[2])]


def test_a_refusal_changes_nothing() -> None:
    budget = Budget(40_000)
    interner = Interner(budget.account("strings"))
    names = pa.array([f"name {number}" for number in range(100)])
    codes = interner.encode(names)
    interner.use(codes)
    interner.sweep()
    with pytest.raises(BudgetError):
        interner.encode(pa.array(["x" * 50_000]))
    with pytest.raises(BudgetError):
        interner.encode(pa.array([f"another name {number}" for number in range(5_000)]))
    interner.sweep()
    assert interner.find(names).tolist() == codes.tolist()
    assert interner.decode(codes).to_pylist() == names.to_pylist()
    assert interner.codes_of(["another name 0"]) == [-1]
    assert budget.used == interner.nbytes <= budget.total


def test_strings_that_are_gone_make_room() -> None:
    """Ever new strings, of which a hundred are in use, take what a few hundred take."""
    budget = Budget(1_000_000)
    interner = Interner(budget.account("strings"))
    waiting: list[np.ndarray[Any, np.dtype[np.int32]]] = []
    for number in range(2_000):
        codes = interner.encode(pa.array([f"{number}, {i}" * 20 for i in range(10)]))
        interner.use(codes)
        interner.sweep()
        waiting.append(codes)
        if len(waiting) > 10:
            interner.release(waiting.pop(0))
    assert budget.peak < 150_000


def test_memory_of_strings_that_are_gone_is_given_up() -> None:
    budget = Budget(1_000_000)
    interner = Interner(budget.account("strings"))
    kept = interner.encode(pa.array(["kept"]))
    gone = interner.encode(pa.array([f"{number}" * 1000 for number in range(100)]))
    interner.use(kept)
    interner.use(gone)
    interner.release(gone)
    budget.account("something else").resize(900_000)
    assert interner.decode(kept).to_pylist() == ["kept"]
    assert interner.codes_of(["1" * 1000, "kept"]) == [-1, int(kept[0])]
    Interner(budget.account("empty"))
    with pytest.raises(BudgetError):
        budget.account("more than there is").resize(900_000)


def test_an_interner_that_is_closed_takes_nothing() -> None:
    budget = Budget(1_000_000)
    interner = Interner(budget.account("strings"))
    interner.use(interner.encode(pa.array([f"{number}" for number in range(1000)])))
    interner.ranks()
    assert interner.nbytes == budget.used > 0
    interner.close()
    assert interner.nbytes == budget.used == 0
    assert interner.encode(pa.array(["again"])).tolist() == [0]
