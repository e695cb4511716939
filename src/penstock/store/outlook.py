"""Which blocks stay in the pool, which leave it and which are written, where several readers follow one another.

Each reader reads a block once. The *gaps* between the readers (in blocks) say how long a block waits for its next
reader; the first gap is the one between the newest block and the reader nearest to it. Evicting a block for a gap of L
frees a frame for the time of L blocks. It costs a read, and the first time also a write.

    oldest reader       reader                 reader                      newest
       |----- gap -------|-------- gap ---------|------------ gap -----------|

Let T be the time for which a transfer must free a frame to be worth its cost. A block that has been written is evicted
for every gap longer than T. Writing a block pays if its gaps longer than T together free more than the write costs:
Σ max(0, L - T) > T. In a steady stream all blocks have the same gaps, so there is one T at which it makes no difference
whether a block is ever written. If memory suffices for this T, some blocks are evicted for each gap longer than T, and
the others never. If it does not suffice, every block is written sooner or later. Then the write no longer counts, and
the rule is Belady's: evict the block that is needed last, written or not.

Why: docs/decisions/no-read-ahead.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_TURN = 8
"""Frames to spare for readers that take turns of several blocks; a block too many would be written again."""


class Outlook(NamedTuple):
    """`worth_it` is T. `is_scarce`: every block has to be written. Blocks stay in memory through all gaps up to
    `longest_stay`; it is negative if not even a reader's own block is sure to."""

    worth_it: float
    is_scarce: bool
    longest_stay: float


def outlook(gaps: Sequence[int], frames: int) -> Outlook:
    """The outlook for these gaps in so many frames.

    One window: a block goes for its only gap.

    >>> outlook([100], 40)
    Outlook(worth_it=50.0, is_scarce=False, longest_stay=0.0)

    Windows at equal distance: those blocks that go go twice, for one write.

    >>> outlook([90, 90], 100)
    Outlook(worth_it=60.0, is_scarce=False, longest_stay=0.0)

    Many windows that are close together: what has been read stays until all have passed it.

    >>> outlook([10, 10, 10, 10, 100], 80)
    Outlook(worth_it=50.0, is_scarce=False, longest_stay=50.0)
    >>> outlook([10, 10, 10, 10, 100], 30).is_scarce
    True
    """
    rising = sorted(gaps)
    longest = worth_it = 0.0
    for transfers, gap in enumerate(reversed(rising), start=2):
        longest += gap
        worth_it = max(worth_it, longest / transfers)
    needed = own = len(gaps) + 1  # each reader's block, and the one that is being filled
    longest_stay = 0.0 if 2 * own + _TURN <= frames else -1.0
    for gap, longer in zip(rising, [*rising[1:], 0], strict=False):
        if gap > worth_it:
            break
        needed += gap
        if needed + needed // 32 + own // 2 + _TURN <= frames:
            longest_stay = min(worth_it, max(gap, (gap + longer) / 2))  # gaps vary while readers take turns
    return Outlook(worth_it, needed > frames, longest_stay)
