"""Which items each reader of a store has consumed, and hence which items are no longer needed.

In a FIFO store a reader has consumed everything up to some id; the slowest reader decides what can go. In a RANDOM
store a reader marks items; the items that all readers have marked can go.

Invariants:
1. An item is reported as consumed by all exactly once.
2. A reader's marks are of items that are still there: `forget` is called for every item that is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from penstock.instruments import Account

_MARK_BYTES = 96
_STEP = 256


class Consumer:
    """What one reader has consumed: ids below `floor`, and those in `marks`."""

    __slots__ = ("floor", "marks")

    def __init__(self, consumed: Iterable[int] = ()) -> None:
        self.floor = 0
        self.marks: set[int] = set(consumed)


class OrderedConsumption:
    """Readers that consume older items first."""

    def __init__(self, before: Mapping[str, Sequence[int]]) -> None:
        self._consumers: dict[str, Consumer] = {}
        for name, consumed in before.items():
            self.join(name).floor = max(consumed, default=-1) + 1

    def __contains__(self, name: str) -> bool:
        return name in self._consumers

    def join(self, name: str) -> Consumer:
        return self._consumers.setdefault(name, Consumer())

    def leave(self, name: str) -> int:
        """Returns the id below which the others have consumed everything."""
        del self._consumers[name]
        return self._floor()

    def consume_upto(self, name: str, floor: int) -> int:
        """Everything below `floor`; returns the id below which now all have."""
        consumer = self._consumers[name]
        if floor > consumer.floor:
            consumer.floor = floor
        return consumer.floor if len(self._consumers) == 1 else self._floor()

    def _floor(self) -> int:
        return min((consumer.floor for consumer in self._consumers.values()), default=0)


class MarkedConsumption:
    """Readers that consume items in any order."""

    def __init__(self, before: Mapping[str, Sequence[int]], account: Account) -> None:
        self._account = account
        self._consumers = {name: Consumer(consumed) for name, consumed in before.items()}
        self._resize(0)

    def __contains__(self, name: str) -> bool:
        return name in self._consumers

    def join(self, name: str) -> Consumer:
        return self._consumers.setdefault(name, Consumer())

    def leave(self, name: str) -> set[int]:
        """Returns the items that all others have consumed."""
        del self._consumers[name]
        others = [consumer.marks for consumer in self._consumers.values()]
        return set.intersection(*others) if others else set()

    def consume(self, name: str, item_ids: Sequence[int]) -> set[int]:
        """Marks items that are there; returns those that now all have consumed."""
        self._resize(len(item_ids))
        others = [consumer.marks for other, consumer in self._consumers.items() if other != name]
        self._consumers[name].marks.update(item_ids)
        return set(item_ids).intersection(*others)

    def forget(self, item_ids: Collection[int]) -> None:
        """These items are gone."""
        for consumer in self._consumers.values():
            consumer.marks.difference_update(item_ids)

    def _resize(self, more: int) -> None:
        marks = more + sum(len(consumer.marks) for consumer in self._consumers.values())
        nbytes = -(-marks // _STEP) * _STEP * _MARK_BYTES
        if nbytes != self._account.nbytes:
            self._account.resize(nbytes)
