"""What of a checkpoint an app would take up: one line for each stream, table and query. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.components import read_as
from penstock.engine.checkpoint import APP, changes_of, new_columns, read_state
from penstock.engine.flow import Flow
from penstock.engine.saved_queries import SavedQueries
from penstock.engine.saved_state import SavedState, read_saved
from penstock.engine.stream_input import StreamInput
from penstock.engine.tables.tables import TableSet, table_fingerprint
from penstock.errors import CheckpointError, InputError
from penstock.lang.query import Program, StreamDef
from penstock.lang.table_defs import TableDef
from penstock.plan.build import build
from penstock.plan.columns import needed_columns
from penstock.plan.nodes import Node


def explain_kept(program: Program, directory: Path) -> str:
    """For the checkpoint of an embedded app."""
    if (directory / "offsets").is_dir():
        raise InputError(
            f"{directory} is a checkpoint of Spark; an application on Spark tells at its start what begins afresh"
        )
    saved = read_state(directory)
    if saved is None:
        raise CheckpointError(f"{directory} has no checkpoint yet: everything begins anew")
    state = APP.read(saved.tree["state"])
    nodes = {query.name: build(query.body) for query in program.queries}
    lines = [*_streams(program, nodes, state), *_tables(program, state), *_queries(program, nodes, state)]
    return "\n".join([f"with the checkpoint in {directory}:", *(f"  {line}" for line in lines)])


def _streams(program: Program, nodes: Mapping[str, Node], state: dict[str, Any]) -> Iterator[str]:
    saved = read_saved(state).streams
    for stream in program.streams:
        if stream.name not in state["declared"]:
            yield f"stream {stream.name}: begins anew, it is not in the checkpoint"
            continue
        changes = changes_of(state["declared"][stream.name], stream)
        if changes:
            yield f"stream {stream.name}: REFUSED, {', '.join(changes)}"
            continue
        waiting = saved[stream.name].waiting
        came = new_columns(state["declared"][stream.name], stream)
        unknown = _unknown(stream, program, nodes, state, came) if waiting else []
        if unknown:
            yield (
                f"stream {stream.name}: REFUSED, events that wait to be put in order ({waiting:,}) have no "
                f"{', '.join(unknown)}; start once without the queries that read it"
            )
        elif came:
            yield f"stream {stream.name}: kept whole; {', '.join(came)} came, and is NULL in events that wait"
        else:
            yield f"stream {stream.name}: kept whole"
    for name in state["declared"].keys() - {stream.name for stream in program.streams}:
        yield f"stream {name}: forgotten, it is not in the program"


def _unknown(
    stream: StreamDef, program: Program, nodes: Mapping[str, Node], state: dict[str, Any], came: list[str]
) -> list[str]:
    """Columns that events which wait should have and do not."""
    held = read_as(StreamInput, state["streams"][stream.name])["columns"]
    optional = [name for name in came if (field := stream.schema.find(name)) is not None and field.nullable]
    needed = needed_columns(stream, nodes.values(), program.writes)
    return [name for name in needed if name not in held and name not in optional]


def _tables(program: Program, state: dict[str, Any]) -> Iterator[str]:
    saved = read_as(TableSet, read_as(Flow, state["flow"])["tables"])
    for table in program.tables:
        yield f"table {table.name}: {_table(table, saved.get(table.name), program)}"
    for name in saved.keys() - {table.name for table in program.tables}:
        yield f"table {name}: forgotten, it is not in the program"


def _table(table: TableDef, saved: dict[str, Any] | None, program: Program) -> str:
    if not any(write.table == table.name for write in program.writes):
        return "is loaded anew, no stream writes it"
    if saved is None:
        return "begins anew, it is not in the checkpoint"
    if saved["fingerprint"] != table_fingerprint(table):
        return "REFUSED, its columns or its key have changed"
    return "kept whole"


def _queries(program: Program, nodes: Mapping[str, Node], state: dict[str, Any]) -> Iterator[str]:
    queries = SavedQueries(read_as(Flow, state["flow"]))
    figures = read_saved(state)
    for query in program.queries:
        if queries.of(query, nodes[query.name]) is not None:
            yield f"query {query.name}: kept whole, {_held(figures, query.name)}"
        elif query.name in queries.queries:
            yield (
                f"query {query.name}: begins anew, it computes something else than the saved one; "
                f"{_held(figures, query.name)} are not taken over"
            )
        else:
            yield f"query {query.name}: begins anew, it is not in the checkpoint"
    for name in queries.queries.keys() - {query.name for query in program.queries}:
        yield f"query {name}: forgotten, it is not in the program; {_held(figures, name)} go"


def _held(figures: SavedState, name: str) -> str:
    query = figures.queries[name]
    return f"{query.rows:,} rows and {query.groups:,} groups"
