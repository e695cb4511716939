"""What an aggregation over partitions reads of rows that go to the log: keys, arguments and filters, as columns.

Rows on which something fails are rejected, as where they are in memory (`operators.intake`). Texts stay texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Argument
from penstock.arrays import Bools
from penstock.expressions.batch import Data
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.vector import RowErrors, Vector
from penstock.operators.arguments import Computed, OwnColumns
from penstock.operators.chunk import Chunk
from penstock.operators.columns import to_data
from penstock.operators.grouping import Grouping
from penstock.plan.nodes import AggregateNode
from penstock.plan.reads import GroupingKey, fallible_reads, reads_of
from penstock.rejects import Reject
from penstock.types import SqlType


class ReadRows:
    def __init__(self, node: AggregateNode, reject: Reject) -> None:
        keys = tuple(dict.fromkeys(node.partition_by + node.group_by))
        self._grouping = Grouping(GroupingKey(node.where, keys, fallible_reads(node.states)), [reject])
        self._reads = reads_of(node.states)
        self._compiled = [compile_expression(read.expression) for read in self._reads]

    def of(self, chunk: Chunk) -> tuple[list[Data], list[Data], Bools | None]:
        """The keys of rows, what is read of them, and which of them are in a group; None for all."""
        data: list[Data] = []
        filters: dict[str, Argument] = {}
        errors: dict[str, RowErrors] = {}
        for read, compiled in zip(self._reads, self._compiled, strict=True):
            result = compiled(chunk.columns)
            if read.is_filter:
                filters[read.name] = Argument(result.true.astype(np.int8), None)
                data.append(Vector(result.true, None))
            else:
                data.append(result.values)
            if result.errors is not None:
                errors[read.name] = result.errors
        computed = Computed(filters, errors, {})
        keys, keep = self._grouping.keys_of(chunk, self._grouping.passes(chunk), computed)
        return [key.values for key in keys], data, keep

    def of_held(self, own: OwnColumns, columns: Sequence[Argument], keep: Bools) -> list[Data]:
        """The same of rows that have been in memory; NULL for what was not kept there."""
        held = {
            name: (column, interner) for name, column, interner in zip(own.names, columns, own.interners, strict=True)
        }
        data: list[Data] = []
        for read in self._reads:
            kind = SqlType.BOOLEAN if read.is_filter else read.expression.type
            if read.name in held:
                (values, valid), interner = held[read.name]
                data.append(to_data(values, keep if valid is None else valid & keep, kind, interner))
            else:
                data.append(pa.nulls(len(keep), kind.arrow))
        return data
