"""What a window is: its extent, its slide and its modifiers.

    [RANGE r SLIDE s]          Range(r),   TimeSlide(s)     at every multiple b of s: times in [b-r, b)
    [RANGE r]                  Range(r),   EveryEvent()     at every event e: (e.t-r, e.t]
    [NOW]                      Range(1),   EveryEvent()     events with e's own time
    [ROWS n SLIDE m]           Rows(n),    CountSlide(m)    at every m-th event: the last n
    [ROWS n]                   Rows(n),    EveryEvent()
    [RANGE r SLIDE m ROWS]     Range(r),   CountSlide(m)
    [ROWS n SLIDE 10 SECONDS]  Rows(n),    TimeSlide(10 s)  at b: the last n with t < b
    [PARTITION BY k ROWS n ..] ..., partition_by=("k",)     as if each k had a stream of its own
    [PARTITION BY k, n ROWS n] RowsOf("n"), ...             the number of rows is the partition's own
    [SINCE t SLIDE s]          Since(t),   TimeSlide(s)     at b: times in [t, b)
    [SESSION gap]              Session(gap), AtClose()      when the watermark passes the last event + gap
    [RATE SIZED d]             RateSized(d, ..), EveryEvent()   the last n, n being the events of d at the present rate

All durations and times are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Range:
    micros: int


@dataclass(frozen=True)
class Rows:
    count: int


@dataclass(frozen=True)
class RowsOf:
    """As many rows as a column of PARTITION BY says: each partition has a number of its own."""

    column: str


@dataclass(frozen=True)
class Since:
    time: int


@dataclass(frozen=True)
class Session:
    gap: int


@dataclass(frozen=True)
class RateSized:
    """A window of a join that counts rows: as many as come in `micros` at the rate of the last `sample` microseconds,
    looked at every `every`. The size changes when the rate asks for one that differs by more than `percent`."""

    micros: int
    sample: int
    every: int
    percent: int = 0

    MOST_SLOTS: ClassVar[int] = 1024
    """`sample` is a multiple of `every`, at most so many times."""

    @classmethod
    def tuned(cls, micros: int, sample: int | None = None, every: int | None = None, percent: int = 0) -> RateSized:
        """What is not said is what measurements speak for (docs/rate-sizing.md): samples as long as the window, a
        hundred times in that time, and every change counts.

        >>> RateSized.tuned(10_000_000)
        RateSized(micros=10000000, sample=10000000, every=100000, percent=0)
        """
        if every is None:
            every = max(micros // 100, 1) if sample is None else next(sample // p for p in _PARTS if sample % p == 0)
        if sample is None:
            sample = every * max(1, round(micros / every))
        return cls(micros, sample, every, percent)


_PARTS = (100, 50, 25, 20, 10, 5, 4, 2, 1)

Extent = Range | Rows | RowsOf | Since | Session | RateSized


@dataclass(frozen=True)
class TimeSlide:
    """Boundaries are the multiples of `micros` since the epoch, plus `offset` (0 <= offset < micros)."""

    micros: int
    offset: int = 0
    wall_clock: bool = False


@dataclass(frozen=True)
class CountSlide:
    count: int


@dataclass(frozen=True)
class EveryEvent:
    """An evaluation at each event; the default result is the row of the event's own group."""


@dataclass(frozen=True)
class AtClose:
    """An evaluation when a session closes."""


Slide = TimeSlide | CountSlide | EveryEvent | AtClose


@dataclass(frozen=True)
class WindowSpec:
    extent: Extent
    slide: Slide
    partition_by: tuple[str, ...] = ()
    when_full: bool = False

    @property
    def is_tumbling(self) -> bool:
        """Range windows whose slide equals their extent: every event is in exactly one evaluation."""
        return (
            isinstance(self.extent, Range)
            and isinstance(self.slide, TimeSlide)
            and self.extent.micros == self.slide.micros
        )

    @property
    def counts_before_where(self) -> bool:
        """Whether events that fail WHERE still take part in counting (contract, rule 4)."""
        return isinstance(self.extent, Rows | RowsOf | RateSized) or isinstance(self.slide, CountSlide)


def first_boundary_after(time: int, slide: TimeSlide) -> int:
    """The least boundary b with b > time: the first evaluation that can see an event at `time`.

    >>> first_boundary_after(9, TimeSlide(10)), first_boundary_after(10, TimeSlide(10))
    (10, 20)
    """
    return (time - slide.offset) // slide.micros * slide.micros + slide.micros + slide.offset


def last_boundary_upto(time: int, slide: TimeSlide) -> int:
    """The greatest boundary b with b <= time."""
    return (time - slide.offset) // slide.micros * slide.micros + slide.offset
