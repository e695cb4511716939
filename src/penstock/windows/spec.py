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

Extents, slides and windows answer what binder, planner and operators ask of them. An extent or slide that says nothing
to a question gives the careful answer: such a window is not shared, merged, joined or drained. Code that must do
something else for each kind uses `match` over `Extent` or `Slide` and ends with `assert_never`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


class _Extent:
    """What is asked of every extent."""

    counts_rows: ClassVar[bool] = False
    """How many rows have come decides which are in it, so rows that fail WHERE take part (contract, rule 4)."""
    is_told_by_times: ClassVar[bool] = False
    """The times of events alone decide which are in it: each part of a stream can tell for its own events."""
    can_share_rows: ClassVar[bool] = False
    """Its rows may lie in one store with those of other windows over the same stream."""
    can_be_joined: ClassVar[bool] = False
    """It may be a window of a join; `operators.joins.windows` has an implementation."""
    closes: ClassVar[bool] = False
    """It ends as a whole and begins anew, whatever the slide."""

    @property
    def length(self) -> int | None:
        """The microseconds that a window of a fixed stretch of time spans."""
        return None

    @property
    def limit(self) -> int | None:
        """The number of rows that a window of a fixed number holds."""
        return None

    @property
    def since(self) -> int | None:
        """The time at which a window begins once and for all."""
        return None


@dataclass(frozen=True)
class Range(_Extent):
    micros: int

    is_told_by_times = can_share_rows = can_be_joined = True

    @property
    def length(self) -> int:
        return self.micros


@dataclass(frozen=True)
class Rows(_Extent):
    count: int

    counts_rows = can_share_rows = can_be_joined = True

    @property
    def limit(self) -> int:
        return self.count


@dataclass(frozen=True)
class RowsOf(_Extent):
    """As many rows as a column of PARTITION BY says: each partition has a number of its own."""

    column: str

    counts_rows = True


@dataclass(frozen=True)
class Since(_Extent):
    time: int

    is_told_by_times = True

    @property
    def since(self) -> int:
        return self.time


@dataclass(frozen=True)
class Session(_Extent):
    gap: int

    closes = True


@dataclass(frozen=True)
class RateSized(_Extent):
    """A window of a join that counts rows: as many as come in `micros` at the rate of the last `sample` microseconds,
    looked at every `every`. The size changes when the rate asks for one that differs by more than `percent`."""

    micros: int
    sample: int
    every: int
    percent: int = 0

    MOST_SLOTS: ClassVar[int] = 1024
    """`sample` is a multiple of `every`, at most so many times."""

    counts_rows = can_be_joined = True

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


class _Slide:
    """What is asked of every slide."""

    is_per_event: ClassVar[bool] = False
    """There is an evaluation at each event."""

    @property
    def by_time(self) -> TimeSlide | None:
        """The slide itself if evaluations take place at boundaries of time."""
        return None

    @property
    def events(self) -> int | None:
        """The number of events from one evaluation to the next, if events say when there is one."""
        return None


@dataclass(frozen=True)
class TimeSlide(_Slide):
    """Boundaries are the multiples of `micros` since the epoch, plus `offset` (0 <= offset < micros)."""

    micros: int
    offset: int = 0
    wall_clock: bool = False

    @property
    def by_time(self) -> TimeSlide:
        return self


@dataclass(frozen=True)
class CountSlide(_Slide):
    count: int

    @property
    def events(self) -> int:
        return self.count


@dataclass(frozen=True)
class EveryEvent(_Slide):
    """An evaluation at each event; the default result is the row of the event's own group."""

    is_per_event = True

    @property
    def events(self) -> int:
        return 1


@dataclass(frozen=True)
class AtClose(_Slide):
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
        slide = self.time_slide
        return slide is not None and self.extent.length == slide.micros

    @property
    def time_slide(self) -> TimeSlide | None:
        """The slide if evaluations take place at boundaries of time."""
        return self.slide.by_time

    @property
    def is_per_event(self) -> bool:
        """Whether there is an evaluation at each event."""
        return self.slide.is_per_event

    @property
    def is_now(self) -> bool:
        """[NOW]: the events of the very microsecond."""
        return self.is_per_event and self.extent.length == 1

    @property
    def wall_clock_slide(self) -> TimeSlide | None:
        """The slide if its boundaries are those of the local clock."""
        slide = self.time_slide
        return slide if slide is not None and slide.wall_clock else None

    @property
    def counts_before_where(self) -> bool:
        """Whether events that fail WHERE still take part in counting (contract, rule 4)."""
        return self.extent.counts_rows or self.counts_events

    @property
    def counts_events(self) -> bool:
        """Whether an evaluation comes with every so many events."""
        return self.slide.events is not None and not self.is_per_event

    @property
    def is_sliced_by_time(self) -> bool:
        """Whether boundaries and the times of events alone say what each evaluation holds."""
        return self.extent.is_told_by_times and self.time_slide is not None

    @property
    def can_drain(self) -> bool:
        """Whether it empties as time goes on."""
        return self.extent.closes or (self.extent.length is not None and self.time_slide is not None)

    @property
    def can_share_rows(self) -> bool:
        """Whether its rows may lie in one store with those of other windows over the same stream. Windows that follow
        the local clock see rows at other times than the rest."""
        return self.extent.can_share_rows and not self.partition_by and self.wall_clock_slide is None

    @property
    def lag(self) -> int:
        """How many microseconds before the watermark results may still come: at every event they bear its time."""
        return 1 if self.time_slide is None else 0


def first_boundary_after(time: int, slide: TimeSlide) -> int:
    """The least boundary b with b > time: the first evaluation that can see an event at `time`.

    >>> first_boundary_after(9, TimeSlide(10)), first_boundary_after(10, TimeSlide(10))
    (10, 20)
    """
    return (time - slide.offset) // slide.micros * slide.micros + slide.micros + slide.offset


def last_boundary_upto(time: int, slide: TimeSlide) -> int:
    """The greatest boundary b with b <= time."""
    return (time - slide.offset) // slide.micros * slide.micros + slide.offset
