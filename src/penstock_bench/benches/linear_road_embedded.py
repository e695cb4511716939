"""Trials of the embedded engine, in real time: the application in one process for each core.

Every process runs the whole program over a part of the expressways. Nothing but accounts and the ten-week table goes
beyond an expressway. A balance is the sum of what a car was charged on all of them, so questions of balances go to all
processes and the reader adds the answers; a daily expenditure is asked of the process of its expressway.

All reports of a second come at its beginning, as one Arrow batch that was made before. Then the driver says that the
second is over (`App.advance`). An answer's response time is from the beginning of its report's second until a
subscriber has it; a second that the engine is not ready for waits, and its waiting counts. The driver is in the process
of the engine, so nothing but figures passes between processes. They stay for several trials: kernels are loaded once.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
from numpy.typing import NDArray

from penstock import App
from penstock.errors import PenstockError
from penstock_bench.benches.linear_road_load import Part, Stretch
from penstock_bench.benches.linear_road_profile import Profile
from penstock_bench.benches.linear_road_rating import LIMIT, Trial
from penstock_bench.workloads.linear_road.application import LAYOUTS, STREAM, answers, embedded

PROCESSES = 2
_MICROSECONDS = 1_000_000
_MINUTE = 60
_GIVE_UP = 2 * LIMIT
"""Seconds behind the schedule after which a trial ends."""
_READY = 0.2
"""Seconds between the last process that is ready and the first reports."""


class Measured(NamedTuple):
    """Of one process: when each answer came (after the beginning) and how long it took, and what each second cost."""

    came: NDArray[np.float64]
    responses: NDArray[np.float64]
    costs: list[float]
    profile: dict[str, float]


class Rater:
    """`trial(roads)` measures so many expressways."""

    def __init__(self, processes: list[Connection], stretch: Stretch) -> None:
        self._processes = processes
        self._stretch = stretch

    def trial(self, roads: int) -> Trial:
        return self._trial(roads, profiled=False)[0]

    def profile(self, roads: int) -> tuple[Trial, dict[str, float]]:
        """The same, and the share of each part of the engine in the time of the first process."""
        return self._trial(roads, profiled=True)

    def _trial(self, roads: int, *, profiled: bool) -> tuple[Trial, dict[str, float]]:
        for process in self._processes:
            process.send((roads, profiled))
        for process in self._processes:
            _received(process, roads)
        begin = time.monotonic() + _READY
        for process in self._processes:
            process.send(begin)
        found: list[Measured] = [_received(process, roads) for process in self._processes]
        in_order = np.argsort(np.concatenate([one.came for one in found]), kind="stable")
        responses = np.concatenate([one.responses for one in found])[in_order]
        seconds = min(len(one.costs) for one in found)
        reports = round(self._stretch.per_second * seconds * roads)
        busy = max(busy_minute(one.costs) for one in found)
        return Trial(roads, seconds, reports, responses, busy), found[0].profile


def _received(process: Connection, roads: int) -> Any:
    try:
        answer = process.recv()
    except EOFError:
        raise PenstockError(f"a process of the trial with {roads:,} expressways has died") from None
    if isinstance(answer, str):
        raise PenstockError(f"the trial with {roads:,} expressways failed: {answer}")
    return answer


def busy_minute(costs: list[float]) -> float:
    """The part of a minute that the engine works. The dearest second is the one that ends a minute: it comes once.

    >>> busy_minute([0.5, 0.5, 6.5, 0.5])
    0.6
    """
    if len(costs) < 2:
        return sum(costs)
    dearest = max(costs)
    return ((sum(costs) - dearest) / (len(costs) - 1) * (_MINUTE - 1) + dearest) / _MINUTE


@contextmanager
def rater(stretch: Stretch, processes: int = PROCESSES) -> Iterator[Rater]:
    context = get_context("spawn")
    with TemporaryDirectory(prefix="penstock-bench-") as directory:
        stretch.write(Path(directory))
        pipes = [context.Pipe() for _ in range(processes)]
        started = [
            context.Process(
                target=_serve,
                args=(theirs, directory, (stretch.begin, stretch.seconds), number, processes),
                daemon=True,
            )
            for number, (_, theirs) in enumerate(pipes)
        ]
        for process, (_, theirs) in zip(started, pipes, strict=True):
            process.start()
            theirs.close()
        try:
            yield Rater([ours for ours, _ in pipes], stretch)
        finally:
            for process, (ours, _) in zip(started, pipes, strict=True):
                ours.close()
                process.join(5)
                process.kill()
                process.join()


def _serve(connection: Connection, directory: str, extent: tuple[int, int], number: int, processes: int) -> None:
    stretch = Stretch.read(Path(directory), *extent)
    while True:
        try:
            roads, profiled = connection.recv()
        except EOFError:
            return

        def wait() -> float:
            connection.send(None)
            begin: float = connection.recv()
            return begin

        try:
            part = Part.of(roads, number, processes)
            profile = Profile() if profiled and number == 0 else None
            memory = psutil.virtual_memory().total // (2 * processes)
            tolls = Path(directory) / f"tolls-{number}.csv"
            connection.send(in_real_time(stretch, part, tolls, memory, wait, profile))
        except Exception as error:
            connection.send(f"{type(error).__name__}: {error}")


def in_real_time(
    stretch: Stretch, part: Part, tolls: Path, memory: int, wait: Callable[[], float], profile: Profile | None = None
) -> Measured:
    """Leads up to the stretch, and measures it from the moment on that `wait` says."""
    stretch.write_tolls(tolls, part)
    with embedded(tolls, memory=memory) as app:
        for batch in stretch.lead_up_of(part):
            app.push(STREAM, batch)
        app.advance(STREAM, stretch.begin * _MICROSECONDS)
        for _ in answers(app):
            pass
        batches = stretch.reports_of(part)
        arrivals = Arrivals(app)
        # What the harness holds must not make the collector's pauses longer.
        gc.collect()
        gc.freeze()
        began = wait()
        costs = []
        for second, batch in enumerate(batches):
            time.sleep(max(0.0, began + second - time.monotonic()))
            taken = time.monotonic()
            if taken - began - second > _GIVE_UP:
                break
            if profile is not None:
                profile.begin()
            app.push(STREAM, batch)
            app.advance(STREAM, (stretch.begin + second + 1) * _MICROSECONDS)
            if profile is not None:
                profile.end()
            costs.append(time.monotonic() - taken)
        gc.unfreeze()
        return Measured(*arrivals.responses(began, stretch.begin), costs, profile.shares() if profile else {})


class Arrivals:
    """When answers were with their subscribers, and the seconds of the reports that asked."""

    def __init__(self, app: App) -> None:
        self.clear()
        for query in LAYOUTS:
            if query in app.queries:
                app.subscribe(query, self._take)

    def clear(self) -> None:
        self._came: list[tuple[float, pa.Array]] = []

    def _take(self, rows: pa.RecordBatch) -> None:
        self._came.append((time.monotonic(), rows.column("time")))

    def responses(self, began: float, first_second: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """When answers came, in seconds after `began`, and how long after their reports, if those of `first_second`
        arrived at `began`."""
        if not self._came:
            return np.empty(0), np.empty(0)
        came = np.concatenate([np.full(len(seconds), at - began) for at, seconds in self._came])
        asked = np.concatenate([seconds.to_numpy() for _, seconds in self._came]) - first_second
        return came, came - asked
