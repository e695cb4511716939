"""A part of state by differences in the making: what is written of a tree, and what is remembered of it for the next.

A part is made in two steps. The tree is looked at first, at one moment: what has changed in it is found, and only what
the part then has in common with the tree is still to be copied, if the tree goes on changing. The rest needs the part
alone: hashes of a tree that is written whole, and the checksum.

Why: docs/decisions/checkpoints-by-difference.md
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import UInt64s
from penstock.columns import Values
from penstock.jit import inline, kernel
from penstock.store.changes import BySlot, ChangedSlots, Taken, changes_of
from penstock.store.state import Bytes, Writer, described, digest_of, sealed, sealed_size

PAGE = 4096
"""Bytes that are compared by one hash."""

BYTES = "bytes"
"""In the place of an array's type."""

_WORDS = PAGE // 8
_FIRST, _SECOND = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)


class Hashed(NamedTuple):
    """An array or bytes as written last, by the hashes of their pages; `form` is the type and the shape."""

    hashes: UInt64s
    form: list[Any]


class Tracked(NamedTuple):
    """An array by slot as written last: when `changes` had been taken so often."""

    changes: ChangedSlots
    taken: int
    descr: Any
    shape: list[int]


Known = dict[str, Hashed | Tracked]
"""Arrays and bytes of a tree, by their paths."""


class Part:
    """Bytes to keep, after those before, or instead of them if this is the whole tree. `number` counts the parts since
    the last whole one, which is number 0. They have memory in common with the tree, up to `detach`."""

    def __init__(self, number: int, manifest: bytes, writer: DifferenceWriter) -> None:
        self.number = number
        self.nbytes = sealed_size(manifest, writer.length)
        self.digest: int | None = None
        self._manifest = manifest
        self._writer = writer

    @property
    def is_whole(self) -> bool:
        return self.number == 0

    @property
    def known(self) -> Known:
        """Of the tree that the parts give up to here; hashes of a whole tree are there once it is `sealed`."""
        return self._writer.known

    def detach(self) -> None:
        """Copies what the part has in common with the tree, which may change from now on."""
        chunks = self._writer.chunks
        room, end = np.empty(sum(len(chunks[at]) for at in self._writer.shared), np.uint8), 0
        for at in self._writer.shared:
            chunk = np.frombuffer(chunks[at], np.uint8)
            begin, end = end, end + len(chunk)
            room[begin:end] = chunk
            chunks[at] = room[begin:end].data
        self._writer.shared.clear()

    def let_go(self) -> None:
        """It is written: its bytes are not needed any more."""
        self._writer.chunks.clear()

    def sealed(self) -> list[Bytes]:
        """The bytes, in pieces. Any thread may ask, once there is nothing in common with a tree that changes."""
        self._writer.note_hashes()
        found = sealed(self._manifest, self._writer.chunks, self._writer.length)
        self.digest = digest_of(found[0])
        return found

    @property
    def data(self) -> bytes:
        """The bytes in one piece."""
        return b"".join(self.sealed())


class DifferenceWriter(Writer):
    """`before` is what is known of the tree that the difference is from, and `follows` the checksum of the part before;
    None if a whole tree is wanted."""

    def __init__(self, before: Known, follows: int | None) -> None:
        super().__init__()
        self.known: Known = {}
        self.whole = 0
        """Bytes of all arrays and bytes of the tree."""
        self._before = before
        self._follows = follows
        self._changes: ChangedSlots | None = None
        self._taken: dict[int, tuple[Taken, list[int]]] = {}
        """By the identity of the changes: what was taken of them, and where the slots are among the buffers."""
        self.shared: list[int] = []
        """The numbers of the chunks that have memory in common with the tree."""
        self._unhashed: list[tuple[str, int, list[Any]]] = []
        """Arrays and bytes of a whole tree: path, number of the chunk and form."""

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
            return self._as_it_is(array, path)
        found = self._by_pages(raw_bytes(array), described(array), path)
        return self._as_it_is(array, path) if found is None else found

    def _as_it_is(self, array: NDArray[Any], path: str) -> Any:
        if array.nbytes:
            self.shared.append(len(self.chunks))
        return super().array(array, path)

    def note_hashes(self) -> None:
        """Makes `known` complete."""
        for path, at, form in self._unhashed:
            self.known[path] = Hashed(hashes_of(np.frombuffer(self.chunks[at], np.uint8)), form)
        self._unhashed.clear()

    def binary(self, value: bytes, path: str) -> Any:
        self.whole += len(value)
        if len(value) < 2 * PAGE:
            return super().binary(value, path)
        found = self._by_pages(np.frombuffer(value, np.uint8), [BYTES, [len(value)]], path)
        return super().binary(value, path) if found is None else found

    def _by_pages(self, raw: Values, form: list[Any], path: str) -> Any:
        """The node for the pages that have changed; None if most have, or what was there before is not known. Then all
        of it becomes the next chunk."""
        if self._follows is None:
            self._unhashed.append((path, len(self.chunks), form))
            return None
        hashes = hashes_of(raw)
        before = self._before.get(path)
        self.known[path] = Hashed(hashes, form)
        if not isinstance(before, Hashed) or (form[0] == BYTES) != (before.form[0] == BYTES):
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
        self.known[path] = Tracked(changes, changes.taken, descr, shape)
        if (
            taken.slots is None
            or not isinstance(before, Tracked)
            or (before.changes, before.taken, before.descr) != (changes, taken.since, descr)
            or before.shape[1:] != shape[1:]
            or before.shape[0] > shape[0]
            or 2 * len(taken.slots) * array.width >= shape[0]
        ):
            return self._as_it_is(array, path)
        rows = np.asarray(array).reshape(-1, array.width, *shape[1:])
        chosen = rows.take(taken.slots, axis=0).reshape(-1)
        values = chosen.view(np.uint8).data if chosen.nbytes else b""
        return {"rows": [descr, shape, array.width, *place, *self.buffer(values)]}

    def _taken_of(self, changes: ChangedSlots) -> tuple[Taken, list[int]]:
        """What has changed by slot is taken once for each part, whichever arrays it is asked for."""
        if id(changes) not in self._taken:
            taken = changes.take()
            slots = b"" if taken.slots is None or not len(taken.slots) else taken.slots.data.cast("B")
            self._taken[id(changes)] = taken, self.buffer(b"" if self._follows is None else slots)
        return self._taken[id(changes)]


def raw_bytes(array: NDArray[Any]) -> Values:
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


def hashes_of(raw: Values) -> UInt64s:
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
