"""The grammar of durations and counts: `1 HOUR 30 MINUTES`, `INTERVAL '1' HOUR`, the number of rows."""

from __future__ import annotations

from penstock.lang.cursor import Cursor
from penstock.lang.dialect import Kind
from penstock.lang.durations import LONGEST, UNITS, VARIABLE_UNITS, exact, scale, singular
from penstock.lang.places import Span

MOST_ROWS = 10**12


class DurationParser(Cursor):
    """Lengths of time, in microseconds, and numbers of rows."""

    def duration(self, wanted: str) -> int:
        """`1 HOUR 30 MINUTES`, `INTERVAL '1' HOUR` or `INTERVAL '1 hour 30 minutes'`, at least one microsecond."""
        start = self.token.start
        micros = self.interval_micros() if self.at("INTERVAL") else self.counted_units(wanted)
        span = self.span_since(start)
        if micros <= 0:
            self.refuse(f"{wanted} must be longer than zero", span)
        if micros > LONGEST:
            self.refuse(f"{wanted} is longer than 100,000 years", span, "write a shorter one, or [SINCE t SLIDE s]")
        return micros

    def counted_units(self, wanted: str) -> int:
        if self.at("-"):
            self.refuse(f"{wanted} must be longer than zero", self.token.span)
        total = 0
        while True:
            number = self.expect_kind(Kind.NUMBER, f"{wanted}, such as 10 SECONDS")
            total += self.in_micros(number.text, number.span, self.unit())
            if self.token.kind is not Kind.NUMBER:
                return total

    def unit(self) -> str:
        unit = singular(self.token.text)
        if unit in VARIABLE_UNITS:
            self.refuse(
                f"{self.token.text.upper()} has no fixed length",
                self.token.span,
                f"write days instead, such as {VARIABLE_UNITS[unit]} DAYS",
            )
        if unit not in UNITS:
            self.unexpected("a unit of time", f"the units are {', '.join(UNITS)} and their plurals")
        self.advance()
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
        self.advance()
        total = 0
        while self.token.kind in (Kind.STRING, Kind.NUMBER):
            token = self.advance()
            span, words = token.span, token.text.split()
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

    def count(self, wanted: str) -> int:
        """A whole number of rows, at least one."""
        if self.at("-"):
            self.refuse(f"{wanted} must be at least 1", self.token.span)
        token = self.expect_kind(Kind.NUMBER, wanted)
        count = exact(token.text)
        if count is None or count.denominator != 1:
            self.refuse(f"{wanted} must be a whole number", token.span)
        if not 1 <= count <= MOST_ROWS:
            self.refuse(f"{wanted} must be between 1 and {MOST_ROWS}", token.span)
        return int(count)
