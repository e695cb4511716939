"""From logical plans to a physical plan in which no two queries share a stage, and nothing is placed."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.lang.query import Query
from penstock.plan.nodes import AggregateNode, JoinNode, LookupNode, Node, ScanNode, StreamNode, children
from penstock.plan.physical.forms import form_of
from penstock.plan.physical.nodes import (
    Form,
    PhysicalPlan,
    Place,
    PlannedQuery,
    Source,
    Stage,
    Table,
    WindowReader,
)
from penstock.plan.sharing import may_share, stream_of


def lower(queries: Sequence[tuple[Query, Node]]) -> PhysicalPlan:
    """The plan of queries that start together, in the order of the program."""
    lowering = _Lowering()
    planned = []
    for query, node in queries:
        lowering.begin(query.name)
        planned.append(PlannedQuery(query, node, lowering.lower(node)))
    return PhysicalPlan(tuple(lowering.stages), tuple(planned))


def lower_windows(readers: Sequence[WindowReader]) -> PhysicalPlan:
    """A plan of windows alone, without their queries: of windows at work that are to get another form."""
    lowering = _Lowering()
    for reader in readers:
        lowering.add(form_of(reader.node, reader.query, reader.number), (stream_of(reader.node),))
    return PhysicalPlan(tuple(lowering.stages), ())


class _Lowering:
    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self._tables: dict[str, Place] = {}
        self._query = ""
        self._windows = self._joins = 0

    def begin(self, query: str) -> None:
        self._query = query
        self._windows = self._joins = 0

    def add(self, form: Form, inputs: tuple[Source, ...]) -> Place:
        self.stages.append(Stage(len(self.stages), form, inputs))
        return Place(len(self.stages) - 1)

    def lower(self, node: Node) -> Source:
        """The stages of a node and of all below it. Windows and joins are numbered in the order of the operators."""
        if isinstance(node, StreamNode):
            return node.name
        inputs = [self.lower(child) for child in children(node)]
        number = 0
        if isinstance(node, LookupNode | ScanNode):
            inputs += self._tables_of(node)
        elif isinstance(node, JoinNode):
            number, self._joins = self._joins, self._joins + 1
        elif isinstance(node, AggregateNode) and may_share(node):
            number, self._windows = self._windows, self._windows + 1
        return self.add(form_of(node, self._query, number), tuple(inputs))

    def _tables_of(self, node: LookupNode | ScanNode) -> list[Source]:
        """A table is one stage, whichever queries read it."""
        found: list[Source] = []
        for read in node.lookups if isinstance(node, LookupNode) else (node,):
            if read.table not in self._tables:
                streams = tuple(dict.fromkeys(write.stream for write in read.writes))
                self._tables[read.table] = self.add(Table(read.definition, read.writes), streams)
            found.append(self._tables[read.table])
        return found
