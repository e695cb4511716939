"""What WITH says of a stream itself, beside what it says of how its source is read (`connect.opening`)."""

from __future__ import annotations

from penstock.lang.durations import duration
from penstock.lang.query import StreamDef

HEARTBEAT = "heartbeat"


def heartbeat_of(stream: StreamDef) -> int | None:
    """After how long a silence event time goes on with the local clock, in microseconds."""
    text = {key.lower(): value for key, value in stream.options}.get(HEARTBEAT)
    return None if text is None else duration(text)
