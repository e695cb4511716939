"""Events and table rows as Python objects: the forms that the `tuples` bench compares with columns.

Each form has the same small engine: a circular buffer for the window, a sum that values enter and leave, a dict for
the table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Form(ABC):
    """One way to hold a tuple."""

    name: str

    @abstractmethod
    def event(self, number: int) -> Any:
        """S(ID, A1, A2, TS), with values of its own as a parser would make them."""

    @abstractmethod
    def table_row(self, number: int) -> Any:
        """T(ID, T1, T2, T3, T4)."""

    @abstractmethod
    def average(self, events: list[Any], size: int) -> list[float]:
        """AVG(A1) over the last `size` events, with every event."""

    @abstractmethod
    def join(self, events: list[Any], table: Any) -> list[Any]:
        """ID, A1 and T1 of each event's match."""


class Dicts(Form):
    name = "dict"

    def event(self, number: int) -> dict[str, Any]:
        return {"ID": number, "A1": number + 0.5, "A2": number + 0.25, "TS": 1_000_000 + number}

    def table_row(self, number: int) -> dict[str, Any]:
        return {"ID": number, "T1": 1000 + number, "T2": 2000 + number, "T3": 3000 + number, "T4": 4000 + number}

    def average(self, events: list[dict[str, Any]], size: int) -> list[float]:
        window: list[dict[str, Any] | None] = [None] * size
        total, count, at = 0.0, 0, 0
        answers = []
        for event in events:
            leaving = window[at]
            if leaving is None:
                count += 1
            else:
                total -= leaving["A1"]
            window[at] = event
            total += event["A1"]
            at = at + 1 if at + 1 < size else 0
            answers.append(total / count)
        return answers

    def join(self, events: list[dict[str, Any]], table: dict[int, dict[str, Any]]) -> list[Any]:
        return [{"ID": e["ID"], "A1": e["A1"], "T1": table[e["ID"]]["T1"]} for e in events]


class Lists(Form):
    name = "list"

    def event(self, number: int) -> list[Any]:
        return [number, number + 0.5, number + 0.25, 1_000_000 + number]

    def table_row(self, number: int) -> list[Any]:
        return [number, 1000 + number, 2000 + number, 3000 + number, 4000 + number]

    def average(self, events: list[list[Any]], size: int) -> list[float]:
        window: list[list[Any] | None] = [None] * size
        total, count, at = 0.0, 0, 0
        answers = []
        for event in events:
            leaving = window[at]
            if leaving is None:
                count += 1
            else:
                total -= leaving[1]
            window[at] = event
            total += event[1]
            at = at + 1 if at + 1 < size else 0
            answers.append(total / count)
        return answers

    def join(self, events: list[list[Any]], table: dict[int, list[Any]]) -> list[Any]:
        return [[e[0], e[1], table[e[0]][1]] for e in events]


class Event:
    __slots__ = ("a1", "a2", "id", "ts")

    def __init__(self, id: int, a1: float, a2: float, ts: int) -> None:
        self.id = id
        self.a1 = a1
        self.a2 = a2
        self.ts = ts


class TableRow:
    __slots__ = ("id", "t1", "t2", "t3", "t4")

    def __init__(self, id: int, t1: int, t2: int, t3: int, t4: int) -> None:
        self.id = id
        self.t1 = t1
        self.t2 = t2
        self.t3 = t3
        self.t4 = t4


class Objects(Form):
    name = "object"

    def event(self, number: int) -> Event:
        return Event(number, number + 0.5, number + 0.25, 1_000_000 + number)

    def table_row(self, number: int) -> TableRow:
        return TableRow(number, 1000 + number, 2000 + number, 3000 + number, 4000 + number)

    def average(self, events: list[Event], size: int) -> list[float]:
        window: list[Event | None] = [None] * size
        total, count, at = 0.0, 0, 0
        answers = []
        for event in events:
            leaving = window[at]
            if leaving is None:
                count += 1
            else:
                total -= leaving.a1
            window[at] = event
            total += event.a1
            at = at + 1 if at + 1 < size else 0
            answers.append(total / count)
        return answers

    def join(self, events: list[Event], table: dict[int, TableRow]) -> list[Any]:
        return [(e.id, e.a1, table[e.id].t1) for e in events]


FORMS: tuple[Form, ...] = (Dicts(), Lists(), Objects())
