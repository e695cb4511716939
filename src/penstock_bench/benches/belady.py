"""How few requests windows over one store need at best: Belady's rule, which knows the future, on the same references.

The rule gives up the block whose next reference is farthest. A store cannot do with fewer reads; a block that goes is
written unless it is on disk already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from heapq import heappop, heappush
from typing import NamedTuple


class Kind(Enum):
    BEGIN = "begin"
    USE = "use"
    RELEASE = "release"


class Event(NamedTuple):
    """What happens to a block after so many rows: it begins to be filled, a window reads in it, or the last one has."""

    rows: int
    kind: Kind
    block: int


class Requests(NamedTuple):
    reads: int
    writes: int


def references(windows: Sequence[int], block_rows: int, turn_rows: int, rows: int) -> Iterator[Event]:
    """What happens while so many rows enter, and leave windows of these sizes (in rows) that take turns.

    >>> [f"{e.kind.value} {e.block}" for e in references([2, 4], block_rows=2, turn_rows=2, rows=6)]
    ['begin 0', 'begin 1', 'use 0', 'begin 2', 'use 1', 'use 0', 'release 0']
    """
    largest = max(windows)
    for head in range(turn_rows, rows + 1, turn_rows):
        before = head - turn_rows
        for block in range(-(-before // block_rows), -(-head // block_rows)):
            yield Event(head, Kind.BEGIN, block)
        for window in windows:
            first, last = max(0, before - window), head - window
            for block in range(first // block_rows, -(-last // block_rows)):
                yield Event(head, Kind.USE, block)
                if window == largest and last >= (block + 1) * block_rows:
                    yield Event(head, Kind.RELEASE, block)


def fewest_requests(events: Sequence[Event], frames: int, first_row: int, last_row: int) -> Requests:
    """The requests after `first_row` and up to `last_row`; the events should go on until what is stored then is read.

    >>> events = list(references([6], block_rows=2, turn_rows=2, rows=60))
    >>> fewest_requests(events, 2, 20, 40)
    Requests(reads=10, writes=10)
    >>> fewest_requests(events, 5, 20, 40)
    Requests(reads=0, writes=0)
    """
    next_uses = _next_uses(events)
    resident: dict[int, int] = {}
    on_disk: set[int] = set()
    queue: list[tuple[int, int]] = []
    reads = writes = 0
    recent = -1
    for (rows, kind, block), next_use in zip(events, next_uses, strict=True):
        counts = first_row < rows <= last_row
        if kind is Kind.RELEASE:
            resident.pop(block, None)
            on_disk.discard(block)
            continue
        if kind is Kind.BEGIN:
            recent = block
        if block not in resident:
            if len(resident) >= frames:
                victim = _victim(queue, resident, recent)
                del resident[victim]
                writes += counts and victim not in on_disk
                on_disk.add(victim)
            reads += counts and kind is Kind.USE
        resident[block] = next_use
        heappush(queue, (-next_use, block))
    return Requests(reads, writes)


def _next_uses(events: Sequence[Event]) -> list[int]:
    """For each event the place of the next one that needs its block."""
    following: dict[int, int] = {}
    places = []
    for place in range(len(events) - 1, -1, -1):
        block = events[place].block
        places.append(following.get(block, len(events)))
        if events[place].kind is not Kind.RELEASE:
            following[block] = place
    return places[::-1]


def _victim(queue: list[tuple[int, int]], resident: dict[int, int], recent: int) -> int:
    """The block needed last; entries of the queue that later ones have replaced are passed over."""
    kept = None
    while True:
        entry = heappop(queue)
        next_use, block = -entry[0], entry[1]
        if block == recent:
            kept = entry
        elif resident.get(block) == next_use:
            if kept is not None:
                heappush(queue, kept)
            return block
