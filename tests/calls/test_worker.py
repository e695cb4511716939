"""Calls that wait: their order, their bound, failures, and what is saved."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.calls import worker as module
from penstock.calls.function import CallFailed, Pause, PythonFunction
from penstock.calls.worker import Worker
from penstock.errors import BudgetError
from penstock.store.budget import Budget


class Gate:
    """A function that takes a call in when it is let, and fails on negative numbers."""

    def __init__(self) -> None:
        self.open = threading.Semaphore(0)
        self.keys: list[str] = []
        self.begun = threading.Event()

    def check(self) -> None:
        pass

    def call(self, arguments: Mapping[str, Any], key: str, pause: Pause) -> None:
        self.begun.set()
        while not self.open.acquire(timeout=0.01):
            if not pause(0.001):
                break
        if arguments["x"] < 0:
            raise CallFailed("negative")
        self.keys.append(key)

    def close(self) -> None:
        pass


class Bench:
    def __init__(self, budget: int = 1_000_000, *, synchronous: bool = False) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.gate = Gate()
        self.account = Budget(budget).account("calls")
        self.worker = Worker(
            "f", self.gate, self.account, lambda reason, row: self.told.append((reason, row)), synchronous=synchronous
        )

    def put(self, *values: int, first: int = 0) -> None:
        rows = pa.RecordBatch.from_pydict({"x": pa.array(values, pa.int64())})
        self.worker.put("r", np.arange(first, first + len(values)), rows)


def test_calls_are_made_in_order_and_failures_told() -> None:
    bench = Bench()
    bench.put(1, -2, 3)
    bench.put(4, first=3)
    bench.gate.open.release(4)
    assert bench.worker.wait(10)
    bench.worker.settle()
    assert bench.gate.keys == ["r:0", "r:2", "r:3"]
    assert bench.told == [("CALL f: negative", {"idempotency_key": "r:1", "x": -2})]
    assert (bench.worker.made, bench.account.nbytes) == (3, 0)
    bench.worker.close(abandon=False)


def test_whoever_brings_too_many_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    bench = Bench()
    bench.put(1, 2)
    bringing = threading.Thread(target=lambda: bench.put(3, first=2))
    bringing.start()
    bringing.join(0.05)
    assert bringing.is_alive()
    bench.gate.open.release(1)
    bringing.join(10)
    assert not bringing.is_alive()
    bench.gate.open.release(2)
    assert bench.worker.wait(10)
    bench.worker.close(abandon=False)
    assert bench.gate.keys == ["r:0", "r:1", "r:2"]


def test_a_full_budget_pushes_back_until_calls_are_through() -> None:
    bench = Bench(budget=40)
    bench.put(1, 2)
    bringing = threading.Thread(target=lambda: bench.put(3, first=2))
    bringing.start()
    bringing.join(0.05)
    assert bringing.is_alive()
    bench.gate.open.release(3)
    bringing.join(10)
    assert bench.worker.wait(10)
    with pytest.raises(BudgetError):
        bench.put(*range(100), first=3)
    bench.worker.close(abandon=False)


def test_what_waits_is_saved_with_the_call_under_way() -> None:
    bench = Bench()
    bench.put(-1, 2, 3)
    bench.gate.open.release(1)
    bench.gate.begun.wait(10)
    while bench.worker.waiting == 3:
        pass
    saved = bench.worker.snapshot()
    bench.worker.close(abandon=True)
    assert bench.gate.keys == []

    later = Bench()
    later.worker.restore(saved)
    later.gate.open.release(2)
    assert later.worker.wait(10)
    later.worker.settle()
    later.worker.close(abandon=False)
    assert later.gate.keys == ["r:1", "r:2"]
    assert later.told == [("CALL f: negative", {"idempotency_key": "r:0", "x": -1})]


def test_closing_tries_each_call_once() -> None:
    bench = Bench()
    bench.put(1, 2)
    bench.worker.close(abandon=False)
    assert bench.gate.keys == ["r:0", "r:1"]


def test_an_exit_in_a_function_is_a_failure_like_any_other() -> None:
    def leave(x: int, idempotency_key: str) -> None:
        raise SystemExit(3)

    bench = Bench()
    bench.worker._function = PythonFunction(leave)
    bench.put(1)
    assert bench.worker.wait(10)
    bench.worker.settle()
    assert [reason for reason, _ in bench.told] == ["CALL f: SystemExit: 3"]


def test_synchronous_calls_are_made_before_put_returns() -> None:
    bench = Bench(synchronous=True)
    bench.gate.open.release(3)
    bench.put(1, -2, 3)
    assert bench.gate.keys == ["r:0", "r:2"]
    assert len(bench.told) == 1


def test_synchronous_calls_of_a_checkpoint_are_made_before_those_that_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else makes them: whoever brought more waited for ever."""
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    before = Bench()
    before.put(1, 2)
    saved = before.worker.snapshot()
    before.worker.close(abandon=True)
    for budget in (1_000_000, 60):
        after = Bench(budget, synchronous=True)
        after.gate.open.release(10)
        after.worker.restore(saved)
        after.put(3, first=2)
        assert after.gate.keys == ["r:0", "r:1", "r:2"]
        assert after.worker.waiting == 0
        after.worker.close(abandon=False)


def test_synchronous_calls_that_are_abandoned_end() -> None:
    bench = Bench(synchronous=True)
    bench.worker.close(abandon=True)
    bench.put(1)
    assert bench.worker.waiting == 1
    assert not bench.worker.wait()
