"""MATCH_RECOGNIZE against a walk over the rows of each partition, as SQL describes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock import App

SECOND = 1_000_000
STREAM = "CREATE STREAM s (t TIMESTAMP, k INT NOT NULL, x INT, n INT, EVENT TIME t LATENESS 2 SECONDS);\n"

Row = dict[str, Any]
Holds = Callable[[list[Row]], bool]
"""Whether the last of these rows, which follow each other from the first of the match on, is a row of its variable."""


@dataclass(frozen=True)
class Definition:
    sql: str
    holds: Holds


def less(one: Any, other: Any) -> bool:
    return one is not None and other is not None and one < other


FALLS = Definition("{v}.x < PREV({v}.x)", lambda rows: less(rows[-1]["x"], rows[-2]["x"]))
RISES = Definition("x > PREV(x)", lambda rows: less(rows[-2]["x"], rows[-1]["x"]))
BELOW_THE_FIRST = Definition("{v}.x < A.x", lambda rows: less(rows[-1]["x"], rows[0]["x"]))
LARGE = Definition("{v}.x > 1", lambda rows: less(1, rows[-1]["x"]))
ANYTHING = Definition("", lambda rows: True)


@dataclass(frozen=True)
class Pattern:
    variables: list[tuple[str, int, Definition]]
    apart: bool
    within: int

    @property
    def sql(self) -> str:
        written = " ".join(name if times == 1 else f"{name}{{{times}}}" for name, times, _ in self.variables)
        defined = [f"{name} AS {d.sql.format(v=name)}" for name, _, d in self.variables if d.sql]
        last = self.variables[-1][0]
        return f"""CREATE QUERY q AS SELECT * FROM s MATCH_RECOGNIZE (
            PARTITION BY k ORDER BY t MEASURES A.n AS first, FIRST({last}.n) AS middle, n AS last
            {"" if self.apart else "AFTER MATCH SKIP TO NEXT ROW"}
            PATTERN ({written}) WITHIN {self.within} SECONDS
            {f"DEFINE {', '.join(defined)}" if defined else ""})"""

    def expected(self, rows: list[Row]) -> list[tuple[Any, ...]]:
        steps = [d for _, times, d in self.variables for _ in range(times)]
        found = []
        for key in {row["k"] for row in rows}:
            mine = [(at, row) for at, row in enumerate(rows) if row["k"] == key]
            start = 0
            while start + len(steps) <= len(mine):
                match = mine[start : start + len(steps)]
                taken = [row for _, row in match]
                short = taken[-1]["t"] - taken[0]["t"] < self.within * SECOND
                if short and all(d.holds(taken[: i + 1]) for i, d in enumerate(steps)):
                    middle = taken[-self.variables[-1][1]]["n"]
                    found.append((match[-1][0], (key, taken[0]["n"], middle, taken[-1]["n"])))
                    start += len(steps) if self.apart else 1
                else:
                    start += 1
        return [row for _, row in sorted(found)]


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    variables = [("A", 1, draw(st.sampled_from([ANYTHING, ANYTHING, LARGE])))]
    for name in ("B", "C")[: draw(st.integers(0, 2))]:
        definition = draw(st.sampled_from([FALLS, RISES, BELOW_THE_FIRST, LARGE, ANYTHING]))
        variables.append((name, draw(st.sampled_from([1, 1, 2, 3])), definition))
    return Pattern(variables, draw(st.booleans()), draw(st.sampled_from([2, 5, 30])))


@st.composite
def streams(draw: st.DrawFn) -> list[Row]:
    now, rows = 0, []
    for number in range(draw(st.integers(1, 16))):
        now += draw(st.sampled_from([0, 1, 1, 2]))
        time = max(0, now - draw(st.sampled_from([0, 0, 1])))
        x = draw(st.sampled_from([0, 1, 2, 3, None]))
        rows.append({"t": time * SECOND, "k": draw(st.sampled_from([1, 1, 2])), "x": x, "n": number})
    return rows


@given(patterns(), streams(), st.integers(1, 16))
def test_any_pattern(pattern: Pattern, rows: list[Row], cut: int) -> None:
    with App(STREAM + pattern.sql) as app:
        for part in (rows[:cut], rows[cut:]):
            if part:
                app.push("s", part)
        app.finish()
        found = [tuple(row.values()) for row in app.results("q").to_pylist()]
    assert found == pattern.expected(sorted(rows, key=lambda row: row["t"])), pattern.sql
