"""The functions that the rules of an app call.

Invariant: calls that wait are saved with the app, whatever has become of their rule. What was fired after a checkpoint
is fired again, with the same numbers, when the events after it come again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from penstock.calls.function import CallFailed, Function, PythonFunction
from penstock.calls.worker import Worker
from penstock.components import component
from penstock.engine.firings import Firings
from penstock.engine.outlet import Outlet
from penstock.errors import QueryError
from penstock.lang.query import FunctionDef, Rule
from penstock.rejects import Reject
from penstock.store.budget import Budget


def registered(functions: Mapping[str, Callable[..., object]]) -> dict[str, Function]:
    """Python functions under the names that rules call them by."""
    for name, function in functions.items():
        if not callable(function):
            raise QueryError(f"the function '{name}' cannot be called: it is a {type(function).__name__}")
    return {name: PythonFunction(function) for name, function in functions.items()}


@component("RuleCalls")
class RuleCalls:
    """`functions` are those that were registered; those of programs are declared."""

    def __init__(
        self, functions: Mapping[str, Callable[..., object]], budget: Budget, reject: Reject, *, synchronous: bool
    ) -> None:
        self._budget = budget
        self._reject = reject
        self._synchronous = synchronous
        self._workers: dict[str, Worker] = {}
        self._is_checked = False
        self._has_left = False
        """Whether there are synchronous calls of a checkpoint, which no firing has brought."""
        self._firings = Firings(reject)
        for name, function in registered(functions).items():
            self._add(name, function)

    def _add(self, name: str, function: Function) -> None:
        account = self._budget.account(f"calls of {name} that wait")
        self._is_checked = False
        self._workers[name] = Worker(name, function, account, self._reject, synchronous=self._synchronous)

    @property
    def names(self) -> Collection[str]:
        return self._workers.keys()

    def declare(self, functions: Iterable[FunctionDef]) -> None:
        for definition in functions:
            # An HTTP client takes a tenth of a second to import, and most apps have no such function.
            from penstock.calls.http import HttpFunction

            self._add(definition.name, HttpFunction(definition))

    def check(self) -> None:
        """Refuses functions that cannot be called here, before the first event."""
        if not self._is_checked:
            for worker in self._workers.values():
                worker.check()
            self._is_checked = True

    def attach(self, rule: Rule, outlet: Outlet) -> None:
        """From now on what comes out there is what the rule fires."""
        self._firings.attach(rule, outlet, self._workers.__getitem__)

    def begin(self) -> None:
        """Before events are taken: synchronous calls that a checkpoint left are made, and what has failed is told."""
        self.check()
        if self._has_left:
            self._has_left = False
            self.wait()
        self.settle()

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
        workers = {name: worker.snapshot() for name, worker in self._workers.items()}
        return {"fired": self._firings.snapshot(), "workers": workers}

    def restore(self, snapshot: dict[str, Any], outlets: Mapping[str, Outlet]) -> None:
        """`outlets` are those of the rules, which have been restored."""
        self.check()
        self._firings.restore(snapshot["fired"], outlets)
        for name, saved in snapshot["workers"].items():
            worker = self._workers.get(name)
            if worker is not None:
                worker.restore(saved)
            else:
                self._reject_all(name, saved)
        self._has_left = self._synchronous

    def _reject_all(self, name: str, saved: dict[str, Any]) -> None:
        """Calls of a function that is there no more."""
        account = self._budget.account(f"calls of {name}")
        gone = Worker(name, _RemovedFunction(), account, self._reject, synchronous=True)
        gone.restore(saved)
        gone.wait()
        gone.settle()
        account.close()


class _RemovedFunction:
    def check(self) -> None:
        pass

    def call(self, arguments: Mapping[str, Any], key: str, pause: Any) -> None:
        raise CallFailed("the function is not there any more")

    def close(self) -> None:
        pass
