"""The middle of long deques on a block device: what `deques` leaves when its pool is full.

A deque that is too long for its share of the pool keeps its front and its back there; the full chunks between them
go to the device in blocks, and come back, a block at a time, when the front or the back has been used up. Every
chunk is written at most once per crossing and read once, in the order of the deque, as a window's blocks are.

Invariants:
1. `_stretches[slot]` lists the blocks of a slot from front to back as (address, chunks); no entry when none.
2. A slot has such a list exactly when its front segment ends, and its back segment starts, with SPILLED.
3. A block holds the entries of full chunks, without links.
4. Chunks are freed after their block is written, a block after its chunks are back: a device that fails loses nothing.

Owned by one `selective.SelectiveState`, which passes its arrays in.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from penstock.aggregates import deques
from penstock.aggregates.deques import Chains
from penstock.aggregates.images import Word
from penstock.aggregates.state import Snapshot
from penstock.arrays import Int64s, Slots
from penstock.components import component
from penstock.jit import tight
from penstock.store.device import BlockDevice

_SHORTEST = 8
"""Fewer chunks than this are not worth a block, unless nothing else can make room."""


@component("DequePager")
class DequePager:
    def __init__(self, device: BlockDevice) -> None:
        self._device = device
        self._longest = max(1, device.capacity // (8 * deques.ENTRIES_WORDS))
        self._stretches: dict[int, deque[tuple[int, int]]] = {}

    def next_size(self, slot: int, at_front: bool) -> int:
        """The chunks that `load` will bring."""
        blocks = self._stretches[slot]
        return (blocks[0] if at_front else blocks[-1])[1]

    def load(self, slot: int, at_front: bool, chains: Chains) -> None:
        """Brings the block next to the front segment (or the back segment) into the pool, which has room for it."""
        blocks = self._stretches[slot]
        address, _ = blocks[0] if at_front else blocks[-1]
        entries = np.frombuffer(self._device.read(address), dtype=np.int64)
        _attach(*chains, slot, at_front, entries, len(blocks) == 1)
        if at_front:
            blocks.popleft()
        else:
            blocks.pop()
        self._device.free(address)
        if not blocks:
            del self._stretches[slot]

    def spill(self, chains: Chains, chunks: int) -> bool:
        """Moves inner chunks to the device until half of the pool is free, as far as there are any.

        Every deque may keep the same number of chunks, the largest that fits. Returns whether `chunks` are free now.
        """
        lengths = np.zeros((len(chains.directory), 2), dtype=np.int64)
        _measure(chains.pool, chains.directory, lengths)
        half = len(chains.pool) // deques.CHUNK_WORDS // 2
        share = _fair_share(lengths.sum(axis=1), half)
        block = min(self._longest, max(_SHORTEST, share // 2))
        for shortest in (min(block, _SHORTEST), 1):
            for slot in np.flatnonzero(lengths.sum(axis=1) > share).tolist():
                self._spill_slot(slot, lengths[slot], share, block, shortest, chains)
            if chains.control[deques.FREE_COUNT] >= max(chunks, half // 2):
                break
        return bool(chains.control[deques.FREE_COUNT] >= chunks)

    def _spill_slot(self, slot: int, lengths: Int64s, share: int, block: int, shortest: int, chains: Chains) -> None:
        """Leaves the slot `share` chunks, half of them at its front; `lengths` of its two segments is brought up."""
        at_front, at_back = share - share // 2, share // 2
        if slot not in self._stretches:
            if lengths[0] - share < shortest:
                return
            self._spill_middle(slot, lengths, at_front, at_back, block, shortest, chains)
            return
        lengths[0] -= self._spill_segment(slot, True, int(lengths[0]) - at_front, block, shortest, chains)
        lengths[1] -= self._spill_segment(slot, False, int(lengths[1]) - at_back, block, shortest, chains)

    def _spill_middle(
        self, slot: int, lengths: Int64s, at_front: int, at_back: int, block: int, shortest: int, chains: Chains
    ) -> None:
        """Divides a deque and moves what is between its ends; whole again if not even one block can be written."""
        lengths[:] = at_front, lengths[0] - at_front
        _divide(chains.pool, chains.directory, slot, at_front)
        self._stretches[slot] = deque()
        try:
            lengths[1] -= self._spill_segment(slot, False, int(lengths[1]) - at_back, block, shortest, chains)
        finally:
            if not self._stretches[slot]:
                del self._stretches[slot]
                _join(chains.pool, chains.directory, slot)

    def _spill_segment(self, slot: int, front: bool, spare: int, block: int, shortest: int, chains: Chains) -> int:
        """Moves up to `spare` chunks from the inner end of a segment to the device; returns how many."""
        blocks = self._stretches[slot]
        moved = 0
        edge = _inner_edge(chains.pool, chains.directory, slot, front)
        while spare - moved >= shortest:
            chunks = min(block, spare - moved)
            entries = np.empty(chunks * deques.ENTRIES_WORDS, dtype=np.int64)
            _gather(chains.pool, edge, front, entries)
            address = self._device.write(entries.data.cast("B"))
            edge = _release(chains.pool, chains.control, edge, front, chunks)
            if front:
                blocks.appendleft((address, chunks))
            else:
                blocks.append((address, chunks))
            moved += chunks
        return moved

    def forget(self, slots: Slots) -> None:
        """The blocks of these slots are not needed any more."""
        for slot in slots.tolist() if self._stretches else ():
            for address, _ in self._stretches.pop(slot, ()):
                self._device.free(address)

    def rearrange(self, kept: Slots) -> None:
        """From now on slot i is what was slot kept[i]."""
        moved = {before: now for now, before in enumerate(kept.tolist())} if self._stretches else {}
        self._stretches = {moved[slot]: blocks for slot, blocks in self._stretches.items()}

    def snapshot(self) -> Snapshot:
        """The blocks by address: the device keeps them until the checkpoint after the next one."""
        rows = [(slot, *block) for slot, blocks in self._stretches.items() for block in blocks]
        return {"blocks": np.array(rows, dtype=np.int64).reshape(-1, 3)}

    def restore(self, snapshot: Snapshot) -> None:
        self._stretches = {}
        for slot, address, chunks in snapshot["blocks"].tolist():
            self._stretches.setdefault(slot, deque()).append((address, chunks))


def _fair_share(lengths: Int64s, target: int) -> int:
    """The largest number of chunks, at least two, that every deque may keep so that all together keep `target`.

    >>> _fair_share(np.array([1, 3, 100]), 20)
    16
    """
    low, high = 2, max(2, target)
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(lengths, middle).sum()) <= target:
            low = middle
        else:
            high = middle - 1
    return low


@tight
def _measure(pool: Int64s, directory: Int64s, lengths: Int64s) -> None:
    """Per slot the chunks in the pool: of the front segment (of the whole deque, if undivided) and the back segment."""
    for slot in range(len(directory)):
        if directory[slot, deques.FRONT] == deques.NONE:
            continue
        chunk = deques.chunk_of(directory[slot, deques.FRONT])
        while chunk >= 0:
            lengths[slot, 0] += 1
            chunk = pool[chunk + deques.NEXT]
        if chunk == deques.SPILLED:
            chunk = deques.chunk_of(directory[slot, deques.BACK])
            while chunk >= 0:
                lengths[slot, 1] += 1
                chunk = pool[chunk + deques.PREVIOUS]


@tight
def _divide(pool: Int64s, directory: Int64s, slot: int, at_front: int) -> None:
    """Cuts an undivided deque into segments, the first of `at_front` chunks."""
    chunk = deques.chunk_of(directory[slot, deques.FRONT])
    for _ in range(at_front - 1):
        chunk = pool[chunk + deques.NEXT]
    following = pool[chunk + deques.NEXT]
    pool[chunk + deques.NEXT] = deques.SPILLED
    pool[following + deques.PREVIOUS] = deques.SPILLED


@tight
def _join(pool: Int64s, directory: Int64s, slot: int) -> None:
    """Makes two segments with nothing between them one deque again."""
    last = _inner_edge(pool, directory, slot, True)
    first = _inner_edge(pool, directory, slot, False)
    pool[last + deques.NEXT] = first
    pool[first + deques.PREVIOUS] = last


@tight
def _inner_edge(pool: Int64s, directory: Int64s, slot: int, front: bool) -> Word:
    """The last chunk of the front segment or the first of the back segment."""
    inwards = deques.NEXT if front else deques.PREVIOUS
    chunk = deques.chunk_of(directory[slot, deques.FRONT if front else deques.BACK])
    while pool[chunk + inwards] != deques.SPILLED:
        chunk = pool[chunk + inwards]
    return chunk


@tight
def _gather(pool: Int64s, edge: Word, front: bool, entries: Int64s) -> None:
    """Copies as many chunks as `entries` holds, from the inner edge of a segment outwards, in the deque's order."""
    outwards = deques.PREVIOUS if front else deques.NEXT
    count = len(entries) // deques.ENTRIES_WORDS
    chunk = edge
    for index in range(count):
        place = count - 1 - index if front else index
        for word in range(deques.ENTRIES_WORDS):
            entries[place * deques.ENTRIES_WORDS + word] = pool[chunk + deques.FIRST_ENTRY + word]
        chunk = pool[chunk + outwards]


