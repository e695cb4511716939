"""The buffer pool of a window and its choice of victim: SlideM for one reader, Shared SlideM (SSM) for several.

Both papers' rules are one: keep the block whose next reference is nearest. A window's tail reads its blocks once, in
order, so with one reader the block needed last is the most recently written one, which is what SlideM spills. With
several readers a block's next reference comes from the nearest reader behind it, and the victim is the block for
which that distance is greatest. A *clean* block, which is on the device already, costs one transfer to give up and a
dirty one two; where that can save writes, clean blocks go first (`outlook`). Blocks come back when a reader reaches
them: reading ahead would take a frame from a block that could have stayed, and costs more transfers as soon as the
pool has more than two frames.

Invariants:
1. The pool never holds more than `capacity` frames, nor more bytes than its account was granted. The capacity may
   change at any time (see `buffer_manager`).
2. Two frames of the pool's own block size are set aside from the beginning: recent and ancient block.
3. The recent (open) block is never a victim; a victim is spilled before its frame is given up.
4. A closed block is in exactly one of the lists of dirty and clean ones.

Why: docs/decisions/no-read-ahead.md
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.store.blocks import Frame
from penstock.store.budget import Account
from penstock.store.outlook import outlook

UNLIMITED = 1 << 60
"""The capacity of a pool that may have as much as the budget grants."""

NEVER = float("inf")
"""The distance of a block that no reader meets again."""

_OUTLOOK_LASTS = 8
"""Victims that are chosen before the gaps between readers are looked at again."""


class Candidate(NamedTuple):
    """A block that may be given up: its place in the list, and how many blocks ahead of its next reader it is."""

    place: int
    distance: float


NOTHING = Candidate(-1, -1)


def farthest(resident: Sequence[int], readers: Sequence[int]) -> Candidate:
    """Which of these blocks has the farthest next reference. Both are block numbers in rising order.

    A block behind every reader is not needed again; of the others the one farthest ahead of the reader that will
    meet it first.

    >>> farthest([4, 5, 9], [4])  # one reader: the most recently written
    Candidate(place=2, distance=5)
    >>> farthest([4, 7, 8, 9], [4, 8])  # 7 is three blocks ahead of the first reader, 9 one ahead of the second
    Candidate(place=1, distance=3)
    """
    readers = readers or (0,)
    if not resident:
        return NOTHING
    if resident[0] < readers[0]:
        return Candidate(0, NEVER)
    last = len(readers) - 1
    if last == 0:
        return Candidate(len(resident) - 1, resident[-1] - readers[0])
    victim, distance = -1, -1
    for index, reader in enumerate(readers):
        upto = bisect_left(resident, readers[index + 1]) if index < last else len(resident)
        if upto > 0 and resident[upto - 1] - reader > distance:
            victim, distance = upto - 1, resident[upto - 1] - reader
    return Candidate(victim, distance)


def gaps(readers: Sequence[int], newest: int) -> list[int]:
    """The distances between readers that follow each other, and from the last one to the newest block.

    >>> gaps([4, 10], 30)
    [6, 20]
    """
    if not readers:
        return []
    return [after - before for before, after in zip(readers, [*readers[1:], newest], strict=True)]


class BufferPool:
    """Frames by block number. `spill` must put a block on the device; `readers` are the blocks at which readers stand,
    rising, and each but once."""

    def __init__(
        self,
        account: Account,
        frame_bytes: int,
        capacity: int,
        spill: Callable[[int, Frame], None],
        readers: Callable[[], Sequence[int]],
    ) -> None:
        assert capacity >= 2
        self.frames: dict[int, Frame] = {}
        self.frame_bytes = frame_bytes
        self.floor = 2 * frame_bytes
        """Bytes that the pool never gives back."""
        self.capacity = capacity
        self.readers = readers
        self.began: Callable[[], None] | None = None
        """Called before a block begins. The buffer manager may change the capacity of the pool then."""
        self.begun = self.newest = 0
        self._dirty: list[int] = []
        self._clean: list[int] = []
        self._account = account
        self._spill = spill
        self._held = 0
        self._outlook = outlook([], 0)
        self._victims = 0
        account.resize(self.floor)

    @property
    def nbytes(self) -> int:
        return self._held

    @property
    def granted(self) -> int:
        """Bytes on the pool's account."""
        return self._account.nbytes

    def has_set_aside(self, nbytes: int) -> bool:
        """Whether the account has so many bytes more than the frames take."""
        return self._held + nbytes <= self._account.nbytes

    def make_room(self, nbytes: int) -> None:
        """Gives up frames until one of this size can be added."""
        while not self._has_place(nbytes):
            if not self.give_up_one():
                self._account.resize(max(self.floor, self._held + nbytes))
                return

    def turn(self, full: int, nbytes: int) -> Frame | None:
        """Room for a block that begins, of this size and behind block `full`, which was the recent one until now; -1 if
        there was none. A sole reader needs the full block last: if one has to go it is this one, which has the size of
        the new one, and the others are not looked at. Returns its frame then."""
        self.begun += 1
        if self.began is not None:
            self.began()
        if full >= 0:
            self._dirty.append(full)
        if self._has_place(nbytes):
            return None
        readers = self.readers()
        if full >= 0 and len(readers) == 1 and readers[0] < full:
            self._note_victim(readers)
            frame = self.frames[full]
            self._spill(full, frame)
            self._dirty.pop()
            del self.frames[full]
            self._held -= frame.nbytes
            return frame
        self.make_room(nbytes)
        return None

    def _has_place(self, nbytes: int) -> bool:
        """Whether a frame of this size can be added."""
        held = self._held + nbytes
        if len(self.frames) >= self.capacity:
            return False
        account = self._account
        return held <= account.nbytes == self.floor or account.try_resize(max(self.floor, held))

    def _note_victim(self, readers: Sequence[int]) -> None:
        self._victims += 1
        if self._victims % _OUTLOOK_LASTS == 0:
            self._outlook = outlook(gaps(readers, self.newest), len(self.frames))

    def shrink(self, capacity: int) -> None:
        """From now on at most so many frames, two at least."""
        self.capacity = max(2, capacity)
        while len(self.frames) > self.capacity and self.give_up_one():
            pass

    def give_up_one(self) -> bool:
        """Gives up the frame whose block is missed last, for what it costs; answers whether there was one."""
        readers = self.readers()
        self._note_victim(readers)
        place, distance = farthest(self._dirty, readers) if self._dirty else NOTHING
        clean = farthest(self._clean, readers) if self._clean else NOTHING
        goes_anyway = clean.distance > self._outlook.worth_it and not self._outlook.is_scarce
        if clean.place >= 0 and (goes_anyway or clean.distance >= distance):
            block = self._clean[clean.place]
        elif place >= 0:
            block = self._dirty[place]
            self._spill(block, self.frames[block])
        else:
            return False
        self.drop(block)
        return True

    def stays(self, block: int) -> bool:
        """Whether a block that is being read will stay until its last reader has passed it, as far as one can tell."""
        if self._outlook.longest_stay < 0:
            return False
        readers = self.readers()
        ahead = gaps(readers[: bisect_right(readers, block)], block)
        return max(ahead, default=0) <= self._outlook.longest_stay

    def spill_all(self) -> None:
        """Puts every closed block on the device; all are clean then."""
        for block in self._dirty:
            self._spill(block, self.frames[block])
        self._clean = sorted(self._clean + self._dirty)
        self._dirty = []

    def resident(self, first: int, stop: int) -> int:
        """How many of the closed blocks [first, stop) are in memory."""
        return sum(bisect_left(held, stop) - bisect_left(held, first) for held in (self._dirty, self._clean))

    def add(self, block: int, frame: Frame, *, clean: bool) -> None:
        """A closed block that was read; `make_room` was called for it."""
        self.open(block, frame)
        insort(self._clean if clean else self._dirty, block)

    def open(self, block: int, frame: Frame) -> None:
        """The recent block; `make_room` was called for it."""
        self.frames[block] = frame
        if block > self.newest:
            self.newest = block
        self._held += frame.nbytes

    def drop(self, block: int) -> Frame | None:
        """Forgets a frame, if there is one, and returns it."""
        frame = self.frames.pop(block, None)
        if frame is None:
            return None
        for held in (self._dirty, self._clean):
            index = bisect_left(held, block)
            if index < len(held) and held[index] == block:
                del held[index]
                break
        self._held -= frame.nbytes
        if self._account.nbytes != self.floor:
            self._reserve()
        return frame

    def clear(self) -> None:
        self.frames.clear()
        self._dirty.clear()
        self._clean.clear()
        self.newest = self._held = 0
        self._reserve()

    def _reserve(self) -> None:
        wanted = max(self.floor, self._held)
        if wanted != self._account.nbytes:
            self._account.resize(wanted)
