"""The grammar of windows: `[RANGE 1 HOUR SLIDE 10 SECONDS OFFSET 5 SECONDS WHEN FULL]`.

What has no meaning (zero sizes, a slide that would skip events, an offset beyond the slide) is refused here, with the
place; names of partition columns are left to the binder.
"""

from __future__ import annotations

from penstock.lang.dialect import Kind
from penstock.lang.durations import UNITS, VARIABLE_UNITS, parse_timestamp, singular
from penstock.lang.places import Span
from penstock.lang.scalar_grammar import ExpressionParser
from penstock.lang.syntax import WindowSyntax
from penstock.windows.spec import (
    AtClose,
    CountSlide,
    EveryEvent,
    Extent,
    Range,
    RateSized,
    Rows,
    RowsOf,
    Session,
    Since,
    Slide,
    TimeSlide,
    WindowSpec,
)

FORMS = "[RANGE 1 HOUR SLIDE 1 MINUTE], [ROWS 100], [PARTITION BY k ROWS 100], [SESSION 5 MINUTES] or [NOW]"


class WindowParser(ExpressionParser):
    """Expressions plus windows."""

    def window(self) -> WindowSyntax:
        """A window, its opening bracket being next."""
        start = self.expect("[").start
        partition_by = self.names("a column of PARTITION BY") if self.take("PARTITION BY") else ()
        whole = not partition_by and self.at("SLIDE")
        extent, slide = self.extent(whole)
        offset: tuple[int, Span] | None = None
        wall_clock: Span | None = None
        when_full: Span | None = None
        while not self.take("]"):
            here = self.token.start
            if self.take("SLIDE"):
                if slide is not None:
                    self.refuse("this window cannot have a SLIDE, or not two", self.span_since(here))
                slide = self.slide(extent)
            elif offset is None and self.take("OFFSET"):
                offset = self.duration("the OFFSET"), self.span_since(here)
            elif wall_clock is None and self.take("ON", "WALL", "CLOCK"):
                wall_clock = self.span_since(here)
            elif when_full is None and self.take("WHEN", "FULL"):
                when_full = self.span_since(here)
            else:
                self.unexpected("']', SLIDE, OFFSET, ON WALL CLOCK or WHEN FULL")
        span = self.span_since(start)
        if slide is None:
            if isinstance(extent, Since):
                self.refuse("a window SINCE a time needs a SLIDE", span, "write [SINCE TIMESTAMP '...' SLIDE 1 HOUR]")
            slide = EveryEvent()
        self.check_sizes(extent, slide, span)
        slide = self.modified(slide, offset, wall_clock)
        if when_full and (
            not isinstance(extent, Range | Rows | RowsOf) or (extent == Range(1) and isinstance(slide, EveryEvent))
        ):
            self.refuse("WHEN FULL is for RANGE and ROWS windows", when_full)
        if isinstance(extent, RowsOf) and extent.column.lower() not in {name.text.lower() for name in partition_by}:
            self.refuse(
                f"the number of ROWS is '{extent.column}', which is no column of PARTITION BY",
                span,
                f"write [PARTITION BY k, {extent.column} ROWS {extent.column}], or a number",
            )
        if partition_by and not isinstance(extent, Rows | RowsOf | Session):
            self.refuse(
                "PARTITION BY is for ROWS and SESSION windows",
                span,
                "leave it out and write GROUP BY: a RANGE window holds the same events either way",
            )
        return WindowSyntax(WindowSpec(extent, slide, (), bool(when_full)), partition_by, span, whole)

    def extent(self, whole: bool) -> tuple[Extent, Slide | None]:
        """With `whole` all rows of a table, at every boundary: to the plan that is a window as long as its slide, which
        the table's rows enter at its end."""
        start = self.token.start
        if whole and self.take("SLIDE"):
            micros = self.duration("the SLIDE")
            return Range(micros), TimeSlide(micros)
        if self.take("RANGE"):
            return Range(self.duration("the RANGE")), None
        if self.take_one(("ROWS", "ROW")):
            return self.rows(), None
        if self.take("NOW"):
            return Range(1), EveryEvent()
        if self.take("RATE", "SIZED"):
            return self.rate_sized(start), None
        if self.take("SESSION"):
            return Session(self.duration("the gap of SESSION")), AtClose()
        if self.take("SINCE"):
            self.take("TIMESTAMP")
            token = self.expect_kind(Kind.STRING, "a time, such as TIMESTAMP '2024-03-01 00:00:00'")
            time = parse_timestamp(token.text)
            if time is None:
                self.refuse("this is no timestamp", token.span, "write '2024-03-01 12:30:00'")
            return Since(time), None
        self.unexpected("RANGE, ROWS, NOW, SESSION, SINCE or RATE SIZED", f"windows look like {FORMS}")

    def rows(self) -> Rows | RowsOf:
        """After ROWS: a number, or the column of PARTITION BY that has it."""
        if self.token.kind is Kind.NUMBER or self.at("-"):
            return Rows(self.count("the number of ROWS"))
        return RowsOf(self.name("the number of ROWS, or the column of PARTITION BY that has it").text)

    def rate_sized(self, start: int) -> RateSized:
        """After RATE SIZED: the duration and the settings of sampling."""
        micros = self.duration("the duration of RATE SIZED")
        sample = self.duration("the SAMPLE") if self.take("SAMPLE") else None
        every = self.duration("EVERY") if self.take("EVERY") else None
        percent = 0
        if self.take("ON", "CHANGE", "OF"):
            percent = self.count("the CHANGE in percent")
            self.expect("PERCENT")
        sized = RateSized.tuned(micros, sample, every, percent)
        span = self.span_since(start)
        if sized.sample % sized.every:
            self.refuse(
                "the SAMPLE must be a multiple of EVERY", span, "write for example SAMPLE 10 SECONDS EVERY 1 SECOND"
            )
        if sized.sample // sized.every > RateSized.MOST_SLOTS:
            self.refuse(
                f"a SAMPLE cannot be taken more than {RateSized.MOST_SLOTS:,} times in its own length",
                span,
                "make EVERY longer, or the SAMPLE shorter",
            )
        if percent > 1000:
            self.refuse("the CHANGE is at most 1000 PERCENT", span, "leave it out: then every change counts")
        return sized

    def slide(self, extent: Extent) -> Slide:
        if self.token.kind is Kind.NUMBER:
            if self.peek().word in ("ROWS", "ROW") or self.bare_count(extent):
                count = self.count("the SLIDE")
                self.take_one(("ROWS", "ROW"))
                return CountSlide(count)
            if not self.peek().text.isalpha():
                number, span = self.token.text[:20], self.token.span
                self.refuse("the SLIDE needs a unit", span, f"write SLIDE {number} SECONDS or SLIDE {number} ROWS")
        return TimeSlide(self.duration("the SLIDE"))

    def bare_count(self, extent: Extent) -> bool:
        """In [ROWS 100 SLIDE 10] the slide counts rows without saying so."""
        unit = singular(self.peek().text)
        return isinstance(extent, Rows) and unit not in UNITS and unit not in VARIABLE_UNITS

    def check_sizes(self, extent: Extent, slide: Slide, span: Span) -> None:
        match extent, slide:
            case RateSized(), TimeSlide() | CountSlide() | AtClose():
                self.refuse("a RATE SIZED window has no SLIDE", span, "leave it out: a join has results at every event")
            case Since(), CountSlide() | EveryEvent() | AtClose():
                self.refuse("a window SINCE a time slides by time", span, "write SLIDE 1 HOUR")
            case RowsOf(), CountSlide():
                self.refuse(
                    "a window whose number of ROWS is a column has no SLIDE of rows",
                    span,
                    "leave the SLIDE out, or write one of time",
                )
            case Range(size), TimeSlide(step):
                kind = "RANGE"
            case Rows(size), CountSlide(step):
                kind = "number of ROWS"
            case _:
                return
        if step > size:
            self.refuse(
                f"the SLIDE is longer than the {kind}: events between two windows would be in none",
                span,
                f"make the SLIDE at most the {kind}; equal, the windows tumble",
            )

    def modified(self, slide: Slide, offset: tuple[int, Span] | None, wall_clock: Span | None) -> Slide:
        if isinstance(slide, TimeSlide):
            if offset and offset[0] >= slide.micros:
                self.refuse("the OFFSET must be shorter than the SLIDE", offset[1])
            return TimeSlide(slide.micros, offset[0] if offset else 0, bool(wall_clock))
        if offset:
            self.refuse("OFFSET needs a SLIDE of time", offset[1], "write SLIDE 1 HOUR OFFSET 15 MINUTES")
        if wall_clock:
            self.refuse("ON WALL CLOCK needs a SLIDE of time", wall_clock, "write SLIDE 1 SECOND ON WALL CLOCK")
        return slide
