"""In which order the events of a stream arrive: what decides which of them are late beyond LATENESS."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.lang.query import StreamDef

UNKNOWN = "unknown (a DataFrame): which events beyond LATENESS are late depends on the run"


def describe_arrival(streams: Iterable[StreamDef]) -> list[str]:
    """A line for each stream."""
    return [f"stream {stream.name}, arrival order: {_order(stream)}" for stream in streams]


def _order(stream: StreamDef) -> str:
    if stream.arrival:
        return "that of its events, which are taken as they come; refused on Spark"
    if stream.uri is None:
        return f"as pushed; on Spark {UNKNOWN}"
    if stream.uri in ("-", "stdin:"):
        return "as the lines come; not on Spark"
    if stream.uri.startswith("generate:"):
        return "as generated"
    return "files by name, rows by place"
