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

from penstock.arrays import UInt64s
from penstock.columns import Values
from penstock.errors import CheckpointError, PenstockError
from penstock.jit import inline, kernel
from penstock.store.changes import BySlot, ChangedSlots, Taken, changes_of
from penstock.store.state import Reader, Writer, described, digest_of, opened, place_of, sealed, zero_array

PAGE = 4096
"""Bytes that are compared by one hash."""

SMALL = 1 << 16
"""State of fewer bytes is always written whole."""

MOST_PARTS = 100
"""So many parts are read to have the state again, at most."""

_BYTES = "bytes"
"""In the place of an array's type."""

_WORDS = PAGE // 8
_FIRST, _SECOND = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)


class _Hashed(NamedTuple):
    """An array or bytes as written last, by the hashes of their pages; `form` is the type and the shape."""

    hashes: UInt64s
    form: list[Any]


class _Tracked(NamedTuple):
    """An array by slot as written last: when `changes` had been taken so often."""

    changes: ChangedSlots
    taken: int
    descr: Any
    shape: list[int]


Known = dict[str, _Hashed | _Tracked]
"""Arrays and bytes of a tree, by their paths."""


class Part(NamedTuple):
    """Bytes to keep, after those before, or instead of them if this is the whole tree. `number` counts the parts since
    the last whole one, which is number 0."""

    number: int
    data: bytes

    @property
    def is_whole(self) -> bool:
        return self.number == 0


class _Kept(NamedTuple):
    """What is known of the parts that are kept: the arrays of the tree that they give, the checksum of the last part,
    how many there are, and their bytes."""

    known: Known
    last: int
    parts: int
    nbytes: int


class Differences:
    """Writes one tree after the other.

    >>> log = Differences()
    >>> counts, name = np.zeros(10_000, np.int64), "q1"
    >>> whole = log.part({"counts": counts, "name": name})
    >>> log.keep()
    >>> counts[7] = 3
    >>> difference = log.part({"counts": counts, "name": name})
    >>> whole.is_whole, len(whole.data) > 80_000, difference.is_whole, len(difference.data) < 5_000
    (True, True, False, True)
    >>> int(joined([whole.data, difference.data])["counts"][7])
    3
    """

    def __init__(self) -> None:
        self._kept: _Kept | None = None
        self._written: _Kept | None = None
        self.whole_bytes = 0
        """The bytes of the last tree as a whole."""

    def part(self, tree: dict[str, Any]) -> Part:
        """The tree, or its difference from the tree before. A whole part follows if this one is not `keep`t."""
        before, self._kept, self._written = self._kept, None, None
        if before is not None and self.whole_bytes >= SMALL and before.parts < MOST_PARTS:
            known, data = self._sealed(tree, before)
            nbytes = before.nbytes + len(data)
            if nbytes <= 2 * self.whole_bytes:
                self._written = _Kept(known, digest_of(data), before.parts + 1, nbytes)
                return Part(before.parts, data)
        known, data = self._sealed(tree, None)
        self._written = _Kept(known, digest_of(data), 1, len(data))
        return Part(0, data)

    def keep(self) -> None:
        """The last part is where it will be read: the next one may follow it."""
        self._kept, self._written = self._written, None

    def _sealed(self, tree: dict[str, Any], before: _Kept | None) -> tuple[Known, bytes]:
        writer = _DifferenceWriter(before)
        data = sealed(writer, tree)
        self.whole_bytes = writer.whole + len(data) - writer.length
        return writer.known, data

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


