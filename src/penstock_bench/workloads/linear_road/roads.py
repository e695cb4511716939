"""How the roads are right now, for pictures: what the application itself knows of each segment for the minute."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock_bench.workloads.linear_road.reports import SEGMENTS

QUERY = "CREATE QUERY roads AS SELECT unix_seconds(window_end) AS at, road, seg, lav, cars, ahead FROM conditions"
"""To be added to the application: its segments at the beginning of each minute."""

NOT_AHEAD = 5
"""What `ahead` is where no accident is near; 0 is the segment of an accident."""

Grid = NDArray[np.int64]
"""By road (a direction of an expressway) and segment."""


@dataclass(frozen=True)
class Roads:
    """`minute` is counted from 1. A speed of -1 is of a segment without cars."""

    minute: int
    speed: Grid
    cars: Grid
    toll: Grid
    ahead: Grid

    @property
    def accidents(self) -> list[tuple[int, int]]:
        """The roads and segments of accidents."""
        return [(int(road), int(segment)) for road, segment in np.argwhere(self.ahead == 0)]


@dataclass
class RoadsNow:
    """Takes the rows of the query as they come and keeps those of the last minute. Any thread may look at `seen`."""

    seen: Roads | None = field(default=None)

    def take(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        ends = rows["at"].to_numpy()
        rows = rows.filter(pa.array(ends == ends[-1]))
        road, segment, lav, cars, ahead = (
            rows[name].to_numpy().astype(np.int64) for name in ("road", "seg", "lav", "cars", "ahead")
        )
        known = (segment >= 0) & (segment < SEGMENTS)
        before = 0 if self.seen is None else len(self.seen.speed)
        shape = (max(before, int(road.max()) // 2 * 2 + 2), SEGMENTS)
        toll = np.where((cars > 50) & (lav < 40) & (ahead == NOT_AHEAD), 2 * (cars - 50) ** 2, 0)
        grids = []
        for values, nothing in ((np.where(cars > 0, lav, -1), -1), (cars, 0), (toll, 0), (ahead, NOT_AHEAD)):
            grid = np.full(shape, nothing, np.int64)
            grid[road[known], segment[known]] = values[known]
            grids.append(grid)
        self.seen = Roads(int(ends[-1]) // 60 + 1, *grids)
