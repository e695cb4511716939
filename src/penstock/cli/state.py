"""`penstock state DIR`: what a checkpoint directory holds, as tables or as JSON; nothing in it is changed."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.engine.inspect import CheckpointState, Files, inspect_app
from penstock.engine.verify import Verified
from penstock.errors import InputError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def show_state(directory: str, *, as_json: bool, verify: bool = False) -> bool:
    """With `verify` all checksums are verified, too; whether nothing was found to be damaged."""
    if verify and _is_sparks(directory):
        from penstock.spark.verify import verify_files

        verified = verify_files(directory)
        what = f"{verified.parts:,} parts of state and"
        typer.echo(json.dumps(asdict(verified), indent=2) if as_json else "\n".join(_verified(verified, what)))
        return not verified.damaged
    state = _inspect(directory, verify=verify)
    if as_json:
        typer.echo(json.dumps(as_dict(state), indent=2))
        return state.verified is None or not state.verified.damaged
    console = Console(highlight=False, soft_wrap=True)
    for line in _heading(state):
        console.print(line, markup=False)
    for table in (_shares(state), _buckets(state), _streams(state), _queries(state), _stores(state)):
        if table.row_count:
            console.print()
            console.print(table)
    console.print()
    for line in _files(state):
        console.print(line, markup=False)
    if state.verified is None:
        return True
    for line in _verified(state.verified, "the state and"):
        console.print(line, markup=False)
    return not state.verified.damaged


def as_dict(state: CheckpointState) -> dict[str, Any]:
    """Plain values; a query has the blocks and bytes of its stores, which it may share with others."""
    found = asdict(state)
    texts = found.pop("texts") or {}
    for name, query in found["saved"]["queries"].items():
        blocks, nbytes = _held(state, name)
        query |= {"text": texts.get(name), "blocks": blocks, "bytes": nbytes}
    saved = found.pop("saved")
    return {**found, **{part: list(_named(saved[part])) for part in ("streams", "queries", "stores")}}


def _named(entries: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": name, **entry} for name, entry in entries.items()]


def _is_sparks(directory: str) -> bool:
    """The kind of checkpoint is told by what is in the directory; places that are no paths can only be Spark's."""
    path = Path(directory)
    if "://" in directory:
        return True
    if not path.is_dir():
        raise InputError(f"{directory} is no directory; give the checkpoint directory of a run")
    if not (path / "blocks").is_dir() and not (path / "offsets").is_dir():
        raise InputError(f"{directory} is no checkpoint directory: it has neither blocks nor offsets in it")
    return not (path / "blocks").is_dir()


def _inspect(directory: str, *, verify: bool) -> CheckpointState:
    if not _is_sparks(directory):
        return inspect_app(Path(directory), verify=verify)
    from penstock.cli.spark import log_file
    from penstock.spark.inspect import inspect_checkpoint
    from penstock.spark.session import SHORT_RUN, session

    with log_file() as log, Console(stderr=True).status("starting Spark to read its state"):
        spark = session("penstock state", "local[2]", SHORT_RUN, log_file=log)
        try:
            return inspect_checkpoint(spark, directory)
        finally:
            spark.stop()


def _heading(state: CheckpointState) -> list[str]:
    what = "micro-batch" if state.engine == "Spark" else "checkpoint"
    return [
        f"{state.directory}: {what} {state.number} of {'Spark' if state.engine == 'Spark' else 'an embedded app'}"
        + (", ended" if state.ended else ""),
        f"state of {_size(state.state_bytes)}, format version {state.format_version}, {_versions(state)}",
    ]


def _versions(state: CheckpointState) -> str:
    later = [f"{name} {version}" for name, version in state.components.items() if version > 1]
    if not later:
        return "all components in version 1"
    return f"components in version 1 but {', '.join(later)}"


