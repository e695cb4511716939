"""Strings with their dictionary, made plain: the same as Arrow makes of them."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.store.decoding import plain_strings


@given(
    entries=st.lists(st.text(max_size=20), min_size=1, max_size=6),
    codes=st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=40),
    cut=st.tuples(st.integers(0, 5), st.integers(0, 5)),
)
def test_as_arrow_does_it(entries: list[str], codes: list[int | None], cut: tuple[int, int]) -> None:
    """With and without NULLs, of a part of a column, with a dictionary that is a part of another."""
    dictionary = pa.array(["before", *entries]).slice(1)
    known = pa.array([None if code is None else code % len(entries) for code in codes], pa.int32())
    column = pa.DictionaryArray.from_arrays(known, dictionary).slice(*cut)
    made = plain_strings(column)
    made.validate(full=True)
    assert made.type == pa.string()
    assert made.to_pylist() == column.to_pylist()
