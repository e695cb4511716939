"""The progress of a stream as one bucket knows it: the least and greatest event time of all buckets, and the end."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.spark.packing import END_OF_TIME


@dataclass(frozen=True)
class Clock:
    """`first` and `last` are None until the stream has had an event.

    >>> clock = Clock().advanced(5, 9).advanced(3, 7)
    >>> clock.first, clock.last, clock.watermark(lateness=2), clock.ended
    (3, 9, 7, False)
    >>> clock.advanced(END_OF_TIME, END_OF_TIME).ended
    True
    """

    first: int | None = None
    last: int | None = None
    ended: bool = False

    def advanced(self, t_min: int, t_max: int) -> Clock:
        """The clock after a clock row."""
        if t_max == END_OF_TIME:
            return Clock(self.first, self.last, True)
        first = t_min if self.first is None else min(self.first, t_min)
        last = t_max if self.last is None else max(self.last, t_max)
        return Clock(first, last, self.ended)

    def watermark(self, lateness: int) -> int | None:
        return None if self.last is None else self.last - lateness
