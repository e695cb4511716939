"""The grammar of declarations: CREATE STREAM and CREATE SINK, after these two words.

CREATE STREAM calls (
    t TIMESTAMP, agent INT NOT NULL, seconds DOUBLE,
    EVENT TIME t LATENESS 10 SECONDS SEQUENCE id IDLE AFTER 1 MINUTE
) FROM 'calls/*.parquet' WITH ('follow' = 'true') LATE INTO late_calls

CREATE STREAM requests (id INT, t TIMESTAMP, came TIMESTAMP, ARRIVAL ORDER t ARRIVED came)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot.tokenizer_core import TokenType

from penstock.lang.dialect import TYPE_NAMES
from penstock.lang.durations import UNITS, duration
from penstock.lang.places import Span
from penstock.lang.stream_options import HEARTBEAT
from penstock.lang.syntax import ColumnSyntax, CreateSink, CreateStream, Name
from penstock.lang.window_grammar import WindowParser

Options = tuple[tuple[str, str], ...]


@dataclass
class _Properties:
    """What is said about a stream besides its columns, collected in the order it is written."""

    event_time: Name | None = None
    time_unit: tuple[int, Span] | None = None
    lateness: int | None = None
    sequence: Name | None = None
    idle_after: int | None = None
    late_into: Name | None = None
    arrival: bool = False
    arrived: Name | None = None
    of_event_time: list[tuple[str, Span]] = field(default_factory=list)
    """What only a stream that is put in order can have, where it was said."""


class CreateParser(WindowParser):
    """Windows and expressions plus declarations."""

    def create_stream(self) -> CreateStream:
        name = self.name("the name of the stream")
        self.expect(TokenType.L_PAREN, "'(' and the columns")
        columns: list[ColumnSyntax] = []
        properties = _Properties()
        while True:
            if not self.stream_properties(properties):
                columns.append(self.column())
            if not self._match(TokenType.COMMA):
                break
        self.expect(TokenType.R_PAREN, "',' or ')'")
        uri: str | None = None
        options: Options | None = None
        while self._curr:
            if uri is None and self._match(TokenType.FROM):
                uri = self.string("a quoted address, such as 'events.parquet'")
            elif options is None and self._match(TokenType.WITH):
                start = self._prev.start if self._prev else 0
                options = self.options()
                if self.has_heartbeat(options, self.span_since(start)):
                    properties.of_event_time.append(("a heartbeat", self.span_since(start)))
            elif not self.stream_properties(properties):
                self.unexpected("FROM 'uri', WITH (...), LATE INTO name or the end of the statement")
        if properties.arrival and properties.of_event_time:
            what, span = properties.of_event_time[0]
            self.refuse(
                f"{what} is for streams with EVENT TIME: in ARRIVAL ORDER nothing is put in order, so nothing is late",
                span,
                f"leave {what} out, or write EVENT TIME",
            )
        return CreateStream(
            name, tuple(columns), properties.event_time, properties.time_unit, properties.lateness or 0,
            properties.sequence, properties.idle_after, properties.late_into, uri, options or (),
            properties.arrival, properties.arrived,
        )  # fmt: skip

    def has_heartbeat(self, options: Options, span: Span) -> bool:
        """Whether there is the one option that says something of the stream, and not of how its source is read."""
        text = {key.lower(): value for key, value in options}.get(HEARTBEAT)
        if text is not None and not duration(text):
            self.refuse(f"the heartbeat '{text}' is no length of time", span, "write 'heartbeat' = '1 SECOND'")
        return text is not None

    def create_sink(self) -> CreateSink:
        name = self.name("the name of the sink")
        if not self.take("TO"):
            self.unexpected("TO and a quoted address")
        uri = self.string("a quoted address, such as 'results.jsonl'")
        return CreateSink(name, uri, self.options() if self._match(TokenType.WITH) else ())

    def column(self) -> ColumnSyntax:
        name = self.name("a column")
        type_ = self.sql_type()
        nullable = True
        if self._match(TokenType.NOT):
            self.expect(TokenType.NULL, "NULL")
            nullable = False
        else:
            self._match(TokenType.NULL)
        return ColumnSyntax(name, type_, nullable)

    def stream_properties(self, said: _Properties) -> bool:
        """Takes as many properties as follow; False if none does."""
        taken = False
        while self.stream_property(said):
            taken = True
        return taken

    def stream_property(self, said: _Properties) -> bool:
        start = self._curr.start if self._curr else 0
        if self.take("EVENT", "TIME"):
            self.time_column(said, "EVENT TIME", start)
        elif self.take("ARRIVAL", "ORDER"):
            self.time_column(said, "ARRIVAL ORDER", start)
            said.arrival = True
            if self.take("ARRIVED"):
                said.arrived = self.name("the column of ARRIVED")
        elif self.takes_unambiguously("LATENESS", TokenType.NUMBER, TokenType.INTERVAL):
            self.once(said.lateness is None, "LATENESS", start)
            said.lateness = self.lateness()
            said.of_event_time.append(("LATENESS", self.span_since(start)))
        elif self._next.token_type in self.ID_VAR_TOKENS and not self.is_column_ahead() and self.take("SEQUENCE"):
            self.once(said.sequence is None, "SEQUENCE", start)
            said.sequence = self.name("the column of SEQUENCE")
            said.of_event_time.append(("SEQUENCE", self.span_since(start)))
        elif self.take("IDLE", "AFTER"):
            self.once(said.idle_after is None, "IDLE AFTER", start)
            said.idle_after = self.duration("the time of IDLE AFTER")
            said.of_event_time.append(("IDLE AFTER", self.span_since(start)))
        elif self.take("LATE", "INTO"):
            self.once(said.late_into is None, "LATE INTO", start)
            said.late_into = self.name("a name for the late events")
            said.of_event_time.append(("LATE INTO", self.span_since(start)))
        else:
            return False
        return True

    def time_column(self, said: _Properties, what: str, start: int) -> None:
        if said.event_time is not None and said.arrival != (what == "ARRIVAL ORDER"):
            self.refuse("a stream has EVENT TIME or ARRIVAL ORDER, and not both", self.span_since(start))
        self.once(said.event_time is None, what, start)
        said.event_time = self.name(f"the column of {what}")
        if self.take("UNIT"):
            unit_start = self._curr.start if self._curr else 0
            said.time_unit = UNITS[self.unit()], self.span_since(unit_start)

    def lateness(self) -> int:
        zero = self._match(TokenType.NUMBER, advance=False) and self._curr.text == "0"
        if not zero:
            return self.duration("the LATENESS")
        self._advance()
        if self._curr and self._curr.token_type not in (TokenType.COMMA, TokenType.R_PAREN):
            self.unit()
        return 0

    def takes_unambiguously(self, word: str, *following: TokenType) -> bool:
        """Takes a word that may also be a column's name only where what follows can be no type."""
        return self._next.token_type in following and self.take(word)

    def is_column_ahead(self) -> bool:
        """`sequence BIGINT` declares a column, `SEQUENCE id` a property: a type name tells them apart."""
        return bool(self._next) and self._next.text.upper() in TYPE_NAMES

    def once(self, first: bool, what: str, start: int) -> None:
        if not first:
            self.refuse(f"{what} is given twice", self.span_since(start))

    def string(self, wanted: str) -> str:
        return self.expect(TokenType.STRING, wanted).text

    def options(self) -> Options:
        """`('key' = 'value', ...)`; keys are told apart by their exact text."""
        self.expect(TokenType.L_PAREN, "'(' after WITH")
        found: dict[str, str] = {}
        while True:
            key = self.expect(TokenType.STRING, "a quoted option")
            self.expect(TokenType.EQ, "'='")
            if key.text in found:
                self.refuse(f"the option '{key.text}' is given twice", self.span_of_token(key))
            found[key.text] = self.string("a quoted value")
            if not self._match(TokenType.COMMA):
                break
        self.expect(TokenType.R_PAREN, "',' or ')'")
        return tuple(found.items())
