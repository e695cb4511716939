"""The functions that the rules of an app call, and the firings that have been numbered for them.

Invariants:
1. The number of a rule's firing goes on through restarts, also where the rule has changed meanwhile and begins afresh:
   a key is never used for another firing.
2. Calls that wait are saved with the app, whatever has become of their rule. What was fired after a checkpoint is fired
   again, with the same numbers, when the events after it come again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import Bools
from penstock.calls.function import CallFailed, Function, PythonFunction
from penstock.calls.http import HttpFunction
from penstock.calls.worker import Tell, Worker
from penstock.engine.outlet import Outlet
from penstock.errors import QueryError
from penstock.expressions.evaluate import compile_expression
from penstock.lang.query import Call, FunctionDef, Rule
from penstock.operators.chunk import readable
from penstock.store.budget import Budget


class Calling:
    """`functions` are those that were registered; those of programs are declared."""

    def __init__(
        self, functions: Mapping[str, Callable[..., object]], budget: Budget, tell: Tell, *, synchronous: bool
    ) -> None:
        self._budget = budget
        self._tell = tell
        self._synchronous = synchronous
        self._workers: dict[str, Worker] = {}
        self._next: dict[str, int] = {}
        self._rules: dict[str, _Caller] = {}
        for name, function in functions.items():
            if not callable(function):
                raise QueryError(f"the function '{name}' cannot be called: it is a {type(function).__name__}")
            self._add(name, PythonFunction(function))

    def _add(self, name: str, function: Function) -> None:
        account = self._budget.account(f"calls of {name} that wait")
        self._workers[name] = Worker(name, function, account, self._tell, synchronous=self._synchronous)

    @property
    def names(self) -> Collection[str]:
        return self._workers.keys()

    def declare(self, functions: Iterable[FunctionDef]) -> None:
        for definition in functions:
            self._add(definition.name, HttpFunction(definition))

    def attach(self, rule: Rule, outlet: Outlet) -> None:
        """From now on what comes out there is what the rule fires."""
        if rule.calls:
            caller = _Caller(rule, self._workers, self._tell, self._fired)
            caller.offset = self._next.get(rule.name, 0) - outlet.count
            self._rules[rule.name] = caller
            outlet.watch(caller.fire)

    def _fired(self, rule: str, upto: int) -> None:
        self._next[rule] = upto

    def settle(self) -> None:
        """Tells what has failed since the last time."""
        for worker in self._workers.values():
            worker.settle()

    def wait(self, timeout: float | None = None) -> bool:
        return all(worker.wait(timeout) for worker in self._workers.values())

    @property
    def waiting(self) -> int:
        return sum(worker.waiting for worker in self._workers.values())

    @property
    def made(self) -> int:
        return sum(worker.made for worker in self._workers.values())

    def close(self, *, abandon: bool) -> None:
        for worker in self._workers.values():
            worker.close(abandon=abandon)
            if not abandon:
                worker.settle()

    def snapshot(self) -> dict[str, Any]:
        return {
            "next": dict(self._next),
            "workers": {name: worker.snapshot() for name, worker in self._workers.items()},
        }

    def restore(self, snapshot: dict[str, Any], outlets: Mapping[str, Outlet]) -> None:
        """`outlets` are those of the rules, which have been restored."""
        self._next = dict(snapshot["next"])
        for name, caller in self._rules.items():
            caller.offset = self._next.get(name, 0) - outlets[name].count
        for name, saved in snapshot["workers"].items():
            worker = self._workers.get(name)
            if worker is not None:
                worker.restore(saved)
            else:
                self._reject_all(name, saved)

    def _reject_all(self, name: str, saved: dict[str, Any]) -> None:
        """Calls of a function that is there no more."""
        gone = Worker(name, _Gone(), self._budget.account(f"calls of {name}"), self._tell, synchronous=True)
        gone.restore(saved)
        gone.wait()
        gone.settle()


class _Gone:
    def call(self, arguments: Mapping[str, Any], key: str, pause: Any) -> None:
        raise CallFailed("the function is not there any more")

    def close(self) -> None:
        pass


class _Caller:
    """Evaluates the arguments of a rule's calls and hands them to the workers."""

    def __init__(
        self, rule: Rule, workers: Mapping[str, Worker], tell: Tell, fired: Callable[[str, int], None]
    ) -> None:
        self._rule = rule.name
        self._tell = tell
        self._fired = fired
        self._calls = [
            (_key(rule.name, place), workers[call.function], _Arguments(call)) for place, call in enumerate(rule.calls)
        ]
        self.offset = 0

    def fire(self, rows: pa.RecordBatch, number: int) -> None:
        numbers = np.arange(rows.num_rows, dtype=np.int64) + (self.offset + number)
        self._fired(self._rule, int(numbers[-1]) + 1)
        for key, worker, arguments in self._calls:
            batch, keep = arguments.of(rows, self._tell)
            chosen = numbers if keep is None else numbers[keep]
            if len(chosen):
                worker.put(key, chosen, batch)


def _key(rule: str, place: int) -> str:
    """The first CALL of a rule has keys of the rule's name, and each other one its own."""
    return rule if place == 0 else f"{rule}/{place + 1}"


class _Arguments:
    def __init__(self, call: Call) -> None:
        self._names = [argument.name for argument in call.arguments]
        self._compiled = [compile_expression(argument.expression) for argument in call.arguments]

    def of(self, rows: pa.RecordBatch, tell: Tell) -> tuple[pa.RecordBatch, Bools | None]:
        """The arguments of each firing; those that cannot be computed are told, and left out."""
        keep: Bools | None = None
        columns = []
        for compiled in self._compiled:
            value = compiled(rows)
            if value.errors is not None:
                keep = np.ones(rows.num_rows, np.bool_) if keep is None else keep
                for row in np.flatnonzero(value.errors.mask & keep):
                    tell(value.errors.reasons[value.errors.codes[row] - 1], readable(rows.slice(int(row), 1))[0])
                keep &= ~value.errors.mask
            columns.append(value.values)
        batch = pa.RecordBatch.from_arrays(columns, names=self._names)
        return batch if keep is None else batch.filter(pa.array(keep)), keep
