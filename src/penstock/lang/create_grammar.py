"""The grammar of declarations: CREATE STREAM and CREATE SINK, after these two words.

CREATE STREAM calls (
    t TIMESTAMP, agent INT NOT NULL, seconds DOUBLE,
    EVENT TIME t LATENESS 10 SECONDS SEQUENCE id IDLE AFTER 1 MINUTE
) FROM 'calls/*.parquet' WITH ('follow' = 'true') LATE INTO late_calls

CREATE STREAM requests (id INT, t TIMESTAMP, came TIMESTAMP, ARRIVAL ORDER t ARRIVED came)
"""

from __future__ import annotations

from penstock.lang.dialect import TYPE_NAMES, Kind
from penstock.lang.durations import UNITS, duration
from penstock.lang.places import Span
from penstock.lang.stream_options import HEARTBEAT
from penstock.lang.syntax import ColumnSyntax, CreateSink, CreateStream
from penstock.lang.window_grammar import WindowParser

Options = tuple[tuple[str, str], ...]


class CreateParser(WindowParser):
    """Windows and expressions plus declarations."""

    def create_stream(self) -> CreateStream:
        said = CreateStream(self.name("the name of the stream"))
        columns = self.enclosed(lambda: None if self.stream_properties(said) else self.column(), "'(' and the columns")
        said.columns = tuple(filter(None, columns))
        while self.token.kind is not Kind.END:
            if said.uri is None and self.take("FROM"):
                said.uri = self.string("a quoted address, such as 'events.parquet'")
            elif not said.options and self.take("WITH"):
                start = self.last.start
                said.options = self.options()
                if self.has_heartbeat(said.options, self.span_since(start)):
                    said.of_event_time.append(("a heartbeat", self.span_since(start)))
            elif not self.stream_properties(said):
                self.unexpected("FROM 'uri', WITH (...), LATE INTO name or the end of the statement")
        if said.arrival and said.of_event_time:
            what, span = said.of_event_time[0]
            self.refuse(
                f"{what} is for streams with EVENT TIME: in ARRIVAL ORDER nothing is put in order, so nothing is late",
                span,
                f"leave {what} out, or write EVENT TIME",
            )
        return said

    def has_heartbeat(self, options: Options, span: Span) -> bool:
        """Whether there is the one option that says something of the stream, and not of how its source is read."""
        text = {key.lower(): value for key, value in options}.get(HEARTBEAT)
        if text is not None and not duration(text):
            self.refuse(f"the heartbeat '{text}' is no length of time", span, "write 'heartbeat' = '1 SECOND'")
        return text is not None

    def create_sink(self) -> CreateSink:
        name = self.name("the name of the sink")
        self.expect("TO", "TO and a quoted address")
        uri = self.string("a quoted address, such as 'results.jsonl'")
        return CreateSink(name, uri, self.options() if self.take("WITH") else ())

    def column(self) -> ColumnSyntax:
        name = self.name("a column")
        type_ = self.sql_type()
        not_null = self.take("NOT")
        if not self.take("NULL") and not_null:
            self.unexpected("NULL")
        return ColumnSyntax(name, type_, not not_null)

    def stream_properties(self, said: CreateStream) -> bool:
        """Takes as many properties as follow; False if none does."""
        taken = False
        while self.stream_property(said):
            taken = True
        return taken

    def stream_property(self, said: CreateStream) -> bool:
        """`sequence BIGINT` declares a column, `SEQUENCE id` a property: a type name tells them apart."""
        start = self.token.start
        if self.take("EVENT", "TIME"):
            self.time_column(said, "EVENT TIME", start)
            return True
        if self.take("ARRIVAL", "ORDER"):
            self.time_column(said, "ARRIVAL ORDER", start)
            said.arrival = True
            said.arrived = self.name("the column of ARRIVED") if self.take("ARRIVED") else None
            return True
        if self.at("LATENESS") and (self.peek().kind is Kind.NUMBER or self.peek().word == "INTERVAL"):
            self.advance()
            self.once(said.lateness is None, what := "LATENESS", start)
            said.lateness = self.lateness()
        elif self.peek().is_name and self.peek().word not in TYPE_NAMES and self.take("SEQUENCE"):
            self.once(said.sequence is None, what := "SEQUENCE", start)
            said.sequence = self.name("the column of SEQUENCE")
        elif self.take("IDLE", "AFTER"):
            self.once(said.idle_after is None, what := "IDLE AFTER", start)
            said.idle_after = self.duration("the time of IDLE AFTER")
        elif self.take("LATE", "INTO"):
            self.once(said.late_into is None, what := "LATE INTO", start)
            said.late_into = self.name("a name for the late events")
        else:
            return False
        said.of_event_time.append((what, self.span_since(start)))
        return True

    def time_column(self, said: CreateStream, what: str, start: int) -> None:
        if said.event_time is not None and said.arrival != (what == "ARRIVAL ORDER"):
            self.refuse("a stream has EVENT TIME or ARRIVAL ORDER, and not both", self.span_since(start))
        self.once(said.event_time is None, what, start)
        said.event_time = self.name(f"the column of {what}")
        if self.take("UNIT"):
            unit_start = self.token.start
            said.time_unit = UNITS[self.unit()], self.span_since(unit_start)

    def lateness(self) -> int:
        number = self.token
        if number.kind is not Kind.NUMBER or number.text != "0":
            return self.duration("the LATENESS")
        self.advance()
        if self.token.kind is not Kind.END and not self.at(",", ")"):
            self.unit()
        return 0

    def once(self, first: bool, what: str, start: int) -> None:
        if not first:
            self.refuse(f"{what} is given twice", self.span_since(start))

    def options(self) -> Options:
        """`('key' = 'value', ...)`; keys are told apart by their exact text."""
        seen: set[str] = set()

        def option() -> tuple[str, str]:
            key = self.expect_kind(Kind.STRING, "a quoted option")
            self.expect("=")
            if key.text in seen:
                self.refuse(f"the option '{key.text}' is given twice", key.span)
            seen.add(key.text)
            return key.text, self.string("a quoted value")

        return self.enclosed(option, "'(' after WITH")
