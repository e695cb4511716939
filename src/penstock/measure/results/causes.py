"""Which event caused a result: the driver, the batch and the phase, from the result's time alone.

Copy k of all n copies of drivers stamps its events with times that are k modulo n, and its stamps never go back. So the
time tells the copy, and the first of its batches that does not end before that time is the one that had the event. The
end of a window is the time of no event: the batch found is then the one whose events passed it.

Where batches of several streams overlap in time, the result counts from the first of them that was sent: no latency is
shown too small. Recorded times that a replay keeps say nothing about copies; batches of all are then looked through.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.measure.results.reading import Batches, Int64s
from penstock.measure.setup.model import Pace, Setup


@dataclass(frozen=True)
class PhasePart:
    """A phase of one driver."""

    driver: str
    name: str
    measured: bool
    closed: bool
    """Events are sent as fast as they are accepted: they have no scheduled time."""


class Finder:
    """Finds the batch of a time. `owner[i]` is the copy that made batch i, of `owners` (1 where times do not tell)."""

    def __init__(self, last_us: Int64s, owner: Int64s, owners: int) -> None:
        self._owners = owners
        self._order = np.lexsort((last_us, owner)) if len(last_us) else np.empty(0, np.int64)
        self._last = last_us[self._order]
        self._bounds = np.searchsorted(owner[self._order], np.arange(owners + 1))

    def find(self, times_us: Int64s) -> Int64s:
        """The number of the batch of each time; -1 for times after the last batch."""
        found = np.full(len(times_us), -1, np.int64)
        owner = times_us % self._owners
        for number in range(self._owners):
            low, high = self._bounds[number], self._bounds[number + 1]
            rows = np.flatnonzero(owner == number) if self._owners > 1 else slice(None)
            places = low + np.searchsorted(self._last[low:high], times_us[rows])
            if high > low:
                found[rows] = np.where(places < high, self._order[np.minimum(places, high - 1)], -1)
        return found

    def earliest(self, times_ns: Int64s) -> Int64s:
        """For each batch the least of its time and the times of batches of the same copy that end later."""
        sorted_ns = times_ns[self._order]
        for low, high in zip(self._bounds[:-1], self._bounds[1:], strict=True):
            sorted_ns[low:high] = np.minimum.accumulate(sorted_ns[low:high][::-1])[::-1]
        least = np.empty_like(sorted_ns)
        least[self._order] = sorted_ns
        return least


class Causes:
    """All batches of all drivers, as one sequence, with the phase of each."""

    def __init__(self, setup: Setup, drivers: list[Batches]) -> None:
        self.parts, places = _phase_parts(setup)
        self.owners = len(drivers)
        kept = [driver.replay is not None and driver.replay.keep_times for driver in setup.drivers]
        self.times_tell = not any(kept)
        owner = np.repeat(np.arange(self.owners), [len(batches.sent_ns) for batches in drivers])
        self.last_us = _joined([batches.last_us for batches in drivers])
        self.first_us = _joined([batches.first_us for batches in drivers])
        self.events = _joined([batches.events for batches in drivers])
        self.due_ns = _joined([batches.due_ns for batches in drivers])
        self.done_ns = _joined([batches.done_ns for batches in drivers])
        sent_ns = _joined([batches.sent_ns for batches in drivers])
        self.shift_ns = self.due_ns - self.last_us * 1000
        """What must be added to the time of an event in a batch to have the moment it was due. It is not zero only
        after a closed loop, whose times may run ahead of the clock."""
        self.due_first_ns = self.due_ns - (self.last_us - self.first_us) * 1000 if self.times_tell else self.due_ns
        """When the oldest event of a batch was due."""
        self.stream = np.concatenate([batches.stream for batches in drivers])
        numbers = [_numbers(place, batches.phase) for place, batches in zip(places, drivers, strict=True)]
        self.part: NDArray[np.int16] = np.concatenate(numbers).astype(np.int16)
        """Which of `parts` each batch belongs to."""
        self.finder = self.finder_of(self.last_us, owner)
        self.sent_ns = sent_ns
        self.sent_first_ns = self.finder.earliest(sent_ns)
        self.measured = np.array([part.measured for part in self.parts])[self.part]
        self.closed = np.array([part.closed for part in self.parts])[self.part]

    def finder_of(self, last_us: Int64s, owner: Int64s | None = None) -> Finder:
        """For batches whose copy is known, or told by their times."""
        if not self.times_tell:
            return Finder(last_us, np.zeros(len(last_us), np.int64), 1)
        return Finder(last_us, last_us % self.owners if owner is None else owner, self.owners)


def _joined(arrays: list[Int64s]) -> Int64s:
    return np.concatenate(arrays)


def _phase_parts(setup: Setup) -> tuple[list[PhasePart], list[tuple[int, int]]]:
    """The phases of all drivers, and for each copy where its own begin and how many they are."""
    parts: list[PhasePart] = []
    places = []
    for driver in setup.drivers:
        if driver.replay is not None:
            own = [PhasePart(driver.name, "replay", True, driver.replay.pace is Pace.MAX)]
        else:
            own = [PhasePart(driver.name, phase.name, phase.measured, phase.rate == "max") for phase in driver.phases]
        places += [(len(parts), len(own))] * driver.copies
        parts += own
    return parts, places


def _numbers(place: tuple[int, int], phases: Int64s) -> Int64s:
    first, count = place
    return first + np.clip(phases, 0, count - 1)
