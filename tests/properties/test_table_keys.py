"""Keys of tables of every type, alone and together: look-ups against a dictionary, with strings that come and go."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App

TYPES: dict[str, Any] = {
    "STRING": st.sampled_from(["", "a", "b", "ä", "longer than others"]),
    "DOUBLE": st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]),
    "BIGINT": st.sampled_from([0, -1, 2**62]),
    "SMALLINT": st.integers(-2, 2),
    "BOOLEAN": st.booleans(),
    "DATE": st.integers(-1, 1),
}


def same(value: Any) -> Any:
    """Keys that are equal in the language are equal here: NaN is one value, and -0.0 is 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_key(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=3))
    names = [f"k{i}" for i in range(len(kinds))]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
    equal = " AND ".join(f"s.{name} = T.{name}" for name in names)
    text = f"""
        CREATE STREAM s (t TIMESTAMP, {columns}, x INT, w STRING, EVENT TIME t);
        CREATE TABLE T ({columns}, n INT, w STRING, PRIMARY KEY ({", ".join(names)}));
        ON s WHERE s.x > 1 UPSERT INTO T ({", ".join(names)}, n, w)
            VALUES ({", ".join(f"s.{name}" for name in names)}, s.x, s.w);
        ON s WHERE s.x = 0 DELETE FROM T WHERE {equal};
        SELECT T.n, T.w, PREV(T.w) AS p FROM s LEFT JOIN T ON {equal};"""
    event = st.fixed_dictionaries(
        {name: st.none() | TYPES[kind] for name, kind in zip(names, kinds, strict=True)}
        | {"x": st.integers(0, 4), "w": st.none() | st.text("xyz", max_size=2)}
    )
    events = data.draw(st.lists(event, max_size=30))
    size = data.draw(st.integers(1, 8))
    with App(text) as app:
        for start in range(0, len(events), size):
            app.push("s", [{"t": start + i} | e for i, e in enumerate(events[start : start + size])])
        found = [(r["n"], r["w"], r["p"]) for r in app.results("q1").to_pylist()]
        rows = app.table("T").num_rows
        interned = sum(len(i) for i in app._flow.tables.table("T").interners.values())
    table: dict[Any, tuple[Any, Any]] = {}
    expected = []
    for e in events:
        key = tuple(same(e[name]) for name in names)
        there = None not in key
        before = table.get(key, (None, None)) if there else (None, None)
        if e["x"] > 1 and there:
            table[key] = e["x"], e["w"]
        if e["x"] == 0:
            table.pop(key, None)
        expected.append((*(table.get(key, (None, None)) if there else (None, None)), before[1]))
    assert found == expected
    assert rows == len(table)
    # Strings that no row has any more are forgotten, but for those of the last chunk.
    assert interned <= (len(table) + size) * (2 + len(kinds))
