"""What is in saved state, for people: streams, queries, stores, and how much each holds.

Both runtimes save the same parts: `streams`, `flow` and `stores`. An app has one such state, on Spark every bucket has
one of its own; `together` adds those up. Nothing is restored and no block is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Int64s
from penstock.components import is_of, read_as
from penstock.engine.flow import Flow
from penstock.engine.outlet import Outlet
from penstock.engine.stream_input import StreamInput
from penstock.operators.aggregation import Aggregation
from penstock.operators.groups import GroupTable
from penstock.operators.intake import Intake
from penstock.operators.panes.family import PaneFamily, is_family
from penstock.operators.panes.held import HeldPanes
from penstock.operators.panes.totals import PaneTotals
from penstock.operators.partitions import Partitions
from penstock.operators.reorder import START, Reorder
from penstock.operators.shared_aggregation import SharedAggregation
from penstock.operators.window_member import WindowMember
from penstock.store.manager import read_device, read_store
from penstock.store.queue_kernels import LENGTH
from penstock.store.queue_rounds import Rounds
from penstock.store.slots import SlotMap


@dataclass(frozen=True)
class SavedStream:
    """Times in microseconds; None before the first event. `waiting` rows are still to be put in order."""

    name: str
    events: int
    last_time: int | None
    watermark: int | None
    waiting: int


@dataclass(frozen=True)
class SavedStore:
    """Rows of windows, rows that wait, or pages of a state. `files` are the names of segments in use, `retired` those
    of segments that are kept for a while; their bytes are not known here. `nbytes` is that of blocks elsewhere."""

    rows: int = 0
    blocks: int = 0
    nbytes: int = 0
    files: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()


@dataclass(frozen=True)
class SavedQuery:
    """`stores` are the names of those that it reads, alone or with others; `rows` are those now in its windows. Groups
    are counted in each bucket that has them."""

    name: str
    results: int
    groups: int
    rows: int
    stores: tuple[str, ...]


@dataclass(frozen=True)
class SavedState:
    streams: dict[str, SavedStream] = field(default_factory=dict)
    queries: dict[str, SavedQuery] = field(default_factory=dict)
    stores: dict[str, SavedStore] = field(default_factory=dict)


def read_saved(state: dict[str, Any]) -> SavedState:
    """The figures of one app's or bucket's state."""
    flow = read_as(Flow, state["flow"])
    stores = {name: _store(saved) for name, saved in state["stores"].items()}
    streams = {name: _stream(name, saved, stores) for name, saved in state["streams"].items()}
    queries = {name: _query(name, saved, state, stores) for name, saved in flow["queries"].items()}
    return SavedState(streams, queries, stores)


def together(states: Iterable[SavedState]) -> SavedState:
    """The sums over buckets: a stream's watermark is the least, its last time the greatest."""
    streams: dict[str, SavedStream] = {}
    queries: dict[str, SavedQuery] = {}
    stores: dict[str, SavedStore] = {}
    for state in states:
        for name, stream in state.streams.items():
            streams[name] = _add_streams(streams[name], stream) if name in streams else stream
        for name, query in state.queries.items():
            queries[name] = _add_queries(queries[name], query) if name in queries else query
        for name, store in state.stores.items():
            stores[name] = _add_stores(stores[name], store) if name in stores else store
    return SavedState(streams, queries, stores)


def _add_streams(one: SavedStream, other: SavedStream) -> SavedStream:
    times = [time for time in (one.last_time, other.last_time) if time is not None]
    reached = None if one.watermark is None or other.watermark is None else min(one.watermark, other.watermark)
    return SavedStream(
        one.name, one.events + other.events, max(times, default=None), reached, one.waiting + other.waiting
    )


def _add_queries(one: SavedQuery, other: SavedQuery) -> SavedQuery:
    return replace(
        one,
        results=one.results + other.results,
        groups=one.groups + other.groups,
        rows=one.rows + other.rows,
        stores=tuple(dict.fromkeys(one.stores + other.stores)),
    )


def _add_stores(one: SavedStore, other: SavedStore) -> SavedStore:
    return SavedStore(
        one.rows + other.rows,
        one.blocks + other.blocks,
        one.nbytes + other.nbytes,
        one.files + other.files,
        one.retired + other.retired,
    )


def _stream(name: str, saved: dict[str, Any], stores: dict[str, SavedStore]) -> SavedStream:
    saved = read_as(StreamInput, saved)
    reorder = read_as(Reorder, saved["reorder"])
    watermark, largest = reorder["watermark"], reorder["largest"]
    waiting = stores.get(f"{name}-reorder", SavedStore()).rows
    # Where clocks are kept apart, on Spark, the largest time stays at the beginning of time.
    last = largest if largest > START // 2 else None
    return SavedStream(name, saved["events"], last, None if watermark == START else watermark, waiting)


