"""The push lanes of an app: made when a stream has had some pushes of dicts, made anew when queries come or go.

A lane is *open* while a push of dicts needs nothing but the lane. What may end that changes the version of the flow,
or calls `close`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.engine.flow import Flow
from penstock.engine.guard import Guard
from penstock.engine.inputs import Inputs
from penstock.engine.push_lane import PushLane
from penstock.engine.stream_input import StreamInput

LEAST_PUSHES = 16
"""A lane is worth making after so many pushes."""

ALL_TAKEN: Any = object()
"""What is left of a push that a lane has taken."""


class PushLanes:
    """`may_open` says whether a push does nothing but take its events in, as far as the app knows."""

    def __init__(self, flow: Flow, inputs: Inputs, guard: Guard, may_open: Callable[[], bool]) -> None:
        self._flow = flow
        self._inputs = inputs
        self._guard = guard
        self._may_open = may_open
        self._version = -1
        self._open: dict[str, PushLane] = {}
        self._tried: set[str] = set()
        self._pushes: dict[str, int] = {}

    def push(self, stream: str, data: Any) -> Any:
        """What the lane of a stream leaves of pushed events; the stream has the name that it is declared with."""
        lane = self._open.get(stream)
        if lane is None or self._version != self._flow.version:
            return data
        if data.__class__ is dict:
            with self._guard:
                return ALL_TAKEN if lane.push(data) else data
        if data.__class__ is list:
            with self._guard:
                taken = lane.push_list(data)
            if taken:
                return ALL_TAKEN if taken == len(data) else data[taken:]
        return data

    def close(self) -> None:
        """From now on a push may need more than the lanes."""
        self._open.clear()
        self._tried.clear()

    def note_push(self, source: StreamInput) -> None:
        """Dicts were pushed that no lane has taken."""
        name = source.definition.name
        if self._version != self._flow.version:
            self._version = self._flow.version
            self.close()
        if name in self._tried:
            return
        self._pushes[name] = self._pushes.get(name, 0) + 1
        if self._pushes[name] <= LEAST_PUSHES or not self._flow.is_settled(name):
            return
        self._tried.add(name)
        lane = self._made(source)
        if lane is not None:
            self._open[name] = lane

    def _made(self, source: StreamInput) -> PushLane | None:
        if not self._may_open() or self._inputs.heeds_the_clock or not source.takes_rows_as_they_are:
            return None
        running = self._flow.sole_reader(source.definition.name)
        if running is None:
            return None
        found = running.row_lane()
        if found is None:
            return None
        lane = PushLane(source, *found, running.outlet, self._flow.note_rows)
        return lane if lane.columns == set(source.ingest.pushed) else None
