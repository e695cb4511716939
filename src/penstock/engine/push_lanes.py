"""The push lanes of an app: made when a stream has had some pushes of dicts, made anew when queries come or go."""

from __future__ import annotations

from typing import Any

from penstock.engine.flow import Flow
from penstock.engine.inputs import Inputs
from penstock.engine.push_lane import PushLane
from penstock.engine.stream_input import StreamInput

LEAST_PUSHES = 16
"""A lane is worth making after so many pushes."""


class PushLanes:
    def __init__(self, flow: Flow, inputs: Inputs) -> None:
        self._flow = flow
        self._inputs = inputs
        self._version = -1
        self._lanes: dict[str, PushLane | None] = {}
        self._pushes: dict[str, int] = {}

    def may_take(self, source: StreamInput) -> bool:
        """Whether a lane may take events of the stream: not if it is known that there is none."""
        return self._version != self._flow.version or self._lanes.get(source.definition.name, self) is not None

    def take(self, source: StreamInput, data: Any) -> int:
        """How many events from the front of a push have been taken by a lane."""
        name = source.definition.name
        if self._version != self._flow.version:
            self._version = self._flow.version
            self._lanes.clear()
        if name not in self._lanes:
            self._pushes[name] = self._pushes.get(name, 0) + 1
            if self._pushes[name] <= LEAST_PUSHES or not self._flow.is_settled(name):
                return 0
            self._lanes[name] = self._made(source)
        lane = self._lanes[name]
        if lane is None:
            return 0
        if lane.ingest is not source.ingest:
            self._lanes[name] = lane = self._made(source)
        return 0 if lane is None else lane.push(data)

    def _made(self, source: StreamInput) -> PushLane | None:
        if self._inputs.heeds_the_clock or not source.takes_rows_as_they_are:
            return None
        running = self._flow.sole_reader(source.definition.name)
        if running is None:
            return None
        found = running.row_lane()
        if found is None:
            return None
        lane = PushLane(source, *found, running.outlet, self._flow.note_rows)
        return lane if lane.columns == set(source.ingest.pushed) else None
