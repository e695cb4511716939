"""Sources and sinks: what lies outside an app, and the runner that ties both to it."""

from penstock.connect.opening import open_sink, open_source

__all__ = ["open_sink", "open_source"]