def _store(saved: dict[str, Any]) -> SavedStore:
    rows = blocks = 0
    device = read_device(saved)
    saved = read_store(saved)
    if "head" in saved:
        rows, blocks = saved["head"] - saved["tail"], len(saved["addresses"])
    elif "rounds" in saved:
        rows, blocks = int(saved["table"][:, LENGTH].sum()), len(read_as(Rounds, saved["rounds"])["blocks"])
    elif "runs" in saved:
        pieces = [run["spilled"]["pieces"] for run in saved["runs"] if "spilled" in run]
        rows = sum(_rows_of_run(run) for run in saved["runs"])
        blocks = sum(map(len, pieces))
    if device["kind"] == "segments":
        files = tuple(name for _, name, _ in device["segments"])
        live = sum(live for _, _, live in device["segments"])
        return SavedStore(rows, max(blocks, live), 0, files, tuple(name for name, _ in device["retired"]))
    if device["kind"] == "file":
        taken = np.flatnonzero(read_as(SlotMap, device["slots"])["sequences"] >= 0)
        return SavedStore(rows, len(taken), int(device["stored"][taken].sum()))
    return SavedStore(rows, len(device["blocks"]), sum(len(block) for _, block in device["blocks"]))


def _rows_of_run(run: dict[str, Any]) -> int:
    if "spilled" in run:
        return int(run["spilled"]["pieces"][:, 2].sum()) - int(run["spilled"]["skip"])
    with pa.ipc.open_stream(run["batch"]) as stream:
        return sum(int(batch.num_rows) for batch in stream)


def _query(name: str, saved: dict[str, Any], state: dict[str, Any], stores: dict[str, SavedStore]) -> SavedQuery:
    aggregations = read_as(Flow, state["flow"])["aggregations"]
    shared = [aggregations[own] for own in saved["aggregations"]]
    families = [read_as(PaneFamily, one) for one in shared if is_family(one)]
    stored = [read_as(SharedAggregation, one) for one in shared if not is_family(one)]
    owners = (saved["pipeline"], *saved["aggregations"])
    own = [store for store in stores if store.startswith(tuple(f"{owner}-" for owner in owners))]
    rows = sum(stores[store].rows for store in own)
    windows = dict.fromkeys(aggregation["window"] for aggregation in stored)
    for aggregation in stored:
        rows += read_store(state["stores"][aggregation["window"]])["head"] - aggregation["position"]
    held = [(len(one["layout"]["windows"]), read_as(HeldPanes, one["held"])) for one in families if one["held"]]
    parts = [part for tree in (saved["parts"], [panes for _, panes in held], stored) for part in _parts(tree)]
    counted = [part for part in parts if "intake" in part]
    groups = sum(_groups(part["intake"]) for part in counted)
    groups += sum(_groups_of_panes(*own) for own in held)
    if not counted:
        groups = sum(int(read_as(GroupTable, part["table"])["alive"].sum()) for part in parts if "table" in part)
    return SavedQuery(name, read_as(Outlet, saved["outlet"])["count"], groups, rows, (*windows, *own))


def _groups(intake: dict[str, Any]) -> int:
    """Those that have rows. What others share keeps the groups for them; how many rows are in each is its own."""
    if is_of(WindowMember, intake, known_by="counts"):
        return int(np.count_nonzero(read_as(WindowMember, intake)["counts"]))
    return int(np.count_nonzero(_counts(intake)))


def _counts(intake: dict[str, Any]) -> Int64s:
    """How many rows each group has."""
    counts: Int64s = read_as(GroupTable, read_as(Intake, intake)["groups"])["counts"]
    return counts


def _groups_of_panes(windows: int, held: dict[str, Any]) -> int:
    """Those that are in some of so many windows of a family, besides those of the open pane alone."""
    counts = read_as(PaneTotals, held["totals"])["counts"].reshape(-1, windows).any(axis=1)
    counts[_counts(read_as(Aggregation, held["pane"])["intake"])[: len(counts)] > 0] = False
    return int(np.count_nonzero(counts))


def _parts(node: Any) -> Iterator[dict[str, Any]]:
    """All dictionaries in the state of a query's operators, from the outside inwards."""
    if isinstance(node, dict):
        for kind, key in ((Aggregation, "intake"), (Partitions, "limits")):
            if is_of(kind, node, known_by=key):
                node = read_as(kind, node)
        yield node
        for item in node.values():
            yield from _parts(item)
    elif isinstance(node, list):
        for item in node:
            yield from _parts(item)
