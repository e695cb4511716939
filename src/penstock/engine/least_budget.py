"""The least memory that a program can start with, for the error message when the budget is smaller."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from penstock.aggregates.user import UserAggregate
from penstock.engine.clock import Clock
from penstock.engine.flow import Flow
from penstock.engine.inputs import BUFFERS_SHARE
from penstock.engine.rejects import Rejects
from penstock.engine.stream_input import StreamInput
from penstock.errors import BudgetError
from penstock.lang.query import Program
from penstock.plan.columns import needed_columns
from penstock.plan.nodes import Node
from penstock.store.budget import Budget
from penstock.store.manager import StoreManager


def with_least_budget(
    error: BudgetError,
    program: Program,
    nodes: Mapping[str, Node],
    users: Mapping[str, UserAggregate],
    clock: Clock,
    strategy: str,
    *,
    block_size: int,
    buffered: bool,
) -> BudgetError:
    """The error of an app that could not start, with the least budget as a hint. The queries are started once more,
    without a limit, to see how much memory they take. `nodes` are their logical plans; `buffered` is True if there are
    input buffers."""
    reject = Rejects().add
    with tempfile.TemporaryDirectory(prefix="penstock-") as scratch:
        stores = StoreManager(Budget(1 << 60), Path(scratch), block_size)
        for stream in program.streams:
            StreamInput(stream, needed_columns(stream, nodes.values(), program.writes), stores, reject, clock)
        sinks = tuple(sink.name for sink in program.sinks)
        flow = Flow(stores, reject, users, clock, sinks, strategy=strategy)
        flow.declare(program.streams, program.queries, program.tables, program.writes)
        flow.load_tables()
        flow.start([(query, nodes[query.name]) for query in program.queries])
        least = stores.budget.peak
        stores.close()
    if buffered or any(stream.arrival for stream in program.streams):
        least = least * BUFFERS_SHARE // (BUFFERS_SHARE - 1) + BUFFERS_SHARE
    hint = f"hint: the least budget that this plan can start with is {least:,} bytes"
    return BudgetError(f"{str(error).splitlines()[0]}\n  {hint}")
