"""Panes: what the rows of a short stretch of time contribute to every window that contains the stretch.

The windows of a family are sums of panes. A pane's groups are aggregated once, in a state of their own; when the pane
closes, what each group holds becomes a *pane row* of fixed width, which enters the accumulators of all windows and
later leaves those of each, when the window's tail has passed it. A window's state has one slot for each window and
group: slot = group * windows + window, so that the windows of a group lie side by side and a row enters them in one
sweep.

Sums are integers in the units of the state, and the windows take over the units of the panes, so a row enters and
leaves by plain addition and subtraction, and nothing is left of it. What does not fit the fixed width (`wide`) is an
*extra*: words of any number that go with the row.

Invariants a caller keeps:
1. `take_units` comes before the rows of a pane enter.
2. Rows enter all windows in the order of their positions, which rise by one from row to row, and leave each window in
   the same order, with the same words and extras.
3. Slots that `rearrange` does not keep have been reset.

Driven by `operators.panes.totals`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from penstock.aggregates.exact_merge import add_words
from penstock.aggregates.rounding import U0
from penstock.aggregates.state import AggregateState
from penstock.aggregates.wide import Words
from penstock.arrays import Int64s, Slots
from penstock.jit import kernel

Extras = dict[int, Words]
"""What does not fit the words of some rows, by the number of the row among those handed on together."""

NO_EXTRAS: Extras = {}


class PaneRows(NamedTuple):
    """Rows as one state sees them: those of row i are words[i, at : at + its `pane_words`]."""

    positions: Int64s
    words: Words
    at: int
    extras: Extras


class PanedState(AggregateState):
    """A state whose content can become a pane row, and that can take in and give back pane rows."""

    @property
    @abstractmethod
    def pane_words(self) -> int:
        """How many words a pane row has."""

    @abstractmethod
    def take_units(self, panes: Any) -> None:
        """Counts in the units of `panes`, the state of the same kind that rows come from."""

    @abstractmethod
    def to_panes(self, slots: Slots, words: Words, at: int) -> Extras:
        """Writes what these slots hold to the rows of `words`, from word `at` on; returns the extras."""

    @abstractmethod
    def enter(self, rows: PaneRows, groups: Slots, windows: int) -> None:
        """Each row enters all windows of its group."""

    @abstractmethod
    def leave(self, rows: PaneRows, slots: Slots) -> None:
        """Each row leaves one slot."""

    @abstractmethod
    def rearrange(self, kept: Slots) -> None:
        """From now on slot i is what was slot kept[i]; `reset` has emptied the slots that are not kept."""


@kernel
def enter_words(
    accumulators: Words, width: int, lengths: Int64s, words: Words, at: int, groups: Slots, windows: int
) -> None:
    """Adds each row to the accumulators of all windows of its group. An accumulator is integers of `lengths` words."""
    for row in range(len(groups)):
        own = words[row]
        first = int(groups[row]) * windows
        for slot in range(first, first + windows):
            place = 0
            for length in lengths:
                add_words(accumulators, slot * width + place, own, at + place, length)
                place += length


@kernel
def leave_words(accumulators: Words, width: int, lengths: Int64s, words: Words, at: int, slots: Slots) -> None:
    """Subtracts each row from the accumulator of one slot."""
    for row in range(len(slots)):
        own = words[row]
        first = int(slots[row]) * width
        place = 0
        for length in lengths:
            _subtract_words(accumulators, first + place, own, at + place, length)
            place += length


@kernel
def _subtract_words(words: Words, at: int, subtrahend: Words, subtrahend_at: int, count: int) -> None:
    borrow = U0
    for index in range(count):
        word = subtrahend[subtrahend_at + index]
        before = words[at + index]
        part = before - word
        words[at + index] = part - borrow
        borrow = np.uint64(before < word) | np.uint64(part < borrow)
