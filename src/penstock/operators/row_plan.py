"""What a lane that stores its rows does for one query: its registers, its instructions and where its outputs are.

Made once from the plan node. A query with an expression, a key or an output that has no instructions has no plan: its
rows take the ordinary path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.expressions import tree
from penstock.expressions.tree import Column, Expression
from penstock.lane import records
from penstock.lane.expressions import Instruction, Registers, compiled
from penstock.lane.memory import offset_of
from penstock.lane.row_program import RowPlan
from penstock.operators import single_keys
from penstock.plan.nodes import AggregateNode, Answer
from penstock.plan.reads import Read, grouping_of, reads_of
from penstock.store.fifo import FifoStore
from penstock.types import SqlType

_FORMATS = {
    SqlType.TINYINT: "b",
    SqlType.SMALLINT: "h",
    SqlType.INT: "i",
    SqlType.BIGINT: "q",
    SqlType.TIMESTAMP: "q",
    SqlType.DOUBLE: "d",
}
"""How values are packed."""

_SHOWN = (SqlType.DOUBLE, SqlType.BIGINT, SqlType.TIMESTAMP)


def plan_rows(
    query: AggregateNode, answers: Sequence[Answer], node: AggregateNode, store: FifoStore, *, finds_slots: bool
) -> RowPlan | None:
    """The plan of a query; `node` has all states of its aggregation, and `answers` say where those of the query are.
    With `finds_slots` the lane finds the slot of each row by its key, else it is given the slots."""
    emission = query.emission
    if query.where is not None or emission.having is not None or emission.limit is not None:
        return None
    if emission.needs_whole_evaluations or not all(isinstance(key, Column) for key in query.group_by):
        return None
    if finds_slots and (len(query.group_by) > 1 or not all(map(_is_found, query.group_by))):
        return None
    reads = reads_of(node.states)
    columns = {c.name: c.type for r in reads for c in tree.walk(r.expression) if isinstance(c, Column)}
    if any(kind not in _FORMATS for kind in columns.values()):
        return None
    plan = _begun(query.group_by[0] if finds_slots and query.group_by else None, columns)
    if not _plan_arguments(plan, node, reads, store) or not _plan_outputs(plan, query, answers, node):
        return None
    return plan


def _is_found(key: Expression) -> bool:
    """Whether the lane can find slots by such a key."""
    return key.type is SqlType.STRING or key.type.is_integer


def _begun(key: Expression | None, columns: Mapping[str, SqlType]) -> RowPlan:
    registers, formats = Registers(), ["q"]
    registers.of("the time of the event")
    assert key is None or isinstance(key, Column)
    if key is not None:
        registers.of("the key of the event")
        formats.append("q" if key.type is SqlType.STRING else _FORMATS[key.type])
    places = {}
    for name, kind in columns.items():
        places[name] = registers.of(name)
        formats.append(_FORMATS[kind])
    return RowPlan(registers, key, places, formats, registers.new(), registers.new())


def _plan_arguments(plan: RowPlan, node: AggregateNode, reads: Sequence[Read], store: FifoStore) -> bool:
    """What happens before the states: arguments are computed, slots found, and the row is written."""
    by_name: dict[str, int] = {}
    for read in reads:
        register = compiled(read.expression, plan.registers, plan.front, of_results=False)
        if register is None:
            return False
        by_name[read.name] = register
    if plan.key is not None:
        plan.find_at = len(plan.front)
        width = 8 if plan.key.type is SqlType.STRING else plan.key.type.storage.itemsize
        named = {single_keys.KEYS: 1, single_keys.FOUND: plan.slots}
        plan.front.append(Instruction(single_keys.find_slots, named, {single_keys.KEY_WIDTH: width}))
    registers = by_name | {"time": 0, grouping_of(node).name: plan.slots}
    for place, spec in enumerate(store.columns):
        if spec.name not in registers:
            return False
        where = {
            records.COLUMN_OFFSET: offset_of(place, store.offset_of(place)),
            records.COLUMN_WIDTH: spec.dtype.itemsize,
        }
        plan.front.append(Instruction(records.store_column, {records.COLUMN_FROM: registers[spec.name]}, where))
    if node.window.extent.length is not None:
        plan.front.append(Instruction(records.begin_windows, {records.TO: plan.starts}))
    plan.values = [by_name[reads_of((state,))[0].name] if state.args else None for state in node.states]
    return True


def _plan_outputs(plan: RowPlan, query: AggregateNode, answers: Sequence[Answer], node: AggregateNode) -> bool:
    """What happens behind the states: their answers are named, and the select list is computed."""
    registers = plan.registers
    for state in node.states:
        own = [want.function for want in state.wants]
        names = ["SUM", *own] if state.kind == "SUM" else ["COUNT"] if state.kind == "COUNT" else ["VALUE"]
        plan.answers.append({name: registers.new() for name in dict.fromkeys(names)})
    if any(answer.state < 0 for answer in answers):
        plan.tally = registers.new()
    for number, answer in enumerate(answers):
        register = plan.tally
        if answer.state >= 0:
            named = plan.answers[answer.state]
            register = named.get(node.states[answer.state].wants[answer.want].function, named.get("VALUE"))
        assert register is not None
        registers.name(f"${number}", register)
    keys: dict[Expression, int] = {Column(f"#{i}", key.type): -1 - i for i, key in enumerate(query.group_by)}
    for output in query.emission.outputs:
        expression = output.expression
        if expression in keys:
            plan.outputs.append((keys[expression], expression.type))
            continue
        shown = compiled(expression, registers, plan.back, of_results=True)
        if shown is None or expression.type not in _SHOWN:
            return False
        plan.outputs.append((shown, expression.type))
    return True
