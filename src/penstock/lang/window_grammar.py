"""The grammar of windows and durations: `[RANGE 1 HOUR SLIDE 10 SECONDS OFFSET 5 SECONDS WHEN FULL]`.

What has no meaning (zero sizes, a slide that would skip events, an offset beyond the slide) is refused here, with the
place; names of partition columns are left to the binder.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.lang.durations import LONGEST, UNITS, VARIABLE_UNITS, exact, parse_timestamp, scale, singular
from penstock.lang.places import Span
from penstock.lang.scalar_grammar import ExpressionParser
from penstock.lang.syntax import Name, WindowSyntax
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

MOST_ROWS = 10**12

_RESERVED = frozenset({TokenType.NULL, TokenType.TRUE, TokenType.FALSE, TokenType.CASE, TokenType.ALL})
"""Words that always mean something else in an expression."""

FORMS = "[RANGE 1 HOUR SLIDE 1 MINUTE], [ROWS 100], [PARTITION BY k ROWS 100], [SESSION 5 MINUTES] or [NOW]"


class WindowParser(ExpressionParser):
    """Expressions plus durations and windows."""

    def name(self, wanted: str) -> Name:
        """An identifier, quoted or not; words that SQL does not need may be names too."""
        token_type = self._curr.token_type
        usable = token_type == TokenType.IDENTIFIER or (
            token_type in self.ID_VAR_TOKENS and token_type not in _RESERVED
        )
        if not usable:
            a_word = bool(self._curr) and self._curr.text.isalpha() and token_type != TokenType.STRING
            self.unexpected(wanted, f"quote a name that is a word of SQL: `{self._curr.text}`" if a_word else None)
        self._advance()
        return Name(self._prev.text, self.span_of_token(self._prev))

    def names(self, wanted: str) -> tuple[Name, ...]:
        names = [self.name(wanted)]
        while self._match(TokenType.COMMA):
            names.append(self.name(wanted))
        return tuple(names)

    def duration(self, wanted: str) -> int:
        """`1 HOUR 30 MINUTES`, `INTERVAL '1' HOUR` or `INTERVAL '1 hour 30 minutes'`, at least one microsecond."""
        start = self._curr.start if self._curr else 0
        micros = (
            self.interval_micros() if self._match(TokenType.INTERVAL, advance=False) else self.counted_units(wanted)
        )
        span = self.span_since(start)
        if micros <= 0:
            self.refuse(f"{wanted} must be longer than zero", span)
        if micros > LONGEST:
            self.refuse(f"{wanted} is longer than 100,000 years", span, "write a shorter one, or [SINCE t SLIDE s]")
        return micros

    def counted_units(self, wanted: str) -> int:
        if self._match(TokenType.DASH, advance=False):
            self.refuse(f"{wanted} must be longer than zero", self.span_of_token(self._curr))
        total = 0
        while True:
            number = self.expect(TokenType.NUMBER, f"{wanted}, such as 10 SECONDS")
            total += self.in_micros(number.text, self.span_of_token(number), self.unit())
            if not self._match(TokenType.NUMBER, advance=False):
                return total

    def unit(self) -> str:
        unit = singular(self._curr.text) if self._curr else ""
        if unit in VARIABLE_UNITS:
            self.refuse(
                f"{self._curr.text.upper()} has no fixed length",
                self.span_of_token(self._curr),
                f"write days instead, such as {VARIABLE_UNITS[unit]} DAYS",
            )
        if unit not in UNITS:
            self.unexpected("a unit of time", f"the units are {', '.join(UNITS)} and their plurals")
        self._advance()
        return unit

    def in_micros(self, number: str, span: Span, unit: str) -> int:
        micros = scale(number, unit)
        if micros is None:
            shown = number if len(number) <= 40 else f"{number[:40]}..."
            if exact(number) is None:
                self.refuse(f"'{shown}' is no number of {unit}S", span, "write for example 10, 1.5 or 30E6")
            self.refuse(f"{shown} {unit} is no whole number of microseconds", span, "write a smaller unit")
        return micros

    def interval_micros(self) -> int:
        """After the word INTERVAL: the number may be quoted, and the quotes may hold the units too."""
        self._advance()
        total = 0
        while self._match_set((TokenType.STRING, TokenType.NUMBER)):
            token, span = self._prev, self.span_of_token(self._prev)
            words = token.text.split()
            if len(words) == 1:
                total += self.in_micros(words[0], span, self.unit())
                continue
            if len(words) % 2 or not words:
                self.refuse("this is no interval", span, "write INTERVAL '1' HOUR or INTERVAL '1 hour 30 minutes'")
            for number, unit in zip(words[::2], map(singular, words[1::2]), strict=True):
                if unit not in UNITS:
                    days = VARIABLE_UNITS.get(unit)
                    hint = f"write days instead, such as '{days} days'" if days else f"the units are {', '.join(UNITS)}"
                    self.refuse(f"{unit} is no unit of fixed length", span, hint)
                total += self.in_micros(number, span, unit)
        return total

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        if self._curr.token_type == TokenType.INTERVAL and self._next.token_type in (
            TokenType.STRING,
            TokenType.NUMBER,
        ):
            return self.interval_literal(self._curr.start)
        return super()._parse_type(parse_interval, fallback_to_identifier)

    def interval_literal(self, start: int) -> exp.Expr:
        micros = self.interval_micros()
        if abs(micros) > LONGEST:
            self.refuse("an interval is at most 100,000 years", self.span_since(start))
        return self.with_span(exp.Interval(this=exp.Literal.number(micros)), start)

    def count(self, wanted: str) -> int:
        """A whole number of rows, at least one."""
        if self._match(TokenType.DASH, advance=False):
            self.refuse(f"{wanted} must be at least 1", self.span_of_token(self._curr))
        token = self.expect(TokenType.NUMBER, wanted)
        count = exact(token.text)
        if count is None or count.denominator != 1:
            self.refuse(f"{wanted} must be a whole number", self.span_of_token(token))
        if not 1 <= count <= MOST_ROWS:
            self.refuse(f"{wanted} must be between 1 and {MOST_ROWS}", self.span_of_token(token))
        return int(count)

    def window(self) -> WindowSyntax:
        """A window, its opening bracket being next."""
        start = self.expect(TokenType.L_BRACKET, "'['").start
        partition_by = self.names("a column of PARTITION BY") if self._match(TokenType.PARTITION_BY) else ()
        whole = not partition_by and self._match_text_seq("SLIDE", advance=False)
        extent, slide = self.of_a_table() if whole else self.extent()
        offset: tuple[int, Span] | None = None
        wall_clock: Span | None = None
        when_full: Span | None = None
        while not self._match(TokenType.R_BRACKET):
            here = self._curr.start if self._curr else 0
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
            slide = self.default_slide(extent, span)
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
        return WindowSyntax(WindowSpec(extent, slide, (), bool(when_full)), partition_by, span, bool(whole))

    def of_a_table(self) -> tuple[Extent, Slide | None]:
        """`[SLIDE 1 MINUTE]`: all rows of a table, at every boundary. To the plan that is a window as long as its
        slide, which the table's rows enter at its end."""
        self.take("SLIDE")
        micros = self.duration("the SLIDE")
        return Range(micros), TimeSlide(micros)

    def call_suffixes(self, call: exp.Expr) -> exp.Expr:
        start = call.meta["start"]
        call = super().call_suffixes(call)
        if self._match(TokenType.OVER):
            call = self.with_span(exp.Window(this=call, over=exp.Literal.number(self.over_range())), start)
        return call

    def over_range(self) -> int:
        """Behind OVER stands how far an aggregate looks back; when it does is a matter of the window in FROM."""
        hint = "write AVG(x) OVER [RANGE 1 HOUR]; the SLIDE stands in FROM: FROM s [RANGE 1 DAY SLIDE 1 MINUTE]"
        self.expect(TokenType.L_BRACKET, "'[' after OVER", hint)
        if not self.take("RANGE"):
            self.unexpected("RANGE", hint)
        micros = self.duration("the RANGE")
        if not self._match(TokenType.R_BRACKET):
            self.unexpected("']'", hint)
        return micros

    def extent(self) -> tuple[Extent, Slide | None]:
        start = self._curr.start if self._curr else 0
        if self.take("RANGE"):
            return Range(self.duration("the RANGE")), None
        if self.take("ROWS") or self.take("ROW"):
            return self.rows(), None
        if self.take("NOW"):
            return Range(1), EveryEvent()
        if self.take("RATE", "SIZED"):
            return self.rate_sized(start), None
        if self.take("SESSION"):
            return Session(self.duration("the gap of SESSION")), AtClose()
        if self.take("SINCE"):
            self.take("TIMESTAMP")
            token = self.expect(TokenType.STRING, "a time, such as TIMESTAMP '2024-03-01 00:00:00'")
            time = parse_timestamp(token.text)
            if time is None:
                self.refuse("this is no timestamp", self.span_of_token(token), "write '2024-03-01 12:30:00'")
            return Since(time), None
        self.unexpected("RANGE, ROWS, NOW, SESSION, SINCE or RATE SIZED", f"windows look like {FORMS}")

    def rows(self) -> Rows | RowsOf:
        """After ROWS: a number, or the column of PARTITION BY that has it."""
        if self._match_set((TokenType.NUMBER, TokenType.DASH), advance=False):
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
            if not self.take("PERCENT"):
                self.unexpected("PERCENT")
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
        is_count = self._curr.token_type == TokenType.NUMBER and (
            self._next.token_type in (TokenType.ROWS, TokenType.ROW) or self.bare_count(extent)
        )
        if is_count:
            count = self.count("the SLIDE")
            if not self.take("ROWS"):
                self.take("ROW")
            return CountSlide(count)
        if self._curr.token_type == TokenType.NUMBER and not self._next.text.isalpha():
            number, span = self._curr.text[:20], self.span_of_token(self._curr)
            self.refuse("the SLIDE needs a unit", span, f"write SLIDE {number} SECONDS or SLIDE {number} ROWS")
        return TimeSlide(self.duration("the SLIDE"))

    def bare_count(self, extent: Extent) -> bool:
        """In [ROWS 100 SLIDE 10] the slide counts rows without saying so."""
        unit = singular(self._next.text) if self._next else ""
        return isinstance(extent, Rows) and unit not in UNITS and unit not in VARIABLE_UNITS

    def default_slide(self, extent: Extent, span: Span) -> Slide:
        if isinstance(extent, Since):
            self.refuse("a window SINCE a time needs a SLIDE", span, "write [SINCE TIMESTAMP '...' SLIDE 1 HOUR]")
        return EveryEvent()

    def check_sizes(self, extent: Extent, slide: Slide, span: Span) -> None:
        if isinstance(extent, RateSized) and not isinstance(slide, EveryEvent):
            self.refuse("a RATE SIZED window has no SLIDE", span, "leave it out: a join has results at every event")
        if isinstance(extent, Since) and not isinstance(slide, TimeSlide):
            self.refuse("a window SINCE a time slides by time", span, "write SLIDE 1 HOUR")
        if isinstance(extent, RowsOf) and isinstance(slide, CountSlide):
            self.refuse(
                "a window whose number of ROWS is a column has no SLIDE of rows",
                span,
                "leave the SLIDE out, or write one of time",
            )
        sizes = None
        if isinstance(extent, Range) and isinstance(slide, TimeSlide):
            sizes = extent.micros, slide.micros
        elif isinstance(extent, Rows) and isinstance(slide, CountSlide):
            sizes = extent.count, slide.count
        if sizes and sizes[1] > sizes[0]:
            kind = "RANGE" if isinstance(extent, Range) else "number of ROWS"
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