@tight
def _release(pool: Int64s, control: Int64s, edge: Word, front: bool, count: int) -> Word:
    """Frees so many chunks from the inner edge of a segment outwards; returns the new edge."""
    inwards, outwards = (deques.NEXT, deques.PREVIOUS) if front else (deques.PREVIOUS, deques.NEXT)
    chunk = edge
    for _ in range(count):
        following = pool[chunk + outwards]
        deques.free_chunk(pool, control, chunk)
        chunk = following
    pool[chunk + inwards] = deques.SPILLED
    return chunk


@tight
def _attach(
    pool: Int64s,
    directory: Int64s,
    control: Int64s,
    slot: int,
    front: bool,
    entries: Int64s,
    last: bool,
) -> None:
    """Puts a block behind the front segment (before the back segment); after the last block the segments are one."""
    inwards, outwards = (deques.NEXT, deques.PREVIOUS) if front else (deques.PREVIOUS, deques.NEXT)
    edge = _inner_edge(pool, directory, slot, front)
    count = len(entries) // deques.ENTRIES_WORDS
    for index in range(count):
        place = index if front else count - 1 - index
        chunk = deques.take_chunk(pool, control)
        for word in range(deques.ENTRIES_WORDS):
            pool[chunk + deques.FIRST_ENTRY + word] = entries[place * deques.ENTRIES_WORDS + word]
        pool[edge + inwards] = chunk
        pool[chunk + outwards] = edge
        edge = chunk
    pool[edge + inwards] = deques.SPILLED
    if last:
        _join(pool, directory, slot)
