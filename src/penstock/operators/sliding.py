"""Aggregation over a sliding window: one query's part of a stored window, which it may share with others.

The window's policy says where evaluations take place and what has left by then; the shared window (`shared_window`)
hands on the rows that enter and the query's own tail of it gives those that leave; the evaluation plays both against
each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.operators.aggregation import Run
from penstock.operators.chunk import Chunk
from penstock.operators.evaluation import Arrivals, Evaluation, Results, Turn
from penstock.operators.leaving import Leaving
from penstock.operators.operator import Operator, Progress
from penstock.operators.resources import Resources
from penstock.operators.seat import Entered
from penstock.operators.shared_window import SharedWindow
from penstock.plan.nodes import AggregateNode
from penstock.windows.spec import TimeSlide
from penstock.windows.steps import Steps, policy_for

MakeEvaluation = Callable[..., Evaluation]
"""Called like `Results`."""


class SlidingAggregate(Operator):
    """Without a `window` to share, the query has one of its own."""

    def __init__(
        self,
        name: str,
        node: AggregateNode,
        resources: Resources,
        window: SharedWindow | None = None,
        evaluation: MakeEvaluation = Results,
    ) -> None:
        self._window = SharedWindow(name, (node,), resources.apart()) if window is None else window
        self._is_own = window is None
        self._seat = seat = self._window.join(node, self._enter, resources.reject)
        resources.at_end(lambda: self._window.leave(seat))
        self._evaluation = evaluation(name, node, seat, resources, one_group=not seat.has_slots)
        self._policy = policy_for(node.window, resources.rows_before(node.input))
        self._drain = node.emission.drain
        self._lag = 0 if isinstance(node.window.slide, TimeSlide) else 1
        self._none = Run(0, np.empty(0, np.int32), seat.no_columns())

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> Progress:
        return Progress(self._window.process(self._seat, chunk, watermark), watermark - self._lag)

    def finish(self, last_time: int | None = None) -> list[Chunk]:
        end = self._policy.last_boundary(self._drain, last_time)
        return [] if end is None else self._window.pass_time(self._seat, end)

    def _enter(self, entered: Entered, watermark: int) -> list[Chunk]:
        """Rows have entered the shared window, and the stream has reached this time."""
        results: list[Chunk] = []
        self._policy.observe(entered.stream_times)
        added, arrivals, times = self._none, None, entered.times
        if len(times):
            name = self._seat.grouping.key.name
            slots = entered.slots[name]
            added = Run(entered.first, slots, tuple([entered.columns[column] for column in self._seat.names]))
            if self._evaluation.of_events:
                arrivals = Arrivals(slots, entered.keys[name], 0)
        done = 0
        while True:
            steps = self._policy.steps(times[done:] if done else times, entered.first + done, watermark)
            self._play(added.part(done, len(times)) if done else added, steps, arrivals, done, results)
            if steps.complete:
                return results
            done += int(steps.add_upto[-1])

    def _play(self, added: Run, steps: Steps, arrivals: Arrivals | None, offset: int, results: list[Chunk]) -> None:
        """Plays all steps, in turns where more rows leave than can be brought together. The step between two turns is
        played in two parts, and its evaluation waits for the second."""
        at = entered = 0
        while at < len(steps):
            leaving = self._leaving(steps, at)
            upto = at + len(leaving.left)
            evaluates, add_upto = steps.evaluates[at:upto], steps.add_upto[at:upto]
            if leaving.more:
                evaluates = evaluates.copy()
                evaluates[-1] = False
            within = add_upto - entered if entered else add_upto
            removed = self._removed(leaving)
            turn = Turn(added, removed, within, leaving.left, evaluates, leaving.starts, steps.window_end[at:upto])
            if arrivals is not None:
                arrivals = Arrivals(arrivals.slots, arrivals.keys, offset - 1 + int(add_upto[0]))
            results += self._evaluation.play(turn, arrivals)
            if leaving.columns:
                self._window.let_go(self._seat, leaving)
            if not leaving.more:
                return
            added = added.part(int(add_upto[-1]) - entered, len(added.slots))
            entered = int(add_upto[-1])
            at += len(leaving.left) - 1

    def _leaving(self, steps: Steps, at: int) -> Leaving:
        if self._seat.tail is not None:
            return self._seat.tail.leaving(steps, at)
        nothing = np.zeros(len(steps) - at, np.int64)
        return Leaving(0, (), nothing, steps.window_start[at:], False)

    def _removed(self, leaving: Leaving) -> Run:
        if not leaving.columns:
            return self._none
        columns, count = leaving.columns, len(self._seat.names)
        if self._seat.has_slots:
            return Run(leaving.first, columns[1].values, columns[2 : 2 + count])
        return Run(leaving.first, np.zeros(len(columns[0].values), np.int32), columns[1 : 1 + count])

    def snapshot(self) -> dict[str, Any]:
        return {
            "window": self._window.snapshot() if self._is_own else None,
            "policy": self._policy.snapshot(),
            "evaluation": self._evaluation.snapshot(),
            "position": self._seat.position,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """A window that is shared has been restored before."""
        if self._is_own:
            self._window.restore(snapshot["window"])
        self._policy.restore(snapshot["policy"])
        self._evaluation.restore(snapshot["evaluation"])
        self._seat.seek(snapshot["position"])
