"""The codes of strings beside a plain dictionary: with the index for compiled loops, without it, and when it goes."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.interner import Interner
from penstock.operators.text_index import TextIndex
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


def test_an_index_that_is_too_large_is_not_made() -> None:
    budget = Budget(10_000_000)
    interner = Interner(budget.account("strings"))
    names = [f"name {number}" for number in range(20_000)]
    codes = np.concatenate([interner.encode(pa.array(names[at : at + 500])) for at in range(0, len(names), 500)])
    assert codes.tolist() == list(range(len(names)))
    taken = budget.used
    assert interner.find(pa.array([*names, "other"])).tolist() == [*range(len(names)), -1]
    assert interner.decode(codes).to_pylist() == names
    assert budget.used == taken == interner.nbytes


def test_an_index_is_given_up_before_memory_is_refused() -> None:
    budget = Budget(1_000_000)
    account = budget.account("strings")
    interners = Interner(account), Interner(account)
    names = pa.array([f"name {number}" for number in range(150)])
    for interner in interners:
        interner.use(interner.encode(names))
    taken = budget.used
    for interner in interners:
        assert interner.find(names).tolist() == list(range(150))
    assert taken < budget.used == sum(interner.nbytes for interner in interners)
    other = budget.account("something else")
    other.resize(budget.total - taken)
    assert budget.used == budget.total
    for interner in interners:
        assert interner.find(names).tolist() == list(range(150))
    other.resize(0)
    for interner in interners:
        interner.close()
    assert budget.used == 0


def test_what_an_index_takes_is_known_before() -> None:
    strings = [f"{number:07d}".encode() for number in range(1000)]
    index = TextIndex(strings)
    assert index.nbytes == TextIndex.bytes_for(1000, 7000)
    assert index.strings(np.array([5, 0], np.int32)).to_pylist() == ["0000005", "0000000"]
