"""What every aggregate state is to the operator that drives it.

A state holds one accumulator per *slot* (a group of the query). The operator hands it, in one call, a run of rows
that enter the window, a run of rows that leave it and a *schedule* that interleaves them with evaluations:

    step k:  add rows [add_upto[k-1], add_upto[k])
             remove rows [remove_upto[k-1], remove_upto[k])
             evaluate the slots emit_slots[emit_upto[k-1] : emit_upto[k]]

Invariants a caller keeps and a state may rely on:
1. Rows enter in the order of their positions; positions rise by one from row to row within a run of adds.
2. Rows leave in the order they entered *per slot*, each after it entered, with the same slot, value and validity.
3. A slot of -1 means the row belongs to no group (it failed WHERE): the state skips it.
4. `ensure(n)` was called with n greater than every slot used.
5. A slot whose rows have all left is as new; `reset(slots)` makes slots as new whatever they hold.

A state that cannot go on within the memory it was granted raises `BudgetError` from `ensure` or `advance`.
Results depend only on the rows now in the window, never on how the calls were cut.

Why: docs/decisions/schedules.md
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.aggregates.signatures import Want as Want
from penstock.arrays import Bools, Int64s, Slots
from penstock.columns import Argument as Argument
from penstock.columns import Values as Values

Snapshot = dict[str, Any]
"""A tree of str, int, float, bool, None, bytes, numpy arrays, lists and dicts with str keys (see store.state)."""


class Rows(NamedTuple):
    """Rows that enter or leave. `positions[i]` identifies row i for the life of the window."""

    positions: Int64s
    slots: Slots
    arguments: tuple[Argument, ...]

    @property
    def size(self) -> int:
        return len(self.slots)


class Schedule(NamedTuple):
    """The interleaving described above; the three `upto` arrays have one entry per step."""

    add_upto: Int64s
    remove_upto: Int64s
    emit_upto: Int64s
    emit_slots: Slots


class Emitted(NamedTuple):
    """One value per entry of `emit_slots`; `valid` None means none is NULL, `failed` marks overflow."""

    values: Values
    valid: Bools | None
    failed: Bools | None = None


class AggregateState(ABC):
    """One state, for every slot of one query."""

    @abstractmethod
    def ensure(self, slots: int) -> None:
        """Makes room for slots 0..slots-1, growing geometrically."""

    @abstractmethod
    def advance(self, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        """Plays the schedule; returns one column per result the state serves, in the order it was created with."""

    @abstractmethod
    def reset(self, slots: Slots) -> None:
        """Forgets everything about these slots."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory held, as counted against the budget."""

    @property
    def pageable_nbytes(self) -> int:
        """How much of it the state gives up where others need it."""
        return 0

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """All of the state; arrays may be views, the caller writes them out before the next advance."""

    @abstractmethod
    def restore(self, snapshot: Snapshot) -> None:
        """The inverse of `snapshot` on a state made with the same parameters."""


class PartialState(AggregateState):
    """A state whose content can go on in another state of the same kind. The kinds are those with a
    `kinds.Kind.partial`; what a partial looks like is said in `partials`. What was absorbed does not leave row by row:
    it goes with `reset`."""

    @abstractmethod
    def export(self, slots: Slots) -> pa.Array:
        """One partial per slot; the state stays as it is."""

    @abstractmethod
    def absorb(self, slots: Slots, partials: pa.Array) -> None:
        """Adds partials to slots that `ensure` has made room for and that are as new, each once."""


class MergeableState(PartialState):
    """A state that can take in what several others hold: what one would hold after seeing the rows of all.

    Splitting the rows over any number of states and merging them in any order gives the answers of one state, to the
    bit. `absorb` adds partials to slots whatever they hold; a slot may be given any number of times.
    """
