"""The rows of evaluations as HAVING, the select list and ORDER BY see them."""

from __future__ import annotations

from penstock.expressions import tree
from penstock.expressions.batch import Batch, Data
from penstock.lang.query import Emit
from penstock.operators.aggregation import EvaluatedGroups
from penstock.plan.nodes import AggregateNode, Answer
from penstock.types import SqlType


class EmittedRows:
    """Group keys are columns named `#0`, `#1`, ... and aggregates `$0`, `$1`, ...; columns without a reader are left
    out. `answers` says where the aggregates are if not where the node alone would have them."""

    def __init__(self, node: AggregateNode, answers: tuple[Answer, ...] | None = None) -> None:
        self.answers = node.answers if answers is None else answers
        emission = node.emission
        expressions = [o.expression for o in emission.outputs] + [o.expression for o in emission.order_by]
        if emission.having is not None:
            expressions.append(emission.having)
        kinds: dict[str, SqlType] = {f"#{i}": key.type for i, key in enumerate(node.group_by)}
        kinds |= {f"${i}": answer.type for i, answer in enumerate(node.answers)}
        read = set().union(*(tree.columns(e) for e in expressions))
        if emission.emit is Emit.EDGE:
            read |= {f"#{i}" for i in range(len(node.group_by))}
        self._kinds = {name: kind for name, kind in kinds.items() if name in read}
        self._keys = [(name, int(name[1:])) for name in self._kinds if name[0] == "#"]
        self._aggregates = [(name, self.answers[int(name[1:])]) for name in self._kinds if name[0] == "$"]

    def rows(self, keys: list[Data], played: EvaluatedGroups) -> Batch:
        data = {name: keys[i] for name, i in self._keys}
        for name, answer in self._aggregates:
            data[name] = played.column(answer)
        return Batch(self._kinds, data, len(played.slots))
