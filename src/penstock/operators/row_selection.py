"""WHERE and a select list over a single row (`expressions.batch.Row`), as Python values.

It gives the row that the operator's ordinary path gives, or raises an `UNCERTAIN` of `expressions.evaluate`: then the
ordinary path says what becomes of the row, and rejects it where it fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.expressions.batch import Row
from penstock.expressions.evaluate import compile_row
from penstock.expressions.scalar import Values
from penstock.expressions.tree import Column, Expression

_BESIDE = 32
"""So many values that are not selected may stay beside twice those that are: copying all of them is faster."""


class RowSelection:
    def __init__(self, where: Expression | None, names: Sequence[str], outputs: Iterable[Expression]) -> None:
        self.where = None if where is None else compile_row(where)
        selected = dict(zip(names, outputs, strict=True))
        self._kinds = {name: output.type for name, output in selected.items()}
        stays = [name for name, output in selected.items() if isinstance(output, Column) and output.name == name]
        computed = {name: compile_row(output) for name, output in selected.items() if name not in stays}
        self._names, self._functions = list(computed), list(computed.values())
        self._most = 2 * len(self._kinds) + _BESIDE

    def shown(self, values: Values) -> Row | None:
        """The select list of the row; None if WHERE does not hold."""
        where = self.where
        if where is not None and where(values) is not True:
            return None
        found = [function(values) for function in self._functions]
        if len(values) > self._most:
            shown = {name: values[name] for name in self._kinds if name in values}
        else:
            shown = values.copy()
        shown.update(zip(self._names, found))  # noqa: B905 - there is one for each
        return Row(self._kinds, shown)
