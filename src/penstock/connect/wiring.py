"""What of a program goes where: its queries' results and its streams' late events, to sinks or to standard output."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import InputError
from penstock.lang.query import Program, SinkDef, columns_of


@dataclass(frozen=True)
class Output:
    """`name` is that of a query, or what LATE INTO says. Without a sink it is printed."""

    name: str
    schema: pa.Schema
    sink: SinkDef | None

    @property
    def printed(self) -> bool:
        return self.sink is None or self.sink.uri in ("-", "stdout:")


def outputs(program: Program) -> list[Output]:
    """In the order of the text; queries that feed a derived stream have none. Refuses a sink for unlike columns."""
    sinks = {sink.name: sink for sink in program.sinks}
    found = [
        Output(query.name, columns_of(query.body).arrow, None if query.into is None else sinks[query.into])
        for query in program.queries
        if query.into is None or query.into in sinks
    ]
    late = {stream.late_into.lower(): stream.schema.arrow for stream in program.streams if stream.late_into is not None}
    found += [Output(name, late[name.lower()], sink) for name, sink in sinks.items() if name.lower() in late]
    schemas: dict[str, pa.Schema] = {}
    for output in found:
        if output.sink is not None and schemas.setdefault(output.sink.name, output.schema) != output.schema:
            raise InputError(
                f"sink {output.sink.name}: its queries have different columns "
                f"({', '.join(schemas[output.sink.name].names)} and {', '.join(output.schema.names)}); "
                "give each a sink of its own"
            )
    return found
