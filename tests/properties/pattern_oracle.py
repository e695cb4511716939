"""Patterns recomputed in plain Python from their definition, by trying all combinations of events.

A match takes one part of each OR, gives every plain element an event of its own such that the parts of each SEQ follow
each other, and fulfils the conditions whose elements it has. Nothing here knows of keys, links or orders of elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Item:
    """An element; `role` is "", "!" or "+"."""

    name: str
    stream: str
    role: str = ""
    one: bool = False

    def __str__(self) -> str:
        negated, repeated = ("!", "") if self.role == "!" else ("", self.role)
        return f"{'ONE ' if self.one else ''}{negated}{self.stream}{repeated} {self.name}"


@dataclass(frozen=True)
class Group:
    """SEQ, AND or OR."""

    kind: str
    parts: tuple[Item | Group, ...]

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.parts))})"


@dataclass(frozen=True)
class Event:
    """`position` is its place in the total order of the streams."""

    position: int
    time: int
    stream: str
    row: Row


Taken = dict[str, Event | list[Event]]
"""What a match has: an event of each plain element, all events of each repeated one."""


@dataclass(frozen=True)
class Condition:
    """In SQL, the elements that it names, and what it says of them: the values of single events, lists of repeated
    elements that are aggregated. `sql` names no element twice. `equal` is the column that it says two elements have in
    common."""

    sql: str
    names: tuple[str, ...]
    holds: Callable[[dict[str, Any]], bool]
    equal: str | None = None


def items(part: Item | Group) -> Iterator[Item]:
    if isinstance(part, Item):
        yield part
    else:
        for below in part.parts:
            yield from items(below)


def without_or(part: Item | Group) -> Iterator[Item | Group]:
    """The pattern with each OR decided."""
    if isinstance(part, Item):
        yield part
    elif part.kind == "OR":
        for below in part.parts:
            yield from without_or(below)
    else:
        for chosen in product(*map(list, map(without_or, part.parts))):
            yield Group(part.kind, tuple(chosen))


def matches(pattern: Group, within: int, conditions: list[Condition], events: list[Event]) -> list[tuple[int, Taken]]:
    """All matches with their times, in the order in which they come out. `events` are in the total order."""
    order = [item.name for item in items(pattern)]
    found: list[tuple[tuple[Any, ...], int, Taken]] = []
    for decided in without_or(pattern):
        for time, waits, last, taken in _of_one(decided, within, conditions, events):
            places = tuple(e.position if isinstance(e := taken.get(name), Event) else 10**9 for name in order)
            found.append(((time, waits, last, places), time, taken))
    found.sort(key=lambda one: one[0])
    ones = {item.name for item in items(pattern) if item.one}
    used: set[tuple[str, int]] = set()
    shown = []
    for _, time, taken in found:
        wanted = set()
        for name in ones & taken.keys():
            events_of = taken[name]
            wanted |= {(name, e.position) for e in (events_of if isinstance(events_of, list) else [events_of])}
        if not wanted & used:
            used |= wanted
            shown.append((time, taken))
    return shown


def _of_one(
    pattern: Item | Group, within: int, conditions: list[Condition], events: list[Event]
) -> Iterator[tuple[int, bool, int, Taken]]:
    there = list(items(pattern))
    names = {item.name for item in there}
    mine = [c for c in conditions if set(c.names) <= names]
    roles = {item.name: item.role for item in there}
    plain = [item for item in there if item.role == ""]
    on_plain = [c for c in mine if all(roles[name] == "" for name in c.names)]
    keys = [column for column in ("k", "s", "x") if _connects(column, mine, names)]
    for chosen in product(*([e for e in events if e.stream == item.stream] for item in plain)):
        taken: Taken = {item.name: e for item, e in zip(plain, chosen, strict=True)}
        if len({e.position for e in chosen}) < len(chosen) or not _is_ordered(pattern, taken):
            continue
        if not all(_holds(c, taken) for c in on_plain):
            continue
        if any(e.row[column] is None or e.row[column] != chosen[0].row[column] for e in chosen for column in keys):
            continue  # all are in one partition, and NULL is in none
        match = _completed(there, within, mine, events, taken)
        if match is not None:
            yield match


def _connects(column: str, conditions: list[Condition], names: set[str]) -> bool:
    """Whether equalities of a column connect all elements: these are partitions then."""
    edges = [c.names for c in conditions if c.equal == column]
    reached = set(edges[0]) if edges else set()
    for _ in edges:
        reached |= {name for edge in edges if reached & set(edge) for name in edge}
    return reached >= names


def _is_ordered(pattern: Item | Group, taken: Taken) -> bool:
    """Whether the parts of each SEQ follow each other."""
    if isinstance(pattern, Item):
        return True
    if pattern.kind == "SEQ":
        before = -1
        for part in pattern.parts:
            positions = [taken[i.name].position for i in items(part) if i.role == ""]  # type: ignore[union-attr]
            if positions and min(positions) <= before:
                return False
            before = max([before, *positions])
    return all(_is_ordered(part, taken) for part in pattern.parts)


def _completed(
    there: list[Item], within: int, conditions: list[Condition], events: list[Event], taken: Taken
) -> tuple[int, bool, int, Taken] | None:
    """With the repeated elements, if all is as it must be. `there` has the elements as they are written: what is not
    plain lies between what is written before and after it."""
    plain = [taken[i.name] for i in there if i.role == ""]
    first, last = min(plain, key=lambda e: e.position), max(plain, key=lambda e: e.position)  # type: ignore[union-attr]
    assert isinstance(first, Event)
    assert isinstance(last, Event)
    waits = there[-1].role != ""
    if last.time - first.time >= within:
        return None
    taken = dict(taken)
    for item in (i for i in there if i.role == "+"):
        mine = [c for c in conditions if item.name in c.names]
        raw = [c for c in mine if not _aggregates(c, item.name)]
        chosen = [
            e
            for e in _between(there, item, within, events, taken, first, last)
            if all(_holds(c, {**taken, item.name: e}) for c in raw)
        ]
        if not chosen:
            return None
        taken[item.name] = chosen
    everything = [e for es in taken.values() for e in (es if isinstance(es, list) else [es])]
    first = min(everything, key=lambda e: e.position)
    last = max(everything, key=lambda e: e.position)
    if last.time - first.time >= within:
        return None
    for item in (i for i in there if i.role == "!"):
        mine = [c for c in conditions if item.name in c.names]
        for e in _between(there, item, within, events, taken, first, last):
            if all(_holds(c, {**taken, item.name: e}) for c in mine):
                return None
    absent = {i.name for i in there if i.role == "!"}
    repeated = {i.name for i in there if i.role == "+"}
    whole = [c for c in conditions if any(_aggregates(c, n) for n in repeated) and not absent & set(c.names)]
    if not all(_holds(c, taken) for c in whole):
        return None
    time = first.time + within - 1 if waits else last.time
    return time, waits, -1 if waits else last.position, taken


def _between(
    there: list[Item], item: Item, within: int, events: list[Event], taken: Taken, first: Event, last: Event
) -> list[Event]:
    """The events of its stream in the place of an element that is not plain."""
    at = there.index(item)
    before = [e for i in there[:at] if i.name in taken for e in _list(taken[i.name])]
    behind = [e for i in there[at + 1 :] if i.name in taken for e in _list(taken[i.name])]
    found = []
    for e in events:
        if e.stream != item.stream:
            continue
        if before and e.position <= max(b.position for b in before):
            continue
        if behind and e.position >= min(b.position for b in behind):
            continue
        if not before and e.time <= last.time - within:
            continue
        if not behind and e.time >= first.time + within:
            continue
        found.append(e)
    return found


def _list(taken: Event | list[Event]) -> list[Event]:
    return taken if isinstance(taken, list) else [taken]


def _aggregates(condition: Condition, name: str) -> bool:
    return f"({name}." in condition.sql


def _holds(condition: Condition, taken: Taken) -> bool:
    values = {
        name: [e.row for e in found] if isinstance(found := taken[name], list) else found.row
        for name in condition.names
    }
    return condition.holds(values)
