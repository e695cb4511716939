"""What a join must answer, computed the slow way from the contract: every window at every evaluation, every pair.

Nothing here is shared with the engine. A row of a stream is a dict with `t` (seconds), `n`, `k`, `s`, `v`; a row of the
join is a tuple of such rows, None where an outer join has none.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Joined = tuple[Row | None, ...]


@dataclass(frozen=True)
class Condition:
    """SQL over sides named x0, x1, ..., and its truth for a row of the join: True, False or None."""

    sql: str
    holds: Callable[[Joined], bool | None]
    sides: frozenset[int]


@dataclass(frozen=True)
class Side:
    stream: str
    rows: int | None
    seconds: int | None
    kind: str = "INNER"
    on: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Case:
    sides: tuple[Side, ...]
    where: tuple[Condition, ...]
    emit: str
    slide: int | None
    aggregates: bool = False
    order: list[str] = field(default_factory=list)

    @property
    def sql(self) -> str:
        slide = f" SLIDE {self.slide} SECONDS" if self.slide else ""
        text = ""
        for place, side in enumerate(self.sides):
            extent = f"ROWS {side.rows}" if side.rows else f"RANGE {side.seconds} SECONDS"
            item = f"{side.stream} [{extent}{slide}] AS x{place}"
            if place == 0:
                text = item
            elif side.on:
                text += f" {side.kind} JOIN {item} ON {' AND '.join(f'({c.sql})' for c in side.on)}"
            else:
                text += f", {item}" if side.kind == "INNER" else f" CROSS JOIN {item}"
        where = f" WHERE {' AND '.join(f'({c.sql})' for c in self.where)}" if self.where else ""
        if self.aggregates:
            shown = "x0.k AS k, COUNT(*) AS c, SUM(x1.v) AS total"
            return f"SELECT {self.emit} {shown} FROM {text}{where} GROUP BY x0.k"
        shown = ", ".join(f"x{p}.{c} AS {c}{p}" for p in range(len(self.sides)) for c in ("n", "k", "s", "v"))
        return f"SELECT {self.emit} {shown} FROM {text}{where}"


def every(parts: Sequence[Condition], row: Joined) -> bool:
    return all(part.holds(row) is True for part in parts)


def joined(case: Case, contents: Sequence[Sequence[Row]]) -> list[Joined]:
    """R(k), from left to right."""
    nothing: Joined = (None,) * len(case.sides)
    so_far: list[Joined] = [(row, *nothing[1:]) for row in contents[0]]
    for place, side in enumerate(case.sides[1:], 1):
        found: list[Joined] = []
        matched: set[int] = set()
        for left in so_far:
            any_match = False
            for number, row in enumerate(contents[place]):
                pair = (*left[:place], row, *nothing[place + 1 :])
                if every(side.on, pair):
                    any_match = True
                    matched.add(number)
                    found.append(pair)
            if not any_match and side.kind in ("LEFT", "FULL"):
                found.append(left)
        if side.kind in ("RIGHT", "FULL"):
            alone = [row for number, row in enumerate(contents[place]) if number not in matched]
            found += [(*nothing[:place], row, *nothing[place + 1 :]) for row in alone]
        so_far = found
    return [row for row in so_far if every(case.where, row)]


def answers(case: Case, streams: dict[str, list[Row]]) -> list[tuple[Any, ...]]:
    """All results in order: (window_start, window_end, values...)."""
    names = list(dict.fromkeys(side.stream for side in case.sides))
    events = sorted(
        ((row["t"], names.index(name), row["n"], name, row) for name in names for row in streams[name]),
        key=lambda event: event[:3],
    )
    results: list[tuple[Any, ...]] = []
    before: list[tuple[Any, ...]] = []
    for end, seen, arriving in evaluations(case, events):
        contents, start = windows(case, seen, end)
        place = {id(row): number for number, event in enumerate(seen) for row in (event[4],)}
        relation = joined(case, contents)
        relation.sort(key=lambda row: [-1 if own is None else place[id(own)] for own in row])
        if arriving is not None and not case.emit:
            relation = [row for row in relation if any(own is arriving for own in row)]
        shown = grouped(relation) if case.aggregates else [values(row) for row in relation]
        emitted = shown
        if case.emit == "ISTREAM":
            emitted = difference(shown, before)
        elif case.emit == "DSTREAM":
            emitted = difference(before, shown)
        if case.slide is None and case.emit in ("ISTREAM", "DSTREAM"):
            emitted = sorted(emitted, key=repr)  # of equal rows any may be the one that remains
        before = shown
        results += [(start, end, *row) for row in emitted]
    return results


def evaluations(case: Case, events: list[Any]) -> Any:
    """(window_end, the events up to there, the arriving row or None)"""
    if not events:
        return
    if case.slide is None:
        for number, event in enumerate(events):
            yield event[0], events[: number + 1], event[4]
        return
    first, last = events[0][0] // case.slide + 1, events[-1][0] // case.slide + 1
    for boundary in range(first, last + 1):
        end = boundary * case.slide
        yield end, [event for event in events if event[0] < end], None


def windows(case: Case, seen: list[Any], end: int) -> tuple[list[list[Row]], Any]:
    contents = []
    starts = []
    for side in case.sides:
        rows = [event[4] for event in seen if event[3] == side.stream]
        if side.rows is not None:
            rows = rows[-side.rows :]
            starts += [rows[0]["t"]] if rows else []
        else:
            assert side.seconds is not None
            first = end - side.seconds + (case.slide is None)
            rows = [row for row in rows if row["t"] >= first]
            starts.append(end - side.seconds)
        contents.append(rows)
    return contents, min(starts, default=end)


def values(row: Joined) -> tuple[Any, ...]:
    return tuple(
        itertools.chain.from_iterable((None,) * 4 if r is None else (r["n"], r["k"], r["s"], r["v"]) for r in row)
    )


def grouped(relation: list[Joined]) -> list[tuple[Any, ...]]:
    groups: dict[Any, list[Joined]] = {}
    for row in relation:
        groups.setdefault(None if row[0] is None else row[0]["k"], []).append(row)
    keys = sorted(groups, key=lambda key: (key is not None, key or 0))
    found = []
    for key in keys:
        numbers = [row[1]["v"] for row in groups[key] if row[1] is not None and row[1]["v"] is not None]
        found.append((key, len(groups[key]), sum(numbers) if numbers else None))
    return found


def difference(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The copies of each row beyond the number that the other has: the last ones."""
    theirs, seen, found = Counter(other), Counter[tuple[Any, ...]](), []
    for row in one:
        seen[row] += 1
        if seen[row] > theirs[row]:
            found.append(row)
    return found
