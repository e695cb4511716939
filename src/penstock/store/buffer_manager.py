"""The global buffer manager: divides what an app's budget leaves among the buffer pools of all its stores.

Groups, aggregate states, reorder buffers and queues of partitions take from the budget what they need; the pools have
all the rest, on loan. It goes where one more frame saves most transfers per byte. Between two readers of a store that
are L blocks apart, each frame saves one read for every L blocks that arrive (the slope of formula 4.2); between the
newest block and the reader nearest to it, it saves a write as well. That is SlideM's two transfers per pass of a
window, and for several windows Shared SlideM's hit rate: of two gaps between readers the shorter one is worth more, of
two streams the faster one. So gaps get frames in the order of (transfers saved per block) · rate / (gap · frame size)
until the memory is used up; no other division saves more as long as rates and distances stay.

    budget  |-- groups, states, text --|-- pool of store 1 --|-- pool of store 2 --|- unused -|
                                        grows: pools give back ◀──

Rates are counted in blocks begun since the last division, of all stores alike; no clock is read.

Invariants:
1. Pools and all other accounts together stay within the budget: a pool asks before it takes, like every account.
2. No pool is ever made smaller than two frames.
3. Any other account's request is granted if it fits beside two frames for each pool.
4. The division has no part in the answers: it moves blocks between memory and device and nothing else.

Made by the storage manager (`manager`); pools call it when a block begins, the budget when it is full.

Why: docs/decisions/pools-lend.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.store.budget import Budget
from penstock.store.slidem import UNLIMITED, BufferPool, gaps

_LEAST_INTERVAL, _FRAMES_PER_BLOCK = 16, 16
"""Blocks of all stores between two divisions, and frames for which one more block goes by."""

_ATTACHMENT = 1.25
"""How much more than a frame's loss the gain elsewhere must be for it to move."""

_STEP = 4
"""A pool gives up at most this part of its frames at once, so that no call pays for a whole division."""


class Demand(NamedTuple):
    """A store as the division sees it: blocks that arrive, bytes of a frame, the gaps between its readers with the one
    before the newest block last, and how many frames it has."""

    rate: float
    frame_bytes: int
    gaps: Sequence[int]
    held: int = 0


class _Offer(NamedTuple):
    """So many frames of a store, and what each of them and of its bytes saves."""

    worth: float
    store: int
    frames: int


def divide(demands: Sequence[Demand], nbytes: int) -> tuple[list[int], int]:
    """The frames of each store, two at least, and the bytes that are left when every store has all it can use.

    Two windows of 100 blocks: the one whose stream is three times as fast gets all that the two frames of each leave.

    >>> slow, fast = Demand(1.0, 10, [100]), Demand(3.0, 10, [100])
    >>> divide([slow, fast], 1000)
    ([2, 98], 0)
    >>> divide([slow, fast], 1700)
    ([68, 102], 0)
    """
    frames = [2] * len(demands)
    left = nbytes - sum(2 * demand.frame_bytes for demand in demands)
    offers = [offer for store, demand in enumerate(demands) for offer in _offers(store, demand)]
    offers.sort(key=lambda offer: -offer.worth)
    for _, store, wanted in offers:
        granted = max(0, min(wanted, left // demands[store].frame_bytes))
        frames[store] += granted
        left -= granted * demands[store].frame_bytes
    return frames, max(0, left)


def _offers(store: int, demand: Demand) -> Iterator[_Offer]:
    """What a store can use beyond two frames, for a block that comes in and one that goes, the best first. Frames that
    it has count for somewhat more, since moving them has its price: what is worth the same stays where it is."""
    held = demand.held - 2
    newest = len(demand.gaps) - 1
    saved = [((2 if at == newest else 1) / gap, gap) for at, gap in enumerate(demand.gaps) if gap > 0]
    for per_block, gap in sorted(saved, reverse=True):
        worth = per_block * demand.rate / demand.frame_bytes
        kept = min(max(0, held), gap)
        held -= kept
        if kept:
            yield _Offer(worth * _ATTACHMENT, store, kept)
        if gap > kept:
            yield _Offer(worth, store, gap - kept)


@dataclass
class _Managed:
    pool: BufferPool
    rate: float = 0.0
    counted: int = 0


class BufferManager:
    """Lends what is unused of a budget to the pools it is given."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._managed: list[_Managed] = []
        self._until_next = _LEAST_INTERVAL
        budget.lender = self

    def manage(self, pool: BufferPool) -> None:
        """From now on the pool is as large as is good for all."""
        pool.capacity = UNLIMITED
        pool.began = self._began
        self._managed.append(_Managed(pool))
        self._until_next = min(self._until_next, _LEAST_INTERVAL)

    def forget(self, pool: BufferPool) -> None:
        """The pool is gone, or no longer ours."""
        pool.began = None
        self._managed = [managed for managed in self._managed if managed.pool is not pool]
        if len(self._managed) == 1:
            self._managed[0].pool.capacity = UNLIMITED

    @property
    def lendable(self) -> int:
        """Bytes that pools hold beyond their two frames."""
        return sum(managed.pool.granted - managed.pool.floor for managed in self._managed)

    def give_back(self, nbytes: int) -> None:
        """Pools give up the frames that are worth least until so many bytes are unused."""
        fair, _ = self._divided(nbytes)
        excess = [
            [managed.pool.granted - frames * managed.pool.frame_bytes, at]
            for at, (managed, frames) in enumerate(zip(self._managed, fair, strict=True))
        ]
        while self._budget.unused < nbytes and excess:
            most = max(excess)
            pool = self._managed[most[1]].pool
            before = pool.granted
            if before > pool.floor and pool.give_up_one():
                most[0] -= before - pool.granted
            else:
                excess.remove(most)

    def _began(self) -> None:
        """Some store begins a block."""
        self._until_next -= 1
        if self._until_next <= 0:
            self._until_next = max(_LEAST_INTERVAL, self._frames() // _FRAMES_PER_BLOCK, len(self._managed))
            if len(self._managed) > 1:
                self._rebalance()

    def _frames(self) -> int:
        return sum(len(managed.pool.frames) for managed in self._managed)

    def _rebalance(self) -> None:
        """Divides anew. A pool that must shrink does so in steps; a pool that may grow takes the memory given up."""
        for managed in self._managed:
            managed.rate = 0.75 * managed.rate + 0.25 * (managed.pool.begun - managed.counted)
            managed.counted = managed.pool.begun
        fair, left = self._divided(0)
        for managed, frames in zip(self._managed, fair, strict=True):
            pool, held = managed.pool, len(managed.pool.frames)
            upto = frames + left // pool.frame_bytes
            pool.shrink(max(upto, held - max(2, held // _STEP)))

    def _divided(self, reserved: int) -> tuple[list[int], int]:
        """The frames of each pool when so many bytes are to stay unused."""
        lent = sum(managed.pool.granted for managed in self._managed)
        return divide([_demand(managed) for managed in self._managed], self._budget.unused + lent - reserved)


def _demand(managed: _Managed) -> Demand:
    pool = managed.pool
    rate = managed.rate + 0.25 * (pool.begun - managed.counted)
    return Demand(rate, pool.frame_bytes, gaps(pool.readers(), pool.newest + 1), len(pool.frames))