def _table(title: str, *columns: str, numbers: int) -> Table:
    """The last `numbers` columns are to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place >= len(columns) - numbers else "left", overflow="fold")
    return table


def _shares(state: CheckpointState) -> Table:
    table = _table("shares", "share", "spread", "queries", "buckets", numbers=1)
    for share in state.shares:
        table.add_row(share.name, share.spread, ", ".join(share.queries), str(share.buckets))
    return table


def _buckets(state: CheckpointState) -> Table:
    table = _table("states of buckets", "bucket", "file", "bytes", numbers=1)
    for bucket in state.buckets:
        for path, nbytes in bucket.files.items():
            table.add_row(bucket.name, path.rpartition("/")[2], _size(nbytes))
        table.add_row(bucket.name, "committed with the micro-batch", _size(bucket.committed_bytes))
    return table


def _streams(state: CheckpointState) -> Table:
    table = _table("streams", "stream", "last event", "watermark", "events", "rows waiting", numbers=2)
    for stream in state.saved.streams.values():
        times = (_time(stream.last_time), _time(stream.watermark))
        table.add_row(stream.name, *times, f"{stream.events:,}", f"{stream.waiting:,}")
    return table


def _queries(state: CheckpointState) -> Table:
    table = _table("queries", "query", "windows", "results", "groups", "rows", "blocks", "bytes", numbers=5)
    texts = state.texts or {}
    for query in state.saved.queries.values():
        blocks, nbytes = _held(state, query.name)
        figures = (f"{query.results:,}", f"{query.groups:,}", f"{query.rows:,}", f"{blocks:,}", _size(nbytes))
        windows = ", ".join(re.findall(r"\[[^\]]+\]", texts.get(query.name, "")))
        table.add_row(query.name, escape(windows) or "-", *figures)
    return table


def _stores(state: CheckpointState) -> Table:
    table = _table("stored", "store", "read by", "rows", "blocks", "bytes", numbers=3)
    for name, store in state.saved.stores.items():
        readers = [query.name for query in state.saved.queries.values() if name in query.stores]
        reading = ", ".join(readers) or ("all, by key" if name.startswith("table-") else "all, once in order")
        table.add_row(name, reading, f"{store.rows:,}", f"{store.blocks:,}", _size(store.nbytes))
    return table


def _held(state: CheckpointState, query: str) -> tuple[int, int]:
    """Blocks and bytes of the stores that a query reads."""
    stores = [state.saved.stores[name] for name in state.saved.queries[query].stores if name in state.saved.stores]
    return sum(store.blocks for store in stores), sum(store.nbytes for store in stores)


def _files(state: CheckpointState) -> list[str]:
    lines = []
    if any("partials" in share.spread for share in state.shares):
        lines.append("results and groups of partials are those of all buckets, before they are merged")
    lines.append(f"files in use    {_counted(state.in_use)}")
    if state.engine == "Spark":
        lines.append(f"retired         {_counted(state.retired)}, deleted when Spark can no longer go back to them")
        lines.append(f"of shares gone  {_counted(state.gone)}, deleted when the application starts, once that is so")
    lines.append(f"orphans         {_counted(state.orphans)}, which no state names and which are deleted in time")
    if state.missing:
        lines.append(f"MISSING         {', '.join(state.missing)}: the queries that need them cannot go on")
    return lines


def _verified(verified: Verified, what: str) -> list[str]:
    lines = [f"verified        {what} {verified.blocks:,} blocks with {_size(verified.nbytes)}"]
    for damage in verified.damaged:
        rows = "" if damage.rows is None else f", {damage.rows:,} rows"
        lines.append(f"DAMAGED         {damage.store}, block {damage.block}{rows}: {damage.reason}")
        lines.append(f"                needed by {', '.join(damage.queries) or 'no query that is known'}")
    return lines


def _counted(files: Files) -> str:
    return f"{files.number:,} with {_size(files.nbytes)}"


def _time(micros: int | None) -> str:
    if micros is None:
        return "none"
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat(" ", "milliseconds").removesuffix("+00:00")
    except OverflowError:
        return f"{micros} µs"


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
