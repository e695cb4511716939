"""What rules that call functions have fired: numbered, with the arguments of the calls computed.

Invariant: the number of a rule's firing goes on through restarts, also where the rule has changed meanwhile and begins
afresh: a number is never used for another firing.

Why: docs/decisions/calls-are-numbered.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.engine.outlet import Outlet
from penstock.expressions.evaluate import compile_expression
from penstock.lang.query import Call, Rule
from penstock.operators.chunk import readable
from penstock.rejects import Reject


class CallReceiver(Protocol):
    """Takes the calls of a function."""

    def put(self, name: str, numbers: Int64s, arguments: pa.RecordBatch) -> None:
        """Calls of the name that their keys begin with: numbers and arguments of each."""


def call_names(rule: Rule) -> list[str]:
    """What the keys of a rule's calls begin with: the rule's name for the first, and for each other one its own."""
    return [rule.name if place == 0 else f"{rule.name}/{place + 1}" for place in range(len(rule.calls))]


class Firings:
    def __init__(self, reject: Reject) -> None:
        self._reject = reject
        self._next: dict[str, int] = {}
        self._callers: dict[str, _Caller] = {}

    def attach(self, rule: Rule, outlet: Outlet, receiver: Callable[[str], CallReceiver]) -> None:
        """From now on the rows of this outlet are firings of the rule; `receiver` gives that of a function."""
        if rule.calls:
            caller = _Caller(rule, receiver, self._reject, self._next)
            caller.offset = self._next.get(rule.name, 0) - outlet.count
            self._callers[rule.name] = caller
            outlet.watch(caller.fire)

    def snapshot(self) -> dict[str, Any]:
        return dict(self._next)

    def restore(self, snapshot: dict[str, Any], outlets: Mapping[str, Outlet]) -> None:
        """`outlets` are those of the rules, which have been restored."""
        self._next.update(snapshot)
        for name, caller in self._callers.items():
            caller.offset = self._next.get(name, 0) - outlets[name].count


class _Caller:
    def __init__(
        self, rule: Rule, receiver: Callable[[str], CallReceiver], reject: Reject, upto: dict[str, int]
    ) -> None:
        self._rule = rule.name
        self._reject = reject
        self._next = upto
        self._calls = [
            (name, receiver(call.function), _Arguments(call))
            for name, call in zip(call_names(rule), rule.calls, strict=True)
        ]
        self.offset = 0

    def fire(self, rows: pa.RecordBatch, number: int) -> None:
        numbers = np.arange(rows.num_rows, dtype=np.int64) + (self.offset + number)
        self._next[self._rule] = self.offset + number + rows.num_rows
        for name, receiver, arguments in self._calls:
            batch, keep = arguments.of(rows, self._reject)
            chosen = numbers if keep is None else numbers[keep]
            if len(chosen):
                receiver.put(name, chosen, batch)


class _Arguments:
    def __init__(self, call: Call) -> None:
        self._names = [argument.name for argument in call.arguments]
        self._compiled = [compile_expression(argument.expression) for argument in call.arguments]

    def of(self, rows: pa.RecordBatch, reject: Reject) -> tuple[pa.RecordBatch, Bools | None]:
        """The arguments of each firing; those that cannot be computed are rejected, and left out."""
        keep: Bools | None = None
        columns = []
        for compiled in self._compiled:
            value = compiled(rows)
            if value.errors is not None:
                keep = np.ones(rows.num_rows, np.bool_) if keep is None else keep
                for row in np.flatnonzero(value.errors.mask & keep):
                    reject(value.errors.reasons[value.errors.codes[row] - 1], readable(rows.slice(int(row), 1))[0])
                keep &= ~value.errors.mask
            columns.append(value.values)
        batch = pa.RecordBatch.from_arrays(columns, names=self._names)
        return batch if keep is None else batch.filter(pa.array(keep)), keep
