"""Value-based indices of a store in memory: which items have these values.

Items are grouped by the attributes that are compared for equality; other comparisons are tried on the items of a group.
A NULL or NaN equals nothing, so items with one in a compared attribute are never found.

Invariants:
1. The entries of a group are in the order of their ids.
2. Entries of items that are gone are passed over, and removed when they are more than half of all (lazy collection).
3. The account holds what the entries take.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence

from penstock.errors import StorageError
from penstock.instruments import Account, Row, Value
from penstock_bench.storage_manager.items import ItemCodec
from penstock_bench.storage_manager.properties import Comparison, IndexSchema, place_of

_ENTRY_BYTES = 160
_STEP = 256
"""The account is resized for so many entries at once."""


class Matcher:
    """Whether a row answers an index schema for given values."""

    def __init__(self, schema: IndexSchema, codec: ItemCodec) -> None:
        if codec.schema is None:
            raise StorageError("items without a schema cannot be found by value; give the store a schema")
        if not schema.terms:
            raise StorageError("an index needs at least one attribute")
        self._codec = codec
        self.schema = schema
        terms = [(place_of(codec.schema, attribute), comparison) for attribute, comparison in schema.terms]
        self._terms = terms
        self._tests = [(place, comparison.holds) for place, comparison in terms]
        self._equal_terms = [at for at, (_, comparison) in enumerate(terms) if comparison is Comparison.EQ]
        self.equal_places = tuple(place for place, comparison in terms if comparison is Comparison.EQ)

    def admit(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """Values to look for, one for each attribute."""
        if len(values) != len(self._terms):
            raise StorageError(f"the index has {len(self._terms)} attributes and was asked for {len(values)} values")
        lookup = self._codec.lookup
        return tuple([lookup(place, value) for (place, _), value in zip(self._terms, values, strict=True)])

    def key(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """Of values to look for those that are compared for equality."""
        return tuple([values[at] for at in self._equal_terms])

    def matches(self, row: Row, values: Sequence[Value]) -> bool:
        for (place, holds), value in zip(self._tests, values, strict=True):
            found = row[place]
            if found is None or value is None or not holds(found, value):
                return False
        return True


class ValueIndices:
    """The indices of one store."""

    def __init__(self, codec: ItemCodec, account: Account) -> None:
        self._codec = codec
        self._account = account
        self._indices: dict[IndexSchema, tuple[Matcher, dict[tuple[Value, ...], list[int]]]] = {}
        self._entries = 0
        self.any = False
        """Whether there is one."""

    def add(self, schema: IndexSchema, items: Iterable[tuple[int, Row]]) -> None:
        """A new index over the items there are."""
        if schema in self._indices:
            return
        matcher = Matcher(schema, self._codec)
        groups: dict[tuple[Value, ...], list[int]] = {}
        count = 0
        for item_id, row in items:
            key = _key(row, matcher.equal_places)
            if key is not None:
                groups.setdefault(key, []).append(item_id)
                count += 1
        self._count(count)
        self._indices[schema] = matcher, groups
        self.any = True

    def reserve(self) -> None:
        """Makes sure of room for one more item; `BudgetError` and no change if there is none."""
        self._count(len(self._indices))
        self._entries -= len(self._indices)

    def insert(self, item_id: int, row: Row) -> None:
        """A new item, with the greatest id."""
        for matcher, groups in self._indices.values():
            key = _key(row, matcher.equal_places)
            if key is not None:
                groups.setdefault(key, []).append(item_id)
        self._entries += len(self._indices)

    def change(self, item_id: int, old: Row, new: Row) -> None:
        """An item has other values now."""
        for matcher, groups in self._indices.values():
            before, after = _key(old, matcher.equal_places), _key(new, matcher.equal_places)
            if before == after:
                continue
            if before is not None:
                groups[before].remove(item_id)
                if not groups[before]:
                    del groups[before]
            if after is not None:
                insort(groups.setdefault(after, []), item_id)

    def candidates(self, schema: IndexSchema, values: Sequence[Value]) -> tuple[Matcher, Sequence[int]]:
        """The matcher, which says whether an item matches, and in rising order the ids whose values agree in the
        columns that are compared for equality. Some of these items may be gone."""
        matcher, groups = self._indices[schema]
        return matcher, groups.get(matcher.key(values), ())

    def collect(self, live: int, is_live: Callable[[int], bool]) -> None:
        """Removes entries of items that are gone, if there are many."""
        if self._entries <= 2 * live * len(self._indices) + _STEP:
            return
        entries = 0
        for _, groups in self._indices.values():
            for key in list(groups):
                groups[key] = [item_id for item_id in groups[key] if is_live(item_id)]
                entries += len(groups[key])
                if not groups[key]:
                    del groups[key]
        self._entries = 0
        self._count(entries)

    def _count(self, more: int) -> None:
        entries = self._entries + more
        nbytes = -(-entries // _STEP) * _STEP * _ENTRY_BYTES
        if nbytes != self._account.nbytes:
            self._account.resize(nbytes)
        self._entries = entries


def _key(row: Row, places: tuple[int, ...]) -> tuple[Value, ...] | None:
    """The values at some places; None if one of them equals nothing."""
    key = tuple([row[place] for place in places])
    for part in key:
        if part is None or part != part:
            return None
    return key
