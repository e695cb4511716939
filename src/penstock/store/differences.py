"""State by differences: what has changed in a tree since it was written last, and the tree made whole again.

    whole       all of a tree, as `state.encode` has it
    difference  the manifest says what it `follows`; nodes may be, instead of an array or of bytes:
                  {"same": null}   what the tree before has at this place
                  {"pages": ...}   the same, but for these pages of 4 KB
                  {"rows": ...}    the same, but for these slots of an array by slot (`changes`)

The tree of an array by slot says which slots have changed. Of other large arrays and bytes a hash of each page is kept,
and what has another hash is written. Small ones and plain values are always written.

A whole part follows where the differences take as much as the state, or have become many, or where the state is small.

Invariants:
1. `Differences` knows what the parts that are kept give together. What follows a part that was not kept is whole.
2. A difference fits one tree alone: the one that the parts before it give. `follows` names the part before by its
   checksum.
3. All parts together take no more than twice the bytes of the state.

Why: docs/decisions/checkpoints-by-difference.md
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.columns import Values
from penstock.errors import CheckpointError, PenstockError
from penstock.store.changes import BySlot, ChangedSlots, changes_of
from penstock.store.parts import BYTES, PAGE, DifferenceWriter, Hashed, Known, Part, Tracked, hashes_of, raw_bytes
from penstock.store.state import Reader, described, digest_of, opened, packed, place_of, zero_array

SMALL = 1 << 14
"""State of fewer bytes is always written whole."""

MOST_PARTS = 100
"""So many parts are read to have the state again, at most."""


class _Kept(NamedTuple):
    """What is known of the parts that are kept: the arrays of the tree that they give, the checksum of the last part,
    how many there are, and their bytes."""

    known: Known
    last: int
    parts: int
    nbytes: int


class _Written(NamedTuple):
    """The last part, how many there are with it, and their bytes."""

    part: Part
    parts: int
    nbytes: int


class Differences:
    """Writes one tree after the other.

    >>> log = Differences()
    >>> counts, name = np.zeros(10_000, np.int64), "q1"
    >>> whole = log.part({"counts": counts, "name": name})
    >>> parts = [whole.data]
    >>> log.keep()
    >>> counts[7] = 3
    >>> difference = log.part({"counts": counts, "name": name})
    >>> whole.is_whole, whole.nbytes > 80_000, difference.is_whole, difference.nbytes < 5_000
    (True, True, False, True)
    >>> int(joined([*parts, difference.data])["counts"][7])
    3
    """

    def __init__(self) -> None:
        self._kept: _Kept | None = None
        self._written: _Written | None = None
        self.whole_bytes = 0
        """The bytes of the last tree as a whole."""

    def part(self, tree: dict[str, Any]) -> Part:
        """The tree, or its difference from the tree before. A whole part follows if this one is not `keep`t."""
        before, self._kept, self._written = self._kept, None, None
        if before is not None and self.whole_bytes >= SMALL and before.parts < MOST_PARTS:
            part = self._made(tree, before)
            nbytes = before.nbytes + part.nbytes
            if nbytes <= 2 * self.whole_bytes:
                self._written = _Written(part, before.parts + 1, nbytes)
                return part
        part = self._made(tree, None)
        self._written = _Written(part, 1, part.nbytes)
        return part

    def lose(self) -> None:
        """The last part could not be written: the next one is whole."""
        self._written = None

    def keep(self) -> None:
        """The last part is where it will be read: the next one may follow it."""
        written, self._written = self._written, None
        if written is not None and (digest := written.part.digest) is not None:
            self._kept = _Kept(written.part.known, digest, written.parts, written.nbytes)

    def _made(self, tree: dict[str, Any], before: _Kept | None) -> Part:
        writer = DifferenceWriter({}, None) if before is None else DifferenceWriter(before.known, before.last)
        part = Part(0 if before is None else before.parts, packed(writer.manifest(tree)), writer)
        self.whole_bytes = writer.whole + part.nbytes - writer.length
        return part

    def remember(self, parts: Sequence[bytes | memoryview], saved: dict[str, Any]) -> None:
        """The next part follows these, which give the tree `saved`: nothing has been restored from it yet, since what
        restores may take its arrays for its own."""
        self.whole_bytes = len(parts[0])
        if self.whole_bytes >= SMALL:
            known: Known = {}
            _note(saved, "snapshot", known)
            self._kept = _Kept(known, digest_of(parts[-1]), len(parts), sum(map(len, parts)))

    def follow(self, tree: Callable[[], dict[str, Any]]) -> None:
        """The tree has just been restored from what was remembered: changes of its arrays by slot are noted from here
        on. An array that is not what was saved, since another query has its place, is written whole."""
        if self._kept is not None:
            try:
                _track(tree(), None, "snapshot", self._kept.known)
            except PenstockError:
                self._kept = None


def _note(saved: Any, path: str, known: Known) -> None:
    """Notes the hashes of the arrays and bytes of a tree."""
    if isinstance(saved, dict):
        for key, item in saved.items():
            _note(item, place_of(path, key), known)
    elif isinstance(saved, list):
        for at, item in enumerate(saved):
            _note(item, place_of(path, at), known)
    elif isinstance(saved, np.ndarray):
        known[path] = Hashed(hashes_of(raw_bytes(saved)), described(saved))
    elif isinstance(saved, bytes):
        known[path] = Hashed(hashes_of(np.frombuffer(saved, np.uint8)), [BYTES, [len(saved)]])


def _track(live: Any, changes: ChangedSlots | None, path: str, known: Known) -> None:
    """Has the changes noted of the arrays by slot in a tree that begin with the rows whose hashes are known."""
    own = changes_of(live)
    if own is not None:
        changes = own
        if not changes.is_tracked:
            changes.take()
    if isinstance(live, dict):
        for key, item in live.items():
            _track(item, changes, place_of(path, key), known)
    elif isinstance(live, list):
        for at, item in enumerate(live):
            _track(item, changes, place_of(path, at), known)
    elif isinstance(live, BySlot) and changes is not None:
        saved = known.pop(path, None)
        if isinstance(saved, Hashed) and _is_held(saved, live):
            known[path] = Tracked(changes, changes.taken, *saved.form)


def _is_held(saved: Hashed, live: NDArray[Any]) -> bool:
    """Whether an array begins with the rows that were saved, and has zeros behind them."""
    (descr, shape), (own_descr, own_shape) = saved.form, described(live)
    if descr != own_descr or shape[1:] != own_shape[1:] or shape[0] > own_shape[0]:
        return False
    rows = np.asarray(live)
    return np.array_equal(hashes_of(raw_bytes(rows[: shape[0]])), saved.hashes) and not rows[shape[0] :].any()


def joined(parts: Sequence[bytes | memoryview]) -> dict[str, Any]:
    """The tree that a whole part and the differences that follow it stand for."""
    tree: Any = None
    last: int | None = None
    for data in parts:
        saved = opened(data)
        if saved.follows is None:
            tree = Reader(saved).value(saved.tree)
        elif saved.follows != last:
            raise CheckpointError("a part of the saved state is missing, or belongs to another checkpoint")
        else:
            tree = _DifferenceReader(saved).value(saved.tree, tree)
        last = digest_of(data)
    assert isinstance(tree, dict), "there is a first part, and it is a whole one"
    return tree


class _DifferenceReader(Reader):
    def changed(self, kind: str, content: Any, before: Any) -> Any:
        if kind == "same":
            return before
        if kind == "pages":
            return self._with_pages(content, before)
        assert kind == "rows"
        descr, shape, width, slots_at, slots_size, values_at, values_size = content
        array = before if list(before.shape) == shape else zero_array(descr, shape)
        array[: len(before)] = before
        rows = array.reshape(-1, width, *shape[1:])
        slots = np.frombuffer(self.buffers[slots_at : slots_at + slots_size], np.int32)
        values = np.frombuffer(self.buffers[values_at : values_at + values_size], array.dtype)
        rows[slots] = values.reshape(len(slots), *rows.shape[1:])
        return array

    def _with_pages(self, content: Any, before: Any) -> Any:
        descr, shape, *places = content
        is_array = descr != BYTES
        array = zero_array(descr if is_array else "|u1", shape)
        known = before.reshape(-1).view(np.uint8) if is_array else np.frombuffer(before, np.uint8)
        _fill_pages(array.reshape(-1).view(np.uint8), known, self.buffers, places)
        return array if is_array else array.tobytes()


def _fill_pages(raw: Values, before: Values, buffers: memoryview, places: list[int]) -> None:
    """`places` say where the numbers of the pages that have changed are among the buffers, and the pages."""
    numbers_at, numbers_size, data_at, _ = places
    common = min(len(raw), len(before))
    raw[:common] = before[:common]
    for page in np.frombuffer(buffers[numbers_at : numbers_at + numbers_size], np.int32).tolist():
        part = raw[page * PAGE : (page + 1) * PAGE]
        part[:] = np.frombuffer(buffers[data_at : data_at + len(part)], np.uint8)
        data_at += len(part)
