"""Pages of records with texts, against a dictionary: texts of any length, and keys whose words are equal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.store import hashed_pages
from penstock.store.budget import Budget
from penstock.store.hashed_pages import HashedPages
from penstock.store.memory_device import MemoryDevice
from penstock.store.text_records import Records, TextWords, taken

Key = tuple[int, bytes, bytes]
Row = tuple[int, bytes]
WORDS, WIDTH = 4, 6
"""The words of a key: a number, one for each of its texts, which are all 7, and their lengths; then end, and time."""


def make(device: MemoryDevice) -> HashedPages:
    account = Budget(1 << 30).account("pages")
    return HashedPages(WIDTH, WORDS, 5, device, account, TextWords(2, WORDS))


def records_of(rows: dict[Key, Row]) -> Records:
    ends = np.cumsum([len(one) + len(other) + len(text) for (_, one, other), (_, text) in rows.items()])
    words = [
        [number, 7, len(one), len(other), end, time]
        for ((number, one, other), (time, _)), end in zip(rows.items(), ends.tolist(), strict=True)
    ]
    texts = b"".join(one + other + text for (_, one, other), (_, text) in rows.items())
    return Records(np.array(words, np.int64).reshape(-1, WIDTH), np.frombuffer(texts, np.uint8))


def rows_of(records: Records) -> dict[Key, Row]:
    found, begin, texts = {}, 0, records.texts.tobytes()
    for number, same, first, second, end, time in records.rows.tolist():
        assert same == 7
        own = texts[begin:end]
        found[number, own[:first], own[first : first + second]] = time, own[first + second :]
        begin = end
    assert len(found) == len(records.rows)
    assert begin == len(texts)
    return found


def merge(pages: HashedPages, model: dict[Key, Row], new: dict[Key, Row], gone: set[Key]) -> None:
    rows = new | dict.fromkeys(gone, (0, b""))
    records = records_of(rows)
    order = np.argsort(pages.hashes(records.rows))
    is_gone = np.array([key in gone for key in rows], np.bool_)[order]
    pages.merge([(taken(records, order, WORDS), is_gone)])
    model.update(new)
    for key in gone:
        model.pop(key, None)


def check(pages: HashedPages, model: dict[Key, Row], asked: list[Key]) -> None:
    keys = records_of(dict.fromkeys(asked, (0, b"")))
    records, whose = pages.find(Records(np.ascontiguousarray(keys.rows[:, : WORDS + 1]), keys.texts))
    assert rows_of(records) == {key: model[key] for key in asked if key in model}
    assert [asked[at] for at in whose.tolist()] == list(rows_of(records))
    every: dict[Key, Row] = {}
    for place in range(len(pages)):
        own = rows_of(pages.page(place))
        assert own
        assert pages.oldest[place] == min(time for time, _ in own.values())
        every |= own
    assert every == model
    assert pages.rows == len(model)


texts = st.binary(max_size=3) | st.sampled_from([b"x" * 500, b"y" * 500, b"x" * 499 + b"z"])
keys = st.tuples(st.integers(0, 8), texts, texts)
values = st.tuples(st.integers(-5, 5), st.binary(max_size=40))


@given(
    st.lists(st.tuples(st.dictionaries(keys, values, max_size=40), st.sets(keys, max_size=30)), max_size=6),
    st.sampled_from([70, 256]),
    st.integers(0, 5),
)
@settings(max_examples=30, deadline=None)
def test_like_a_dictionary(rounds: list[tuple[dict[Key, Row], set[Key]]], block: int, restored: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashed_pages, "PAGE_BYTES", 128)
        device = MemoryDevice(block)
        pages = make(device)
        model: dict[Key, Row] = {}
        for number, (new, gone) in enumerate(rounds):
            merge(pages, model, new, (gone | set(list(model)[::3])) - new.keys())
            check(pages, model, [*new, *(gone - new.keys()), (7, b"ab", b"")])
            if number == restored:
                saved, blocks = pages.snapshot(), device.snapshot()
                device = MemoryDevice(block)
                device.restore(blocks)
                pages = make(device)
                pages.restore(saved)
        pages.clear()
        assert not device._blocks  # nothing is left behind


def test_the_same_bytes_in_other_texts_are_another_key() -> None:
    pages, model = make(MemoryDevice(4096)), {}
    merge(pages, model, {(1, b"ab", b"c"): (1, b"one"), (1, b"a", b"bc"): (2, b"two")}, set())
    merge(pages, model, {}, {(1, b"ab", b"c")})
    check(pages, model, [(1, b"ab", b"c"), (1, b"a", b"bc"), (1, b"", b"abc")])


def test_a_page_has_so_many_bytes_with_its_texts() -> None:
    pages, model = make(MemoryDevice(1 << 16)), {}
    merge(pages, model, {(i, b"k%d" % i, b""): (i, b"t" * 200) for i in range(20_000)}, set())
    assert pages.stored_bytes > 20_000 * 248
    assert max(len(r.rows) * 8 * WIDTH + len(r.texts) for r in map(pages.page, range(len(pages)))) <= 1 << 15
    assert len(pages) < 1.1 * pages.stored_bytes / (1 << 15)
    merge(pages, model, {}, {key for key in model if key[0] % 50})
    check(pages, model, [(0, b"k0", b""), (1, b"k1", b"")])
    assert len(pages) <= 20
