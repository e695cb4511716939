"""What can be seen of an app from another thread while it works.

Nothing is worked off, changed or locked by a look, so the thread that pushes does not wait for one. It only reads: each
number is as it was at some moment of the look, and two of them may be a batch apart. Collections may grow while they
are read; then the look begins again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.engine.flow import Flow
from penstock.engine.inputs import Inputs
from penstock.engine.metrics import Metrics
from penstock.engine.rejects import Rejects
from penstock.engine.rule_calls import RuleCalls
from penstock.engine.running import Running
from penstock.engine.sizing_metrics import sizing_of
from penstock.errors import PenstockError
from penstock.lang.query import Program
from penstock.operators.panes.family import PaneFamily
from penstock.operators.reorder import START
from penstock.plan.nodes import Node
from penstock.store.manager import StoreManager, StoreUse

_TRIES = 20
_REJECTS_SEEN = 20


@dataclass(frozen=True)
class StreamLook:
    """`held` rows wait to be put in order and `waiting` ones in the input buffer; the watermark is None before the
    first event."""

    name: str
    events: int
    late: int
    held: int
    waiting: int
    lateness: int
    watermark: int | None


@dataclass(frozen=True)
class QueryLook:
    """`kept` says how its rows are: in panes, a shared window, one of its own, or not at all; `sharers` is how many
    other queries use the same. `node` is its plan, `into` where its results go, if not to the program."""

    name: str
    text: str
    results: int
    kept: str
    sharers: int
    into: str | None
    node: Node


@dataclass(frozen=True)
class Look:
    """`state` is running, finished, closed or failed; `memory` is bytes by holder, the largest first; `rejects` are the
    last ones. The program has the queries and streams that there are now."""

    state: str
    program: Program
    metrics: Metrics
    streams: tuple[StreamLook, ...]
    queries: tuple[QueryLook, ...]
    memory: Mapping[str, int]
    stores: tuple[StoreUse, ...]
    rejects: tuple[Mapping[str, Any], ...]


def look(
    state: str, program: Program, inputs: Inputs, flow: Flow, stores: StoreManager, calls: RuleCalls, rejects: Rejects
) -> Look:
    """`program` is the one that the app began with. If a collection changes its size meanwhile, `look` tries again."""
    for _ in range(_TRIES):
        try:
            return Look(
                state,
                _program_now(program, inputs, flow),
                metrics_of(stores, inputs, flow, calls, rejects),
                _streams(inputs),
                _queries(flow),
                {name: held for name, held in stores.budget.describe().items() if held},
                stores.uses,
                tuple(rejects.rows[-_REJECTS_SEEN:]),
            )
        except RuntimeError:
            continue
    raise PenstockError("the app changes faster than it can be looked at; try again")


def _program_now(program: Program, inputs: Inputs, flow: Flow) -> Program:
    """What was declared when the app began, with what has been added and dropped since."""
    streams = tuple(source.definition for source in list(inputs.streams.values()))
    return replace(program, streams=streams, queries=tuple(query.query for query in list(flow.running.values())))


def metrics_of(stores: StoreManager, inputs: Inputs, flow: Flow, calls: RuleCalls, rejects: Rejects) -> Metrics:
    blocks, budget = stores.metrics, stores.budget
    written, compressed = stores.bytes_written
    running = flow.running
    streams, dispatcher = inputs.streams.values(), inputs.dispatcher
    reached = [s.reorder.watermark for s in streams if s.reorder.watermark > START]
    return Metrics(
        events=sum(s.events for s in streams),
        late=inputs.late,
        rejected=rejects.count,
        results=sum(r.outlet.count for r in running.values()),
        blocks_written=blocks.blocks_written,
        blocks_read=blocks.blocks_read,
        bytes_written=written,
        bytes_compressed=compressed,
        pool_hits=blocks.pool_hits,
        memory_bytes=budget.used,
        pool_bytes=stores.pool_bytes,
        memory_peak=budget.peak,
        memory_budget=budget.total,
        stored_bytes=stores.nbytes_total,
        watermark=min(reached, default=None),
        calls=calls.made,
        calls_waiting=calls.waiting,
        dispatch=None if dispatcher is None else dispatcher.metrics,
        rate_sizing={name: sized for name, r in running.items() if (sized := sizing_of(r.pipeline.joins))},
        tables=flow.tables.metrics,
    )


def _streams(inputs: Inputs) -> tuple[StreamLook, ...]:
    waiting = inputs.buffered
    return tuple(
        StreamLook(
            name,
            source.events,
            source.late.count,
            source.reorder.rows_held,
            waiting.get(name, 0),
            source.definition.lateness,
            source.reorder.watermark if source.reorder.watermark > START else None,
        )
        for name, source in inputs.streams.items()
    )


def _queries(flow: Flow) -> tuple[QueryLook, ...]:
    users: dict[object, int] = {}
    running = list(flow.running.values())
    for query in running:
        for shared in {*query.shared, *query.cores, *query.windows}:
            users[shared] = users.get(shared, 0) + 1
    return tuple(
        QueryLook(
            query.query.name,
            query.query.text,
            query.outlet.count,
            _kept(query),
            max((users[shared] for shared in (*query.shared, *query.cores, *query.windows)), default=1) - 1,
            query.query.into,
            query.node,
        )
        for query in running
    )


def _kept(query: Running) -> str:
    if any(isinstance(shared, PaneFamily) for shared in query.shared):
        return "panes"
    if query.shared:
        return "stored window"
    if query.cores:
        return "stored windows, joined"
    return "of its own"
