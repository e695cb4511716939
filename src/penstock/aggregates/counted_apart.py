"""In place of a COUNT(DISTINCT) of texts that are counted elsewhere (`operators.paged.texts`): it holds nothing.

The counts are put in place of what it answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.aggregates.state import AggregateState, Emitted, Rows, Schedule, Snapshot, Want
from penstock.arrays import Slots
from penstock.components import component


@component("CountedApart")
class CountedApart(AggregateState):
    def __init__(self, wants: Sequence[Want]) -> None:
        self._answers = len(wants)

    def ensure(self, slots: int) -> None:
        pass

    def advance(self, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        nothing = Emitted(np.zeros(len(schedule.emit_slots), np.int64), None)
        return (nothing,) * self._answers

    def reset(self, slots: Slots) -> None:
        pass

    @property
    def nbytes(self) -> int:
        return 0

    def snapshot(self) -> Snapshot:
        return {}

    def restore(self, snapshot: Snapshot) -> None:
        pass
