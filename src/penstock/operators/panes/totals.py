"""What the windows of a family hold: for each window and group a row count and the states, made of pane rows.

A pane row is the group's row count and then the words of each state. Where the words of a state are is fixed when the
family is made; after a restart without some of its queries, words without a reader are zero.

Invariant: counts and states have seen the same pane rows; slot = group * windows + window (see `aggregates.panes`).
Driven by `panes`.

Why: docs/decisions/families-in-one-sweep.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.aggregates.factory import create_state
from penstock.aggregates.panes import Extras, PanedState, PaneRows, enter_words, leave_words
from penstock.aggregates.state import Argument, Emitted, Rows, Schedule
from penstock.aggregates.wide import Words
from penstock.arrays import Int64s, Slots
from penstock.components import component
from penstock.lang.fingerprint import fingerprint
from penstock.operators.resources import Resources
from penstock.plan.aggregations import state_key
from penstock.plan.nodes import StateSpec
from penstock.store.charged import ChargedArray

_NO_SLOTS = np.empty(0, np.int32)
_NO_POSITIONS = np.empty(0, np.int64)
_ONE_WORD = np.ones(1, np.int64)


@component("PaneTotals")
class PaneTotals:
    """`layout` is that of saved rows: the names of states and their numbers of words."""

    def __init__(
        self,
        name: str,
        specs: Sequence[StateSpec],
        windows: int,
        resources: Resources,
        layout: Sequence[tuple[str, int]] | None,
        *,
        pages: bool = True,
    ) -> None:
        """`pages`: states that can page have devices of their own."""
        self.pages = pages
        self._windows = windows
        self._names = [fingerprint(state_key(spec)) for spec in specs]
        self._states = [_create(f"{name}-windows", spec, resources, pages=pages) for spec in specs]
        self._none = [_no_rows(spec) for spec in specs]
        widths = [(key, state.pane_words) for key, state in zip(self._names, self._states, strict=True)]
        self.layout = widths if layout is None else list(layout)
        self.row_words = 1 + sum(width for _, width in self.layout)
        self._places = [self._place(key) for key in self._names]
        self.extras_of = [[key for key, _ in self.layout].index(key) for key in self._names]
        """The place of each state's extras among those of a row."""
        self._counts = ChargedArray(resources.account(f"{name}: row counts of windows"), np.int64)

    @property
    def counts(self) -> Int64s:
        return self._counts.array

    @property
    def states(self) -> Sequence[PanedState]:
        return self._states

    @property
    def nbytes(self) -> int:
        """But for what states give up by themselves where memory is short."""
        return self._counts.nbytes + sum(state.nbytes - state.pageable_nbytes for state in self._states)

    def _place(self, wanted: str) -> int:
        at = 1
        for key, width in self.layout:
            if key == wanted:
                return at
            at += width
        raise AssertionError("queries that go on from saved state read what is in it")

    def fit(self, groups: int) -> None:
        """Makes room for so many groups."""
        slots = groups * self._windows
        if slots > len(self._counts):
            for state in self._states:
                state.ensure(slots)
            self._counts.resize(slots)

    def rows_of(self, panes: Sequence[Any], counts: Int64s, groups: Slots) -> tuple[Words, list[Extras]]:
        """The pane rows of these groups, from the states and counts of a pane."""
        words = np.zeros((len(groups), self.row_words), np.uint64)
        words[:, 0] = counts[groups].view(np.uint64)
        extras: list[Extras] = [{} for _ in self.layout]
        for pane, place, number in zip(panes, self._places, self.extras_of, strict=True):
            assert isinstance(pane, PanedState), "the planner asked whether all states can be made of panes"
            extras[number] = pane.to_panes(groups, words, place)
        return words, extras

    def take_units(self, panes: Sequence[Any]) -> None:
        """Counts in the units of these states."""
        for state, pane in zip(self._states, panes, strict=True):
            state.take_units(pane)

    def give_units(self, panes: Sequence[Any]) -> None:
        """These states count in the same units from now on."""
        for state, pane in zip(self._states, panes, strict=True):
            pane.take_units(state)

    def enter(self, panes: Sequence[Any], first: int, groups: Slots, words: Words, extras: Sequence[Extras]) -> None:
        """Rows from position `first` on enter all windows."""
        positions = np.arange(first, first + len(groups))
        enter_words(self.counts.view(np.uint64), 1, _ONE_WORD, words, 0, groups, self._windows)
        self.take_units(panes)
        for state, place, number in zip(self._states, self._places, self.extras_of, strict=True):
            state.enter(PaneRows(positions, words, place, extras[number]), groups, self._windows)

    def leave(self, positions: Int64s, slots: Slots, words: Words, extras: Sequence[Extras]) -> None:
        """Each row leaves one window of its group."""
        leave_words(self.counts.view(np.uint64), 1, _ONE_WORD, words, 0, slots)
        for state, place, number in zip(self._states, self._places, self.extras_of, strict=True):
            state.leave(PaneRows(positions, words, place, extras[number]), slots)

    def evaluate(self, slots: Slots) -> list[tuple[Emitted, ...]]:
        zero = np.zeros(1, np.int64)
        schedule = Schedule(zero, zero, zero + len(slots), slots)
        return [state.advance(none, none, schedule) for state, none in zip(self._states, self._none, strict=True)]

    def in_use(self) -> Int64s:
        """For each group the most pane rows' events that some window has of it."""
        most: Int64s = self.counts.reshape(-1, self._windows).max(axis=1)
        return most

    def keep(self, windows: Int64s) -> None:
        """Only these windows are left."""
        slots = np.arange(len(self.counts), dtype=np.int32).reshape(-1, self._windows)
        kept = slots[:, windows].reshape(-1)
        gone = np.delete(slots, windows, axis=1).reshape(-1)
        for state in self._states:
            state.reset(gone)
            state.rearrange(kept)
        self._counts.set(self.counts[kept])
        self._windows = len(windows)

    def snapshot(self) -> dict[str, Any]:
        states = {name: state.snapshot() for name, state in zip(self._names, self._states, strict=True)}
        return {"counts": self.counts, "states": states}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._counts.set(snapshot["counts"])
        for name, state in zip(self._names, self._states, strict=True):
            state.restore(snapshot["states"][name])


def _create(name: str, spec: StateSpec, resources: Resources, *, pages: bool) -> PanedState:
    key = fingerprint(state_key(spec))[:12]
    state = create_state(
        spec.kind,
        tuple(arg.type for arg in spec.args),
        spec.wants,
        account=resources.account(f"{name}: {spec.kind} {key}"),
        device=resources.device(f"{name}-{key}") if spec.has_device and pages else None,
    )
    assert isinstance(state, PanedState), "the planner asked whether all states can be made of panes"
    return state


def _no_rows(spec: StateSpec) -> Rows:
    return Rows(_NO_POSITIONS, _NO_SLOTS, tuple(Argument(np.empty(0, arg.type.storage), None) for arg in spec.args))
