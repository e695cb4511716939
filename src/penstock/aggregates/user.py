"""User-defined aggregates in Python: the class to derive from, and the state that drives one.

`UserState` calls the user's methods once per row and evaluation, in Python: convenient, and some hundred times slower
than a built-in aggregate. Where `remove` is not defined it keeps the rows of the window and adds them up again at
every evaluation.

Invariants:
1. `_counts[s]` is the number of rows of slot s in the window. A slot without rows has no state and no failure.
2. An exception in user code stops at the slot it concerns: that slot's results are marked as failed until all of its
   rows have left (with kept rows: only the evaluation that failed). Other slots are not touched.
3. The memory of Python objects is estimated, not measured; a `BudgetError` is raised before any row enters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.aggregates.state import AggregateState, Emitted, Rows, Schedule, Snapshot
from penstock.arrays import Int64s, Slots
from penstock.components import component
from penstock.errors import CheckpointError, QueryError
from penstock.store.budget import Account
from penstock.store.charged import ChargedArray
from penstock.types import SqlType

_STATE_BYTES = 400
_ROW_BYTES = 120


class UserAggregate(ABC):
    """Derive from this to define an aggregate function and pass an instance to the app.

    Values come as Python bool, int and float, and None for NULL; a TIMESTAMP is its microseconds since 1970 and a
    DATE its days. STRING is not supported. `result` returns such a value, or None for NULL. The state is a dict with
    a value for each field of `state_schema`, in which it is stored in checkpoints.

    >>> class GeometricMean(UserAggregate):
    ...     name = "GEOMETRIC_MEAN"
    ...     argument_types = (SqlType.BIGINT,)
    ...     result_type = SqlType.DOUBLE
    ...     state_schema = pa.schema([("product", pa.int64()), ("count", pa.int64())])
    ...
    ...     def create(self):
    ...         return {"product": 1, "count": 0}
    ...
    ...     def add(self, state, value):
    ...         state["product"] *= value
    ...         state["count"] += 1
    ...
    ...     def remove(self, state, value):
    ...         state["product"] //= value
    ...         state["count"] -= 1
    ...
    ...     def result(self, state):
    ...         return state["product"] ** (1 / state["count"])
    >>> mean = GeometricMean()
    >>> state = mean.create()
    >>> for value in (2, 3, 8):
    ...     mean.add(state, value)
    >>> mean.remove(state, 3)
    >>> mean.result(state)
    4.0
    """

    name: ClassVar[str]
    argument_types: ClassVar[tuple[SqlType, ...]]
    result_type: ClassVar[SqlType]
    state_schema: ClassVar[pa.Schema]

    @abstractmethod
    def create(self) -> dict[str, Any]:
        """The state of a group without rows."""

    @abstractmethod
    def add(self, state: dict[str, Any], *values: Any) -> None:
        """A row enters the window."""

    def remove(self, state: dict[str, Any], *values: Any) -> None:  # noqa: B027 (may be left out)
        """The oldest row of the group leaves. May be left out: then the window is kept and added up again."""

    @abstractmethod
    def result(self, state: dict[str, Any]) -> Any:
        """The answer for the rows now in the window, of which there is at least one."""


@component("UserState")
class UserState(AggregateState):
    """One user-defined aggregate, for every slot."""

    def __init__(self, aggregate: UserAggregate, account: Account) -> None:
        if SqlType.STRING in (*aggregate.argument_types, aggregate.result_type):
            raise QueryError(
                f"{aggregate.name} takes or returns a STRING, which user-defined aggregates cannot",
                hint="let it take numbers, booleans or times, for example LENGTH(x) or x = 'text'",
            )
        self._aggregate = aggregate
        self._account = account
        self._booleans = tuple(kind is SqlType.BOOLEAN for kind in aggregate.argument_types)
        self._keeps_rows = type(aggregate).remove is UserAggregate.remove
        self._held = ChargedArray(account, np.int64)
        self._states: dict[int, dict[str, Any] | None] = {}
        """Per slot with rows its state, None after a failure. Empty where rows are kept."""
        self._rows: dict[int, deque[tuple[Any, ...]]] = {}

    @property
    def _counts(self) -> Int64s:
        return self._held.array

    def ensure(self, slots: int) -> None:
        if slots > len(self._held):
            self._held.resize(max(16, slots))

    def advance(self, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        self._account.resize(self.nbytes + added.size * (_ROW_BYTES if self._keeps_rows else _STATE_BYTES))
        entering, leaving = self._values(added), self._values(removed)
        entering_slots, leaving_slots, emit_slots = (
            s.tolist() for s in (added.slots, removed.slots, schedule.emit_slots)
        )
        values = np.zeros(len(emit_slots), dtype=self._aggregate.result_type.storage)
        valid = np.zeros(len(emit_slots), dtype=np.bool_)
        failed = np.zeros(len(emit_slots), dtype=np.bool_)
        entered = left = emitted = 0
        for add_upto, remove_upto, emit_upto in zip(
            *(upto.tolist() for upto in (schedule.add_upto, schedule.remove_upto, schedule.emit_upto)), strict=True
        ):
            for row in range(entered, add_upto):
                self._enter(entering_slots[row], entering[row])
            for row in range(left, remove_upto):
                self._leave(leaving_slots[row], leaving[row])
            for index in range(emitted, emit_upto):
                slot = emit_slots[index]
                if self._counts[slot]:
                    try:
                        valid[index] = self._evaluate(slot, values, index)
                    except Exception:  # whatever user code raises is a failed result, not the end of the run
                        failed[index] = True
            entered, left, emitted = add_upto, remove_upto, emit_upto
        self._account.resize(self.nbytes)
        return (Emitted(values, valid, failed if failed.any() else None),)

    def _values(self, rows: Rows) -> list[tuple[Any, ...]]:
        """The rows as tuples of Python values."""
        columns = []
        for argument, boolean in zip(rows.arguments, self._booleans, strict=True):
            column = (argument.values != 0 if boolean else argument.values).tolist()
            if argument.valid is not None:
                column = [v if present else None for v, present in zip(column, argument.valid.tolist(), strict=True)]
            columns.append(column)
        return list(zip(*columns, strict=True)) if columns else [()] * rows.size

    def _enter(self, slot: int, values: tuple[Any, ...]) -> None:
        if slot < 0:
            return
        fresh = self._counts[slot] == 0
        self._counts[slot] += 1
        if self._keeps_rows:
            self._rows.setdefault(slot, deque()).append(values)
            return
        try:
            if fresh:
                self._states[slot] = self._aggregate.create()
            state = self._states[slot]
            if state is not None:
                self._aggregate.add(state, *values)
        except Exception:  # invariant 2
            self._states[slot] = None

    def _leave(self, slot: int, values: tuple[Any, ...]) -> None:
        if slot < 0:
            return
        self._counts[slot] -= 1
        if self._counts[slot] == 0:
            self._states.pop(slot, None)
            self._rows.pop(slot, None)
        elif self._keeps_rows:
            self._rows[slot].popleft()
        else:
            state = self._states[slot]
            try:
                if state is not None:
                    self._aggregate.remove(state, *values)
            except Exception:  # invariant 2
                self._states[slot] = None

    def _evaluate(self, slot: int, values: Any, index: int) -> bool:
        """Puts the result in its place; False for NULL. Raises when there is none."""
        if self._keeps_rows:
            state: dict[str, Any] | None = self._aggregate.create()
            assert state is not None, "create returns a dict"
            for row in self._rows[slot]:
                self._aggregate.add(state, *row)
        else:
            state = self._states[slot]
        if state is None:
            raise ValueError("an earlier row failed")
        value = self._aggregate.result(state)
        if value is None:
            return False
        if values.dtype.kind == "i" and not isinstance(value, int | np.integer):
            raise TypeError(f"{value!r} is no {self._aggregate.result_type}")
        values[index] = value
        return True

    def reset(self, slots: Slots) -> None:
        self._counts[slots] = 0
        for slot in slots.tolist():
            self._states.pop(slot, None)
            self._rows.pop(slot, None)
        self._account.resize(self.nbytes)

    @property
    def nbytes(self) -> int:
        kept = int(self._counts.sum()) if self._keeps_rows else 0
        return self._counts.nbytes + _STATE_BYTES * (len(self._states) + len(self._rows)) + _ROW_BYTES * kept

    def snapshot(self) -> Snapshot:
        """States as an Arrow IPC stream of the declared schema; kept rows as columns, slot by slot."""
        alive = [slot for slot, state in self._states.items() if state is not None]
        rows = [row for kept in self._rows.values() for row in kept]
        return {
            "counts": self._counts,
            "failed": np.array([slot for slot, state in self._states.items() if state is None], dtype=np.int64),
            "slots": np.array(alive, dtype=np.int64),
            "states": self._encode([self._states[slot] for slot in alive]),
            "row_slots": np.array(list(self._rows), dtype=np.int64),
            "rows": [
                {
                    "values": np.array([row[i] or 0 for row in rows], dtype=kind.storage),
                    "valid": np.array([row[i] is not None for row in rows], dtype=np.bool_),
                }
                for i, kind in enumerate(self._aggregate.argument_types)
            ],
        }

    def restore(self, snapshot: Snapshot) -> None:
        self._held.set(snapshot["counts"])
        with pa.ipc.open_stream(snapshot["states"]) as reader:
            states = reader.read_all().to_pylist()
        self._states = dict(zip(snapshot["slots"].tolist(), states, strict=True))
        self._states.update((slot, None) for slot in snapshot["failed"].tolist())
        columns = [
            [(bool(v) if boolean else v) if present else None for v, present in zip(*pair, strict=True)]
            for pair, boolean in zip(
                ((column["values"].tolist(), column["valid"].tolist()) for column in snapshot["rows"]),
                self._booleans,
                strict=True,
            )
        ]
        rows = iter(zip(*columns, strict=True))
        self._rows = {
            slot: deque(next(rows) for _ in range(int(self._counts[slot]))) for slot in snapshot["row_slots"].tolist()
        }
        self._account.resize(self.nbytes)

    def _encode(self, states: list[dict[str, Any] | None]) -> bytes:
        sink = pa.BufferOutputStream()
        schema = self._aggregate.state_schema
        try:
            with pa.ipc.new_stream(sink, schema) as writer:
                writer.write_table(pa.Table.from_pylist(states, schema=schema))
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise CheckpointError(
                f"the state of {self._aggregate.name} does not fit its state_schema: {error}\n"
                "  hint: let every field of the schema hold what create, add and remove put into the dict"
            ) from error
        return bytes(sink.getvalue())
