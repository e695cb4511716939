"""The progress of a stream as one bucket knows it: the least and greatest event time in all buckets.

Why: docs/decisions/spark-own-time.md
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.spark.arrival import NO_TIES, Ties


@dataclass(frozen=True)
class Clock:
    """`first` and `last` are None until the stream has had an event. `ties` is of streams that know the order in which
    their events come.

    >>> clock = Clock().advanced(5, 9).advanced(3, 7)
    >>> clock.first, clock.last, clock.watermark(lateness=2)
    (3, 9, 6)
    """

    first: int | None = None
    last: int | None = None
    ties: Ties = field(default=NO_TIES, compare=False)

    def advanced(self, t_min: int, t_max: int) -> Clock:
        """The clock after a clock row."""
        first = t_min if self.first is None else min(self.first, t_min)
        last = t_max if self.last is None else max(self.last, t_max)
        return Clock(first, last, self.ties)

    def watermark(self, lateness: int) -> int | None:
        """The time up to which everything is here. The last moment itself is not: the next micro-batch may bring more
        events of the same time, and which come first is not for the micro-batch to say."""
        return None if self.last is None else self.last - lateness - 1
