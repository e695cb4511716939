"""Sources and sinks: what lies outside an app, and the runner that ties both to it."""

from penstock.connect.opening import open_sink, open_source
from penstock.connect.tables import open_files
from penstock.engine.tables.sources import register

__all__ = ["open_sink", "open_source"]

register(open_files)
