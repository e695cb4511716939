"""Pages of records by the hash of their keys, against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.arrays import Int64s
from penstock.store import hashed_pages
from penstock.store.budget import Budget
from penstock.store.hashed_kernels import Hashes
from penstock.store.hashed_pages import HashedPages
from penstock.store.memory_device import MemoryDevice
from penstock.store.text_records import NO_BYTES, Records

Key = tuple[int, int]


def make(device: MemoryDevice) -> HashedPages:
    return HashedPages(4, 2, 2, device, Budget(1 << 30).account("pages"))


def hash_after(word: int) -> int:
    """The hash of a key after its first word, before the second."""
    h = (0x9E3779B97F4A7C15 ^ word) * 0xFF51AFD7ED558CCD % 2**64
    return h ^ (h >> 32)


def twin(key: Key, other: int) -> Key:
    """A key with another first word and the same hash."""
    second = hash_after(key[0]) ^ (key[1] % 2**64) ^ hash_after(other)
    return other, second - (second >> 63 << 64)


def keys_of(keys: list[Key]) -> Int64s:
    return np.array(keys, np.int64).reshape(-1, 2)


def plain(rows: Int64s) -> Records:
    return Records(rows, NO_BYTES)


def merge(pages: HashedPages, model: dict[Key, Key], new: dict[Key, Key], gone: set[Key]) -> None:
    rows = new | dict.fromkeys(gone, (0, 0))
    records = np.array([[*key, *value] for key, value in rows.items()], np.int64).reshape(-1, 4)
    is_gone = np.array([key in gone for key in rows], np.bool_)
    order = np.argsort(pages.hashes(records))
    records, is_gone = records[order], is_gone[order]
    half = len(records) // 2
    while 0 < half < len(records) and _same(pages.hashes(records[half - 1 : half + 1])):
        half += 1
    pages.merge([(plain(records[:half]), is_gone[:half]), (plain(records[half:]), is_gone[half:])])
    pages.settle()
    model.update(new)
    for key in gone:
        model.pop(key, None)


def _same(hashes: Hashes) -> bool:
    return bool(hashes[0] == hashes[1])


def check(pages: HashedPages, model: dict[Key, Key], asked: list[Key]) -> None:
    records, found = pages.find(plain(keys_of(asked)))
    assert sorted(found.tolist()) == [at for at, key in enumerate(asked) if key in model]
    for at, record in zip(found.tolist(), records.rows.tolist(), strict=True):
        assert record == [*asked[at], *model[asked[at]]]
    every = [pages.page(place).rows for place in range(len(pages))]
    assert pages.rows == len(model) == sum(map(len, every))
    assert {tuple(r[:2]): tuple(r[2:]) for page in every for r in page.tolist()} == model
    assert all(len(page) for page in every)
    assert pages.oldest.tolist() == [int(page[:, 2].min()) for page in every]
    hashes = np.concatenate([pages.hashes(page) for page in every] or [np.empty(0, np.uint64)])
    assert (hashes[1:] >= hashes[:-1]).all()


small = st.tuples(st.integers(-3, 40), st.integers(-2, 2))
some_keys = small | st.builds(twin, small, st.integers(100, 103))
values = st.tuples(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))


@given(
    st.lists(st.tuples(st.dictionaries(some_keys, values, max_size=60), st.sets(some_keys, max_size=30)), max_size=6),
    st.sampled_from([70, 256]),
    st.integers(0, 5),
)
@settings(max_examples=150, deadline=None)
def test_like_a_dictionary(rounds: list[tuple[dict[Key, Key], set[Key]]], block: int, restored: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashed_pages, "_LEAST_ROWS", 3)
        device = MemoryDevice(block)
        pages = make(device)
        model: dict[Key, Key] = {}
        for number, (new, gone) in enumerate(rounds):
            merge(pages, model, new, gone - new.keys())
            check(pages, model, [*new, *gone, (7, 7)])
            if number == restored:
                saved, blocks = pages.snapshot(), device.snapshot()
                merge(pages, dict(model), {(1, 1): (2, 2)}, set(list(model)[::2]) - {(1, 1)})
                device = MemoryDevice(block)
                device.restore(blocks)
                pages = make(device)
                pages.restore(saved)
                check(pages, model, list(new))
        pages.clear()
        assert not device._blocks  # nothing is left behind


def test_keys_of_one_hash_are_told_apart() -> None:
    pages = make(MemoryDevice(4096))
    one: Key = (5, 6)
    other = twin(one, 9)
    hashes = pages.hashes(keys_of([one, other]))
    assert hashes[0] == hashes[1]
    model: dict[Key, Key] = {}
    merge(pages, model, {one: (1, 2), other: (3, 4)}, set())
    merge(pages, model, {}, {one})
    check(pages, model, [one, other])


def test_pages_that_have_become_small_are_put_together() -> None:
    pages = make(MemoryDevice(65536))
    model: dict[Key, Key] = {}
    merge(pages, model, {(i, i): (i, i) for i in range(20_000)}, set())
    many = len(pages)
    merge(pages, model, {}, {(i, i) for i in range(20_000) if i % 50})
    check(pages, model, [(0, 0), (1, 1), (50, 50)])
    assert len(pages) <= many // 8
