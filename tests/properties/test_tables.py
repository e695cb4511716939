"""Tables against a plain simulation: events in their total order, each with its changes first and its reads then.

Streams come out of order, with equal times and NULL keys, in any batches, with a restart in the middle. Tables have a
time to live or none; the simulation takes a row out before the first event, or moment, for which it is over.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App

Event = dict[str, Any]
Row = dict[str, Any]


class Contents(dict[Any, Row]):
    """A table as of `time`. What is set was changed then, and is there for less than `ttl` from then on."""

    def __init__(self, ttl: int | None) -> None:
        super().__init__()
        self.ttl, self.time = ttl, 0
        self.written: dict[Any, int] = {}

    def __setitem__(self, key: Any, row: Row) -> None:
        super().__setitem__(key, row)
        self.written[key] = self.time

    def come_to(self, time: int) -> None:
        self.time = time
        if self.ttl is not None:
            for key in [key for key in self if self.written[key] + self.ttl <= time]:
                del self[key]


DECLARED = """
CREATE STREAM a (t TIMESTAMP, k INT, x INT, u STRING, EVENT TIME t LATENESS 5 MICROSECONDS);
CREATE STREAM b (t TIMESTAMP, k INT, x INT, u STRING, EVENT TIME t LATENESS 5 MICROSECONDS);
CREATE TABLE T (k INT PRIMARY KEY, n BIGINT, w STRING){ttl};
"""
TTL = " WITH ('ttl' = '{ttl} MICROSECONDS')"


@dataclass(frozen=True)
class Change:
    """A statement with {s} for the stream, and what it does to the table."""

    text: str
    run: Callable[[Contents, Event], None]


def put(table: Contents, key: Any, **columns: Any) -> None:
    if key is not None:
        table[key] = {"n": None, "w": None} | table.get(key, {}) | columns


def add(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other


def accumulate(table: Contents, e: Event) -> None:
    row = table.get(e["k"], {})
    n = row.get("n")
    put(table, e["k"], n=add(0 if n is None else n, e["x"]), w=e["u"])


def insert(table: Contents, e: Event) -> None:
    if e["k"] not in table:
        put(table, e["k"], n=e["x"], w=e["u"])


def update(table: Contents, e: Event) -> None:
    if e["k"] in table:
        table[e["k"]] = table[e["k"]] | {"n": add(table[e["k"]]["n"], e["x"])}


def double(table: Contents, e: Event) -> None:
    row = table.get(e["k"])
    if row is not None and row["n"] is not None and e["x"] is not None and row["n"] > e["x"]:
        table[e["k"]] = {"n": row["n"] % 1000 * 2, "w": e["u"]}


def delete(table: Contents, e: Event) -> None:
    if e["x"] == 3:
        table.pop(e["k"], None)


def delete_large(table: Contents, e: Event) -> None:
    for key in [k for k, r in table.items() if r["n"] is not None and e["x"] is not None and r["n"] > e["x"] + 5]:
        del table[key]


def zero(table: Contents, e: Event) -> None:
    for key, row in table.items():
        if row["w"] is not None and row["w"] == e["u"]:
            table[key] = row | {"n": 0}


def delete_lonely(table: Contents, e: Event) -> None:
    """Those that no other row has the number of, all at once."""
    lonely = [k for k, r in table.items() if not any(same(o["n"], r["n"]) for other, o in table.items() if other != k)]
    for key in lonely:
        if same(table[key]["w"], e["u"]):
            del table[key]


def put_where_few(table: Contents, e: Event) -> None:
    if sum(same(row["w"], e["u"]) for row in table.values()) < 2:
        put(table, e["k"], n=e["x"])


def insert_below(table: Contents, e: Event) -> None:
    if e["x"] is not None and any(row["n"] is not None and row["n"] > e["x"] for row in table.values()):
        insert(table, e)


def count_alike(table: Contents, e: Event) -> None:
    row = table.get(e["k"])
    if row is not None and sum(same(other["w"], row["w"]) for other in table.values()) != 1:
        table[e["k"]] = row | {"n": add(row["n"], 1)}


def same(one: Any, other: Any) -> bool:
    return one is not None and one == other


CHANGES = [
    Change("ON {s} UPSERT INTO T (k, n, w) VALUES ({s}.k, COALESCE(T.n, 0) + {s}.x, {s}.u)", accumulate),
    Change("ON {s} UPSERT INTO T (k, w) VALUES ({s}.k, {s}.u)", lambda t, e: put(t, e["k"], w=e["u"])),
    Change("ON {s} INSERT INTO T VALUES ({s}.k, {s}.x, {s}.u)", insert),
    Change("ON {s} UPDATE T SET n = n + x WHERE T.k = {s}.k", update),
    Change("ON {s} UPDATE T SET n = n % 1000 * 2, w = {s}.u WHERE T.k = {s}.k AND n > {s}.x", double),
    Change("ON {s} WHERE {s}.x = 3 DELETE FROM T WHERE T.k = {s}.k", delete),
    Change("ON {s} DELETE FROM T WHERE n > {s}.x + 5", delete_large),
    Change("ON {s} UPDATE T SET n = 0 WHERE w = {s}.u", zero),
    Change(
        "ON {s} DELETE FROM T WHERE w = {s}.u AND NOT EXISTS (SELECT * FROM T AS o WHERE o.n = T.n AND o.k <> T.k)",
        delete_lonely,
    ),
    Change(
        "ON {s} WHERE (SELECT COUNT(*) FROM T WHERE T.w = {s}.u) < 2 UPSERT INTO T (k, n) VALUES ({s}.k, {s}.x)",
        put_where_few,
    ),
    Change(
        "ON {s} WHERE EXISTS (SELECT * FROM T AS o WHERE o.n > x) INSERT INTO T VALUES ({s}.k, {s}.x, {s}.u)",
        insert_below,
    ),
    Change(
        "ON {s} UPDATE T SET n = n + 1 WHERE T.k = {s}.k AND (SELECT COUNT(*) FROM T AS o WHERE o.w = T.w) <> 1",
        count_alike,
    ),
]


@dataclass(frozen=True)
class Read:
    """A query with {s} for the stream, and its rows for an event: the table before, and after, its own changes."""

    text: str
    rows: Callable[[dict[Any, Row], Contents, Event], list[Row]]


def by_key(before: dict[Any, Row], table: Contents, e: Event) -> list[Row]:
    row = table.get(e["k"])
    if row is None or e["x"] is None or e["x"] <= 0:
        return []
    return [{"t": e["t"], "k": e["k"], **row, "p": before.get(e["k"], {}).get("n")}]


def left(before: dict[Any, Row], table: Contents, e: Event) -> list[Row]:
    row = table.get(e["k"])
    met = row is not None and row["n"] is not None and e["x"] is not None and row["n"] > e["x"]
    return [{"t": e["t"], "k": e["k"], "n": row["n"] if met and row else None, "found": e["k"] if met else None}]


def by_value(before: dict[Any, Row], table: Contents, e: Event) -> list[Row]:
    found = [k for k in sorted(table) if table[k]["w"] is not None and table[k]["w"] == e["u"]]
    return [{"t": e["t"], "k": k, "n": table[k]["n"], "p": before.get(k, {}).get("n")} for k in found]


def compared(before: dict[Any, Row], table: Contents, e: Event) -> list[Row]:
    x = e["x"]
    found = [k for k in sorted(table) if x is not None and table[k]["n"] is not None and x < table[k]["n"]]
    return [{"t": e["t"], "k": k} for k in found] or [{"t": e["t"], "k": None}]


def by_expression(before: dict[Any, Row], table: Contents, e: Event) -> list[Row]:
    found = [k for k in sorted(table) if table[k]["n"] is not None and whole(table[k]["n"]) == e["x"]]
    return [{"t": e["t"], "k": k, "n": table[k]["n"], "p": before.get(k, {}).get("n")} for k in found]


def whole(n: int) -> int:
    """Cut to a multiple of 3, toward zero."""
    return abs(n) // 3 * 3 * (1 if n >= 0 else -1)


def by_text(before: dict[Any, Row], table: Contents, e: Event) -> list[Row]:
    found = [k for k in sorted(table) if table[k]["w"] is not None and table[k]["w"] == e["u"]]
    return [{"t": e["t"], "k": k, "w": table[k]["w"]} for k in found] or [{"t": e["t"], "k": None, "w": None}]


def by_what_may_fail(before: dict[Any, Row], table: Contents, e: Event) -> list[Row]:
    key = add(e["x"], 1)
    return [{"t": e["t"], "k": key, **table[key], "p": before.get(key, {}).get("n")}] if key in table else []


def of_what_may_fail(before: dict[Any, Row], table: Contents, e: Event) -> list[Row]:
    found = [k for k in sorted(table) if table[k]["n"] is not None and table[k]["n"] - 1 == e["x"]]
    return [{"t": e["t"], "k": k, "p": before.get(k, {}).get("n")} for k in found]


READS = [
    Read("SELECT {s}.t, T.k, n, PREV(T.n) AS p FROM {s}, T WHERE {s}.x = T.n DIV 3 * 3", by_expression),
    Read("SELECT {s}.t, T.k, w FROM {s} LEFT JOIN T ON upper({s}.u) = upper(T.w)", by_text),
    Read("SELECT {s}.t, T.k, n, w, PREV(T.n) AS p FROM {s}, T WHERE T.k = {s}.x + 1", by_what_may_fail),
    Read("SELECT {s}.t, T.k, PREV(T.n) AS p FROM {s} JOIN T ON T.n - 1 = {s}.x", of_what_may_fail),
    Read("SELECT {s}.t, {s}.k, n, w, PREV(T.n) AS p FROM {s}, T WHERE {s}.k = T.k AND {s}.x > 0", by_key),
    Read("SELECT {s}.t, {s}.k, n, T.k AS found FROM {s} LEFT JOIN T ON {s}.k = T.k AND n > x", left),
    Read("SELECT {s}.t, T.k, n, PREV(T.n) AS p FROM {s}, T WHERE {s}.u = T.w", by_value),
    Read("SELECT {s}.t, T.k FROM {s} LEFT JOIN T ON {s}.x < T.n", compared),
]
UNION = "SELECT m.t, m.k, n, w FROM (SELECT t, k FROM a UNION ALL SELECT t, k FROM b) AS m, T WHERE m.k = T.k"


def simulate(
    events: dict[str, list[Event]],
    changes: list[tuple[str, Change]],
    reads: list[tuple[str, Read]],
    ttl: int | None,
) -> tuple[list[list[Row]], list[Row], Contents]:
    """The rows of each read, those of the union, and what the table is in the end."""
    merged = sorted(
        ((e["t"], position, number, stream, e) for position, stream in enumerate("ab")
         for number, e in enumerate(sorted(events[stream], key=lambda e: e["t"]))),
        key=lambda item: item[:3],
    )  # fmt: skip
    table = Contents(ttl)
    found: list[list[Row]] = [[] for _ in reads]
    union: list[Row] = []
    for i, (time, _, _, stream, e) in enumerate(merged):
        table.come_to(time)
        before = {key: dict(row) for key, row in table.items()}
        for own, change in changes:
            if own == stream:
                change.run(table, e)
        for rows, (own, read) in zip(found, reads, strict=True):
            if own == stream:
                rows += read.rows(before, table, e)
        if i + 1 == len(merged) or merged[i + 1][0] != time:
            for other_time, _, _, _, other in merged[: i + 1]:
                if other_time == time and other["k"] in table:
                    union.append({"t": time, "k": other["k"], **table[other["k"]]})
    return found, union, table


SLIDE = 10
SCAN = f"SELECT w, COUNT(*) AS c, SUM(n) AS s FROM T [SLIDE {SLIDE} MICROSECONDS] GROUP BY w"


def at_slides(
    events: dict[str, list[Event]], changes: list[tuple[str, Change]], ttl: int | None
) -> list[tuple[Any, ...]]:
    """What the query over the table as a whole shows: the clock is that of the streams that write it."""
    times = [e["t"] for stream in {s for s, _ in changes} for e in events[stream]]
    found: list[tuple[Any, ...]] = []
    if not times:
        return found
    for b in range((min(times) // SLIDE + 1) * SLIDE, (max(times) // SLIDE + 1) * SLIDE + 1, SLIDE):
        before = {s: [e for e in events[s] if e["t"] < b] for s in "ab"}
        _, _, table = simulate(before, changes, [], ttl)
        table.come_to(b - 1)
        for w in sorted({row["w"] for row in table.values()}, key=lambda w: w or ""):
            ns = [row["n"] for row in table.values() if row["w"] == w]
            found.append(
                (b, w, len(ns), sum(n for n in ns if n is not None) if any(n is not None for n in ns) else None)
            )
    return found


def plain(rows: list[Row]) -> list[Row]:
    """Times as microseconds."""
    return [{n: round(v.timestamp() * 1e6) if n == "t" else v for n, v in row.items()} for row in rows]


EVENT = st.fixed_dictionaries(
    {
        "t": st.integers(0, 25),
        "k": st.none() | st.integers(0, 4),
        "x": st.none() | st.integers(-1, 8),
        "u": st.none() | st.sampled_from(["p", "q", "r"]),
    }
)


LITTLE = "700KB"
"""Hardly more than the app needs to begin."""


def within_lateness(events: list[Event]) -> list[Event]:
    """In an order in which no event is late."""
    return sorted(events, key=lambda e: e["t"] // 5)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_as_simulated(data: st.DataObject) -> None:
    some = st.sampled_from("ab")
    changes = data.draw(st.lists(st.tuples(some, st.sampled_from(CHANGES)), min_size=1, max_size=3))
    reads = data.draw(st.lists(st.tuples(some, st.sampled_from(READS)), min_size=1, max_size=2))
    with_union, with_scan = data.draw(st.booleans()), data.draw(st.booleans())
    ttl = data.draw(st.none() | st.integers(1, 30))
    memory = data.draw(st.sampled_from(["1GB", LITTLE]))
    text = DECLARED.format(ttl="" if ttl is None else TTL.format(ttl=ttl))
    text += ";".join(change.text.format(s=s) for s, change in changes)
    text += "".join(f";CREATE QUERY r{i} AS {read.text.format(s=s)}" for i, (s, read) in enumerate(reads))
    text += f";CREATE QUERY u AS {UNION}" if with_union else ""
    text += f";CREATE QUERY v AS {SCAN}" if with_scan else ""
    events = {s: within_lateness(data.draw(st.lists(EVENT, max_size=25))) for s in "ab"}
    pushed = [(s, events[s][i : i + size]) for s in "ab" for size in [data.draw(st.integers(1, 9))]
              for i in range(0, len(events[s]), size)]  # fmt: skip
    order = data.draw(st.permutations(range(len(pushed))))
    order = sorted(order, key=lambda i: (order.index(i),))
    # Batches of a stream keep their order, those of both streams mix.
    turns = {s: iter([batch for name, batch in pushed if name == s]) for s in "ab"}
    restart = data.draw(st.integers(-1, max(0, len(pushed) - 1)))
    results: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as directory:
        app = App(text, checkpoint=directory, memory=memory)
        for number, i in enumerate(order):
            stream = pushed[i][0]
            batch = next(turns[stream])
            app.push(stream, batch[0] if len(batch) == 1 else batch)
            if number == restart:
                app.checkpoint()
                app.close()
                app = App(text, checkpoint=directory, memory=memory)
        app.finish()
        for query in app.queries:
            results[query] = plain(app.results(query).to_pylist())
        table = {row.pop("k"): row for row in app.table("T").to_pylist()}
        app.close()
    found, union, _ = simulate(events, changes, reads, ttl)
    writers = {s for s, _ in changes}
    _, _, contents = simulate({s: events[s] if s in writers else [] for s in "ab"}, changes, [], ttl)
    assert table == contents
    for i, rows in enumerate(found):
        assert results[f"r{i}"] == rows, (text, i)
    if with_union:
        assert results["u"] == union
    if with_scan:
        shown = [(round(r["window_end"].timestamp() * 1e6), r["w"], r["c"], r["s"]) for r in results["v"]]
        assert shown == at_slides(events, changes, ttl)
