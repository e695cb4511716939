"""Which event caused a result: the driver, the batch and the phase, from the result's time alone.

Copy k of all n copies of drivers stamps its events with times that are k modulo n, and its stamps never go back. So the
time tells the copy, and the first of its batches that does not end before that time is the one that had the event. The
end of a window is the time of no event, and its remainder tells nothing: where the copy had no event around that time,
or sent it after the result came, the result counts from the first batch of any copy that passed it.

Where batches of several streams overlap in time, the result counts from the first of them that was sent: no latency is
shown too small. Recorded times that a replay keeps say nothing about copies; batches of all are then looked through.

Why: docs/decisions/copies-by-time.md
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Int64s
from penstock_bench.measure.results.reading import Batches
from penstock_bench.measure.setup.model import Pace, Setup


@dataclass(frozen=True)
class PhasePart:
    """A phase of one driver."""

    driver: str
    name: str
    measured: bool
    closed: bool
    """Events are sent as fast as they are accepted: they have no scheduled time."""


class Finder:
    """Finds the batch of a time. `owner[i]` is the copy that made batch i, of `owners` (1 where times do not tell);
    `moments_ns[i]` is when it was sent, or taken.

    `since_ns[i]` is what a result of batch i counts from: the least of its moment and those of batches of the same copy
    that end later.
    """

    def __init__(self, first_us: Int64s, last_us: Int64s, owner: Int64s, owners: int, moments_ns: Int64s) -> None:
        self._owners = owners
        self._order = np.lexsort((last_us, owner)) if len(last_us) else np.empty(0, np.int64)
        self._last = last_us[self._order]
        self._bounds = np.searchsorted(owner[self._order], np.arange(owners + 1))
        self._first = self._least(first_us)
        self.since_ns = self._least(moments_ns)

    def find(self, times_us: Int64s) -> Int64s:
        """The number of the batch of each time, of the copy that it tells; -1 for times after its last batch."""
        found = np.full(len(times_us), -1, np.int64)
        owner = times_us % self._owners
        for number in range(self._owners):
            rows = np.flatnonzero(owner == number) if self._owners > 1 else slice(None)
            found[rows] = self._of(number, times_us[rows])
        return found

    def cause(self, times_us: Int64s, came_ns: Int64s) -> Int64s:
        """The same for times of results that came at some moment; -1 for times after the last batch of all copies."""
        found = self.find(times_us)
        if self._owners == 1 or not len(self._order):
            return found
        odd = np.flatnonzero((found < 0) | (self._first[found] > times_us) | (self.since_ns[found] > came_ns))
        if len(odd):
            least = came_ns[odd]
            for number in range(self._owners):
                batch = self._of(number, times_us[odd])
                earlier = (batch >= 0) & (self.since_ns[batch] <= least)
                found[odd] = np.where(earlier, batch, found[odd])
                least = np.where(earlier, self.since_ns[batch], least)
        return found

    def _of(self, owner: int, times_us: Int64s) -> Int64s:
        low, high = self._bounds[owner], self._bounds[owner + 1]
        if low == high:
            return np.full(len(times_us), -1, np.int64)
        places = low + np.searchsorted(self._last[low:high], times_us)
        return np.where(places < high, self._order[np.minimum(places, high - 1)], -1)

    def _least(self, values: Int64s) -> Int64s:
        """For each batch the least of its value and those of batches of the same copy that end later."""
        ordered = values[self._order]
        for low, high in zip(self._bounds[:-1], self._bounds[1:], strict=True):
            ordered[low:high] = np.minimum.accumulate(ordered[low:high][::-1])[::-1]
        least = np.empty_like(ordered)
        least[self._order] = ordered
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
        self.sent_ns = _joined([batches.sent_ns for batches in drivers])
        self.shift_ns = self.due_ns - self.last_us * 1000
        """What must be added to the time of an event in a batch to have the moment it was due. It is not zero only
        after a closed loop, whose times may run ahead of the clock."""
        self.due_first_ns = self.due_ns - (self.last_us - self.first_us) * 1000 if self.times_tell else self.due_ns
        """When the oldest event of a batch was due."""
        self.stream = np.concatenate([batches.stream for batches in drivers])
        numbers = [_numbers(place, batches.phase) for place, batches in zip(places, drivers, strict=True)]
        self.part: NDArray[np.int16] = np.concatenate(numbers).astype(np.int16)
        """Which of `parts` each batch belongs to."""
        self.finder = self.finder_of(self.first_us, self.last_us, self.sent_ns, owner)
        self.measured = np.array([part.measured for part in self.parts])[self.part]
        self.closed = np.array([part.closed for part in self.parts])[self.part]

    def finder_of(self, first_us: Int64s, last_us: Int64s, moments_ns: Int64s, owner: Int64s | None = None) -> Finder:
        """For batches whose copy is known, or told by their times."""
        if not self.times_tell:
            return Finder(first_us, last_us, np.zeros(len(last_us), np.int64), 1, moments_ns)
        owner = last_us % self.owners if owner is None else owner
        return Finder(first_us, last_us, owner, self.owners, moments_ns)


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
