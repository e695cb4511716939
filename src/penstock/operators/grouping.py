"""From rows to the groups they belong to: WHERE and the keys.

A row that fails WHERE, or on which a key or an argument cannot be computed, gets slot -1: it belongs to no group.
A row that cannot be computed goes to the rejects, with the reason. Queries with the same WHERE, keys and
arguments that can fail share one grouping.

Why: docs/decisions/filter-first.md
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument
from penstock.arrays import Bools, Slots
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.vector import ColumnView, Evaluated, RowErrors
from penstock.operators.arguments import Computed
from penstock.operators.chunk import Chunk
from penstock.operators.groups import GroupTable
from penstock.plan.reads import GroupingKey
from penstock.rejects import Reject
from penstock.store.budget import Account
from penstock.store.charged import UNLIMITED
from penstock.types import SqlType


class Grouping:
    """`rejects` has an entry for each query that reads the grouping: a row fails for each of them. The groups are on
    the `account`. If it `is_paged`, there are none here: its members have groups in shards (`operators.paged`).
    """

    def __init__(
        self,
        key: GroupingKey,
        rejects: list[Reject],
        account: Account = UNLIMITED,
        *,
        with_instances: bool = False,
    ) -> None:
        self.key = key
        self.rejects = rejects
        self._where = compile_expression(key.where) if key.where is not None else None
        self._keys = [compile_expression(expression) for expression in key.keys]
        self._fallible = [(f.read.name, [read.name for read in f.behind]) for f in key.fallible]
        instance = (SqlType.BIGINT,) if with_instances else ()
        self._types = instance + tuple(expression.type for expression in key.keys)
        self._account = account
        self.groups = GroupTable(self._types, account)
        self.is_paged = False

    def page(self) -> None:
        """From now on there are no groups here."""
        self.groups.close()
        self.groups = GroupTable(self._types, self._account)
        self.is_paged = True

    def passes(self, chunk: Chunk) -> Bools | None:
        """Which rows pass WHERE; None where there is none, or no row."""
        if self._where is None or chunk.rows == 0:
            return None
        result = self._where(chunk.columns)
        self.without(chunk, None, result.errors)
        return result.true

    def assign(
        self, chunk: Chunk, keep: Bools | None, computed: Computed, instances: pa.Array | None = None
    ) -> tuple[Slots, list[Evaluated]]:
        """The slots of the rows, and their key columns; `instances` is a key that comes before the others."""
        keys, keep = self.keys_of(chunk, keep, computed, instances)
        return self.groups.assign(keys, chunk.rows, keep), keys

    def keys_of(
        self, chunk: Chunk, keep: Bools | None, computed: Computed, instances: pa.Array | None = None
    ) -> tuple[list[Evaluated], Bools | None]:
        """The key columns of the rows, and which rows are in a group; None for all."""
        keys: list[Evaluated] = [] if instances is None else [ColumnView(instances, SqlType.BIGINT)]
        for compiled in self._keys:
            result = compiled(chunk.columns)
            if result.errors is not None:
                keep = self.without(chunk, keep, result.errors)
            keys.append(result)
        if computed.errors:
            for name, behind in self._fallible:
                reads = _any_true([computed.columns[guard] for guard in behind])
                keep = self.without(chunk, keep, computed.errors.get(name), reads)
        return keys, keep

    def without(
        self, chunk: Chunk, keep: Bools | None, errors: RowErrors | None, reads: Bools | None = None
    ) -> Bools | None:
        """`keep` without the rows that failed, among those that are read; they are rejected."""
        return keep if errors is None else without(chunk, keep, errors, self.rejects, reads)


def without(
    chunk: Chunk, keep: Bools | None, errors: RowErrors, rejects: Iterable[Reject], reads: Bools | None = None
) -> Bools:
    """`keep` without the rows that failed, among those that are read; they are rejected."""
    failed = errors.mask if reads is None else errors.mask & reads
    if keep is None:
        keep = np.ones(chunk.rows, np.bool_)
    for row in np.flatnonzero(failed & keep):
        for reject in rejects:
            reject(errors.reasons[errors.codes[row] - 1], chunk.row(int(row)))
    return keep & ~failed


def _any_true(filters: list[Argument]) -> Bools | None:
    if not filters:
        return None
    found: Bools = np.logical_or.reduce([column.values.astype(np.bool_) for column in filters])
    return found
