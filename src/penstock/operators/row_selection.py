"""WHERE and a select list over a single row (`expressions.batch.Row`), as Python values.

It gives the row that the operator's ordinary path gives, or raises an `UNCERTAIN` of `expressions.evaluate`: then the
ordinary path says what becomes of the row, and rejects it where it fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.expressions.batch import Row
from penstock.expressions.evaluate import compile_row
from penstock.expressions.scalar import Values
from penstock.expressions.tree import Expression


class RowSelection:
    def __init__(self, where: Expression | None, names: Sequence[str], outputs: Iterable[Expression]) -> None:
        self._where = None if where is None else compile_row(where)
        outputs = tuple(outputs)
        self._outputs = [(name, compile_row(output)) for name, output in zip(names, outputs, strict=True)]
        self._kinds = {name: output.type for name, output in zip(names, outputs, strict=True)}

    def passes(self, values: Values) -> bool:
        return self._where is None or self._where(values) is True

    def shown(self, values: Values) -> Row | None:
        """The select list of the row; None if WHERE does not hold."""
        if self._where is not None and self._where(values) is not True:
            return None
        return Row(self._kinds, {name: output(values) for name, output in self._outputs})