class _DifferenceWriter(Writer):
    """`kept` is what the difference is from; None if a whole tree is wanted."""

    def __init__(self, kept: _Kept | None) -> None:
        super().__init__()
        self.known: Known = {}
        self.whole = 0
        """Bytes of all arrays and bytes of the tree."""
        self._before: Known = {} if kept is None else kept.known
        self._follows = None if kept is None else kept.last
        self._changes: ChangedSlots | None = None
        self._taken: dict[int, tuple[Taken, list[int]]] = {}
        """By the identity of the changes: what was taken of them, and where the slots are among the buffers."""

    def manifest(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        content = super().manifest(snapshot)
        return content if self._follows is None else {**content, "follows": hex(self._follows)}

    def node(self, value: object, path: str) -> Any:
        changes = changes_of(value)
        if changes is None:
            return super().node(value, path)
        outer, self._changes = self._changes, changes
        try:
            return super().node(value, path)
        finally:
            self._changes = outer

    def array(self, array: NDArray[Any], path: str) -> Any:
        self.whole += array.nbytes
        if isinstance(array, BySlot) and self._changes is not None:
            return self._by_slot(array, self._changes, path)
        if array.dtype.hasobject or array.nbytes < 2 * PAGE:
            return super().array(array, path)
        found = self._by_pages(_raw(array), described(array), path)
        return super().array(array, path) if found is None else found

    def binary(self, value: bytes, path: str) -> Any:
        self.whole += len(value)
        if len(value) < 2 * PAGE:
            return super().binary(value, path)
        found = self._by_pages(np.frombuffer(value, np.uint8), [_BYTES, [len(value)]], path)
        return super().binary(value, path) if found is None else found

    def _by_pages(self, raw: Values, form: list[Any], path: str) -> Any:
        """The node for the pages that have changed; None if most have, or what was there before is not known."""
        hashes = _hashes(raw)
        before = self._before.get(path)
        self.known[path] = _Hashed(hashes, form)
        if not isinstance(before, _Hashed) or (form[0] == _BYTES) != (before.form[0] == _BYTES):
            return None
        common = min(len(hashes), len(before.hashes))
        changed = np.flatnonzero(hashes[:common] != before.hashes[:common])
        changed = np.concatenate([changed, np.arange(common, len(hashes))]).astype(np.int32)
        if 2 * len(changed) >= len(hashes):
            return None
        if not len(changed) and form == before.form:
            return {"same": None}
        data = b"".join(raw[page * PAGE : (page + 1) * PAGE].data for page in changed.tolist())
        numbers = changed.data.cast("B") if len(changed) else b""
        return {"pages": [*form, *self.buffer(numbers), *self.buffer(data)]}

    def _by_slot(self, array: BySlot, changes: ChangedSlots, path: str) -> Any:
        taken, place = self._taken_of(changes)
        before = self._before.get(path)
        descr, shape = described(array)
        self.known[path] = _Tracked(changes, changes.taken, descr, shape)
        if (
            taken.slots is None
            or not isinstance(before, _Tracked)
            or (before.changes, before.taken, before.descr) != (changes, taken.since, descr)
            or before.shape[1:] != shape[1:]
            or before.shape[0] > shape[0]
            or 2 * len(taken.slots) * array.width >= shape[0]
        ):
            return super().array(array, path)
        rows = np.asarray(array).reshape(-1, array.width, *shape[1:])
        chosen = np.ascontiguousarray(rows[taken.slots]).reshape(-1)
        values = chosen.view(np.uint8).data if chosen.nbytes else b""
        return {"rows": [descr, shape, array.width, *place, *self.buffer(values)]}

    def _taken_of(self, changes: ChangedSlots) -> tuple[Taken, list[int]]:
        """What has changed by slot is taken once for each part, whichever arrays it is asked for."""
        if id(changes) not in self._taken:
            taken = changes.take()
            slots = b"" if taken.slots is None or not len(taken.slots) else taken.slots.data.cast("B")
            self._taken[id(changes)] = taken, self.buffer(b"" if self._follows is None else slots)
        return self._taken[id(changes)]


def _note(saved: Any, path: str, known: Known) -> None:
    """Notes the hashes of the arrays and bytes of a tree."""
    if isinstance(saved, dict):
        for key, item in saved.items():
            _note(item, place_of(path, key), known)
    elif isinstance(saved, list):
        for at, item in enumerate(saved):
            _note(item, place_of(path, at), known)
    elif isinstance(saved, np.ndarray):
        known[path] = _Hashed(_hashes(_raw(saved)), described(saved))
    elif isinstance(saved, bytes):
        known[path] = _Hashed(_hashes(np.frombuffer(saved, np.uint8)), [_BYTES, [len(saved)]])


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
        if isinstance(saved, _Hashed) and _is_held(saved, live):
            known[path] = _Tracked(changes, changes.taken, *saved.form)


def _is_held(saved: _Hashed, live: NDArray[Any]) -> bool:
    """Whether an array begins with the rows that were saved, and has zeros behind them."""
    (descr, shape), (own_descr, own_shape) = saved.form, described(live)
    if descr != own_descr or shape[1:] != own_shape[1:] or shape[0] > own_shape[0]:
        return False
    rows = np.asarray(live)
    return np.array_equal(_hashes(_raw(rows[: shape[0]])), saved.hashes) and not rows[shape[0] :].any()


def _raw(array: NDArray[Any]) -> Values:
    """The bytes of an array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


@inline
def _mixed(h: np.uint64, word: np.uint64) -> np.uint64:
    h = h + word * _SECOND
    return ((h << np.uint64(31)) | (h >> np.uint64(33))) * _FIRST


@kernel
def _hash_pages(words: UInt64s, hashes: UInt64s) -> None:
    """Four sums run beside each other, as in xxHash: the processor works on all at once."""
    for page in range(len(hashes)):
        a, b, c, d = _FIRST, _SECOND, np.uint64(0), _FIRST ^ _SECOND
        for at in range(page * _WORDS, (page + 1) * _WORDS, 4):
            a, b = _mixed(a, words[at]), _mixed(b, words[at + 1])
            c, d = _mixed(c, words[at + 2]), _mixed(d, words[at + 3])
        h = _mixed(_mixed(_mixed(_mixed(np.uint64(PAGE), a), b), c), d)
        hashes[page] = h ^ (h >> np.uint64(29))


def _hashes(raw: Values) -> UInt64s:
    """Of all pages; the last one is filled up with zeros and knows its length."""
    full, rest = divmod(len(raw), PAGE)
    hashes = np.empty(full + (rest > 0), np.uint64)
    aligned = raw if raw.ctypes.data % 8 == 0 else raw.copy()
    _hash_pages(aligned[: full * PAGE].view(np.uint64), hashes[:full])
    if rest:
        last = np.zeros(PAGE, np.uint8)
        last[:rest] = raw[full * PAGE :]
        _hash_pages(last.view(np.uint64), hashes[full:])
        hashes[full] ^= np.uint64(rest)
    return hashes


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
        is_array = descr != _BYTES
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
