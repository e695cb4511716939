"""How long results took, in the three ways of FINCoS (thesis, Figure 3.4).

    end-to-end   the sink has the result           - the driver sent the event that caused it
    adapter      the adapter had it from the system - the adapter gave the event to the system
    scheduled    the sink has the result           - the event was due, by the driver's schedule

A driver that is kept waiting by the system sends late; only the scheduled latency has that wait in it, for every event
that waited. In a closed loop (`rate = "max"`) nothing is due at a time of its own: there it counts from the send.

All three come from the logs of one run. A result whose time is after the last event, as when the end of the input
closes a window, was caused by no event and has no latency.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Int64s
from penstock_bench.measure.results.causes import Causes
from penstock_bench.measure.results.reading import RunLogs, Taken
from penstock_bench.measure.setup.model import LatencyMode

_MS = 1_000_000


@dataclass(frozen=True)
class Samples:
    """Results of one query whose latency is known, in no particular order."""

    latency_ns: Int64s
    received_ns: Int64s
    part: NDArray[np.int16]
    """The phase of the event that caused each: its number in `Causes.parts`."""

    measured: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.latency_ns)

    def those(self, rows: NDArray[np.bool_]) -> Samples:
        return Samples(self.latency_ns[rows], self.received_ns[rows], self.part[rows], self.measured[rows])


class LatencyReader:
    """Of one run in one mode."""

    def __init__(self, logs: RunLogs, causes: Causes, mode: LatencyMode) -> None:
        self._logs = logs
        self._causes = causes
        self._mode = mode
        self._coarse = logs.setup.measuring.resolution == "ms"
        if mode is LatencyMode.ADAPTER:
            host = logs.host
            self._host = causes.finder_of(host.first_us, host.last_us, host.begun_ns)
            if not len(host.begun_ns):
                logs.notes.append("latency inside the adapter is not known: no host has logged when it took events")

    def samples(self) -> dict[str, Samples]:
        """Of each query; the notes of the logs tell what was left out."""
        found: dict[str, list[Samples]] = {query: [] for query in self._logs.setup.queries}
        uncaused = 0
        for taken in self._logs.results():
            samples = self._of(taken)
            uncaused += len(taken.cause_us) - len(samples)
            found.setdefault(taken.query, []).append(samples)
        if uncaused:
            self._logs.notes.append(
                f"{uncaused:,} results were caused by no event in the logs, as at the end of the input; they have"
                " no latency"
            )
        return {query: _joined(parts) for query, parts in found.items()}

    def _of(self, taken: Taken) -> Samples:
        causes = self._causes
        batch = causes.finder.cause(taken.cause_us, taken.received_ns)
        known = batch >= 0
        if self._mode is LatencyMode.ADAPTER:
            pushed = self._host.cause(taken.cause_us, taken.emitted_ns)
            known &= pushed >= 0
        if known.all():
            cause, received, emitted = taken.cause_us, taken.received_ns, taken.emitted_ns
        else:
            cause, received, emitted = (a[known] for a in (taken.cause_us, taken.received_ns, taken.emitted_ns))
            batch = batch[known]
        if self._mode is LatencyMode.ADAPTER:
            latency = emitted - self._host.since_ns[pushed[known]]
        elif self._mode is LatencyMode.END_TO_END:
            latency = received - causes.finder.since_ns[batch]
        else:
            due = cause * 1000 + causes.shift_ns[batch] if causes.times_tell else causes.due_ns[batch]
            latency = received - np.where(causes.closed[batch], causes.finder.since_ns[batch], due)
        if self._coarse:
            latency = (latency + _MS // 2) // _MS * _MS
        return Samples(latency, received, causes.part[batch], causes.measured[batch])


def _joined(parts: list[Samples]) -> Samples:
    if not parts:
        empty = np.empty(0, np.int64)
        return Samples(empty, empty, np.empty(0, np.int16), np.empty(0, np.bool_))
    return Samples(
        np.concatenate([part.latency_ns for part in parts]),
        np.concatenate([part.received_ns for part in parts]),
        np.concatenate([part.part for part in parts]),
        np.concatenate([part.measured for part in parts]),
    )
