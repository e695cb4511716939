"""Joins in an app: what queries share, what is warned of, and windows larger than the memory."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest

from penstock import App
from penstock.errors import BudgetError
from penstock.operators.joins import key_index, outer, search
from penstock.operators.joins.search import Search

STREAMS = """
CREATE STREAM a (t TIMESTAMP NOT NULL, id INT, v DOUBLE, EVENT TIME t);
CREATE STREAM b (t TIMESTAMP NOT NULL, id INT, w STRING, EVENT TIME t);
"""
JOIN = "SELECT v, w FROM a [RANGE {} SECONDS] AS x JOIN b [RANGE {} SECONDS] AS y ON x.id = y.id;"


def test_queries_with_the_same_keys_share_their_rows() -> None:
    with App(STREAMS + JOIN.format(10, 10) + JOIN.format(10, 10) + JOIN.format(5, 7)) as app:
        assert "shares its stored rows with q2, q3" in app.explain()
        app.push("a", {"t": 1_000_000, "id": 1, "v": 1.0})
        app.push("b", {"t": 9_000_000, "id": 1, "w": "w"})
        app.push("a", {"t": 20_000_000, "id": 2, "v": 1.0})
        app.push("b", {"t": 20_000_000, "id": 2, "w": "w"})
        app.drop_query("q1")
        app.finish()
        assert [app.results(name).num_rows for name in ("q2", "q3")] == [2, 1]


def test_a_query_that_comes_later_begins_with_the_rows_that_come_then() -> None:
    with App(STREAMS + JOIN.format(10, 10)) as app:
        app.push("a", {"t": 1_000_000, "id": 1, "v": 1.0})
        app.push("b", {"t": 1_000_000, "id": 1, "w": "early"})
        app.add_query(JOIN.format(10, 10))
        app.push("a", {"t": 2_000_000, "id": 1, "v": 2.0})
        app.push("b", {"t": 3_000_000, "id": 1, "w": "late"})
        app.finish()
        assert app.results("q1").column("w").to_pylist() == ["early", "early", "late", "late"]
        assert app.results("q2").column("v").to_pylist() == [2.0]


def test_comparing_all_rows_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="q1: no equality or band"):
        App(STREAMS + "SELECT v FROM a [NOW] x, b [NOW] y WHERE x.v > y.id;").close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        App(STREAMS + JOIN.format(1, 1)).close()


def _batch(first: int, rows: int, ids: int, column: str) -> pa.RecordBatch:
    at = np.arange(first, first + rows)
    times = pa.array(at * 1000).view(pa.timestamp("us", tz="UTC"))
    values = pa.array(at * 1.0) if column == "v" else pa.array([f"text {i % 50}" for i in at])
    return pa.RecordBatch.from_arrays(
        [times, pa.array((at * 7919 % ids).astype(np.int32)), values], ["t", "id", column]
    )


def test_windows_larger_than_the_memory_page() -> None:
    wide = "SELECT x.*, y.* FROM a [ROWS 20000] AS x JOIN b [RANGE 20 SECONDS] AS y ON x.id = y.id;"
    found: dict[str, list[pa.RecordBatch]] = {}
    for memory in ("2500KB", "64MB"):
        with App(STREAMS + wide, memory=memory, block_size=4096) as app:
            taken = found[memory] = []
            app.subscribe("q1", taken.append)
            for first in range(0, 40_000, 4000):
                app.push("a", _batch(first, 4000, 3000, "v"))
                app.push("b", _batch(first, 4000, 3000, "w"))
            app.finish()
            assert (app.metrics.blocks_written > 0) == (memory == "2500KB")
    paged, whole = (pa.Table.from_batches(batches).replace_schema_metadata() for batches in found.values())
    assert paged.equals(whole)


def test_keys_that_are_gone_are_forgotten() -> None:
    """Ids that rise for ever: their slots are used again, and never while a row of either side has them."""
    random = np.random.default_rng(1)
    ids = [(np.arange(40_000) // 2 + random.integers(0, 40, 40_000)).astype(np.int32) for _ in range(2)]
    expected = []
    for at in range(40_000):
        near = ids[1][max(at - 300, 0) : at]  # b's event of the same time comes after a's
        expected += [(at, max(at - 300, 0) + int(i)) for i in np.flatnonzero(near == ids[0][at])]
        near = ids[0][max(at - 99, 0) : at + 1]
        expected += [(max(at - 99, 0) + int(i), at) for i in np.flatnonzero(near == ids[1][at])]
    query = "SELECT x.v, y.t FROM a [ROWS 100] AS x, b [ROWS 300] AS y WHERE x.id = y.id;"
    with App(STREAMS + query, memory="1500KB") as app:
        for first in range(0, 40_000, 1000):
            for name, own, column in (("a", ids[0], "v"), ("b", ids[1], "w")):
                batch = _batch(first, 1000, 1, column)
                app.push(name, batch.set_column(1, "id", pa.array(own[first : first + 1000])))
        app.finish()
        found = app.results("q1")
    moments = found.column("t").cast(pa.int64()).to_numpy() // 1000
    assert list(zip(found.column("v").to_numpy().astype(int).tolist(), moments.tolist(), strict=True)) == expected


def test_too_little_memory_for_the_keys_is_said() -> None:
    def push_all(app: App) -> None:
        for first in range(0, 200_000, 4000):
            app.push("a", _batch(first, 4000, 10**6, "v"))
            app.push("b", _batch(first, 4000, 10**6, "w"))

    text = STREAMS + JOIN.format(600, 600).replace("SELECT", "SELECT ISTREAM")
    with (
        App(text, memory="700KB", block_size=4096) as app,
        pytest.raises(BudgetError, match="keys"),
    ):
        push_all(app)


@pytest.mark.parametrize("then", ["x.v = y.w", "x.t = y.t"])
def test_on_may_compare_sides_that_were_joined_before(then: str) -> None:
    """What ON says of earlier sides decides about its own side alone: they stay together if it is false."""
    program = """
    CREATE STREAM a (t TIMESTAMP NOT NULL, id INT, v INT, EVENT TIME t);
    CREATE STREAM b (t TIMESTAMP NOT NULL, id INT, w INT, EVENT TIME t);
    SELECT x.v AS v, y.w AS w, z.w AS last FROM a [RANGE 10 SECONDS] x LEFT JOIN b [RANGE 10 SECONDS] y ON x.id = y.id
    {} JOIN b [RANGE 10 SECONDS] z ON {} AND z.id = x.id;
    """
    found = {}
    for kind in ("LEFT", "INNER"):
        with App(program.format(kind, then)) as app:
            app.push("a", {"t": 1_000_000, "id": 1, "v": 1})
            app.push("b", {"t": 2_000_000, "id": 1, "w": 2})
            app.push("a", {"t": 3_000_000, "id": 1, "v": 2})
            app.finish()
            found[kind] = [tuple(row.values())[2:] for row in app.results("q1").to_pylist()]
    matched = [(2, 2, 2)] if then == "x.v = y.w" else []
    assert found == {"LEFT": [(1, None, None), (1, 2, None), *(matched or [(2, 2, None)])], "INNER": matched}


def test_a_key_that_has_a_value_without_a_row_is_compared() -> None:
    text = """
    SELECT x.id AS x, y.id AS y, z.id AS z FROM a [RANGE 9 SECONDS] x LEFT JOIN b [RANGE 9 SECONDS] y ON x.id = y.id
    {} JOIN a [RANGE 9 SECONDS] z ON coalesce(y.id, 7) = z.id;
    """
    with pytest.warns(UserWarning, match="no equality"):
        app = App(STREAMS + text.format("LEFT") + text.format("INNER"))
    with app:
        app.push("a", {"t": 1_000_000, "id": 1, "v": 1.0})
        app.push("a", {"t": 2_000_000, "id": 7, "v": 1.0})
        app.push("b", {"t": 2_000_000, "id": 2, "w": "w"})
        app.finish()
        found = [[tuple(row.values())[2:] for row in app.results(name).to_pylist()] for name in ("q1", "q2")]
        assert found == [[(1, None, None), (1, None, 7), (7, None, 7)], [(1, None, 7), (7, None, 7)]]


def test_queries_over_the_same_subqueries_have_rows_of_their_own() -> None:
    join = "SELECT v, w FROM (SELECT * FROM a WHERE v > 0) [ROWS {}] AS x JOIN b [ROWS 9] AS y ON x.id = y.id;"
    with App(STREAMS + join.format(1) + join.format(2)) as app:
        for second in (1, 2):
            app.push("a", {"t": second * 1_000_000, "id": 1, "v": 1.0})
        app.push("b", {"t": 3_000_000, "id": 1, "w": "w"})
        app.finish()
        assert [app.results(name).num_rows for name in ("q1", "q2")] == [1, 2]


@pytest.mark.parametrize("kind", ["INNER", "LEFT", "FULL"])
def test_an_event_that_meets_itself_is_rejected_once(kind: str) -> None:
    text = (
        "SELECT x.v AS v FROM a [RANGE 9 SECONDS] x {} JOIN a [RANGE 9 SECONDS] y ON x.id = y.id AND 1 DIV x.id > y.v;"
    )
    with App(STREAMS + text.format(kind)) as app:
        app.push("a", {"t": 1_000_000, "id": 0, "v": 1.0})
        assert [reject["row"] for reject in app.rejects] == [{"x.id": 0, "y.v": 1.0}]
        app.push("a", {"t": 2_000_000, "id": 0, "v": 2.0})
        assert len(app.rejects) == 1 + 3


@pytest.mark.parametrize("emit", ["", "ISTREAM", "DSTREAM"])
def test_what_was_rejected_when_it_came_is_not_when_it_goes(emit: str) -> None:
    text = f"SELECT {emit} x.v AS v FROM a [ROWS 2] x JOIN b [ROWS 9] y ON x.id = y.id AND 1 DIV x.id > x.v;"
    with App(STREAMS + text) as app:
        app.push("b", {"t": 0, "id": 0, "w": "w"})
        for second in (1, 2, 3, 4):
            app.push("a", {"t": second * 1_000_000, "id": 0 if second == 1 else 5, "v": 1.0})
        app.finish()
        assert len(app.rejects) == 1


@pytest.mark.parametrize("kind", ["INNER", "LEFT", "FULL"])
@pytest.mark.parametrize("key", ["x.id = y.id AND ", ""])
def test_what_is_compared_is_not_held_at_once(kind: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that may match are taken some at a time, so memory goes by those that do."""
    text = f"SELECT v, w FROM a [ROWS 900] x {kind} JOIN b [ROWS 900] y ON {key}x.v * length(y.w) < 10.0;"
    held = []
    checked = Search.checked
    monkeypatch.setattr(Search, "checked", lambda *given: held.append(len(given[2])) or checked(*given))
    found = {}
    for most in (500, 1 << 18):
        for module in (key_index, search, outer):
            monkeypatch.setattr(module, "ANSWERS_AT_ONCE", most)
        held.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with App(STREAMS + text) as app:
                app.push("a", _batch(0, 900, 1, "v"))
                app.push("b", _batch(0, 900, 1, "w"))
                app.finish()
                found[most] = app.results("q1")
        assert (max(held) > 10_000) == (most > 10_000)
    assert found[500].equals(found[1 << 18])
    assert found[500].num_rows >= 900


@pytest.mark.parametrize("kind", ["INNER", "LEFT", "FULL"])
def test_only_rows_whose_key_fails_are_compared(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"SELECT x.id FROM a [ROWS 900] x {kind} JOIN b [ROWS 900] y ON x.id = y.id + 1;"
    held = []
    checked = Search.checked
    monkeypatch.setattr(Search, "checked", lambda *given: held.append(len(given[2])) or checked(*given))
    most = 2**31 - 1
    with App(STREAMS + text) as app:
        ids = [*range(898), most, most]
        app.push("a", [{"t": t, "id": own, "v": 1.0} for t, own in enumerate(ids)])
        app.push("b", [{"t": t, "id": own, "w": "w"} for t, own in enumerate(ids)])
        app.finish()
        found = [row["id"] for row in app.results("q1").to_pylist()]
        assert len(app.rejects) == 2 * 900
    assert sum(held) == len(app.rejects) + 897
    assert sorted(set(found) - {most, None}) == list(range(1 - (kind != "INNER"), 898))


@pytest.mark.parametrize("emit", ["RSTREAM", "DSTREAM"])
def test_windows_of_aggregates_are_known_however_often_the_join_is_called(emit: str) -> None:
    """A subquery gives its rows in several chunks, and some only at the end: each is a call of the join."""
    below = "SELECT ISTREAM id, v FROM a [RANGE 4 SECONDS SLIDE 1 SECOND]"
    text = f"""
    INSERT INTO came {below};
    SELECT {emit} y.id AS id, COUNT(*) AS n FROM a [ROWS 2 SLIDE 1 SECOND] AS y
    LEFT JOIN {{}} [ROWS 3 SLIDE 1 SECOND] AS x ON x.id = y.id GROUP BY y.id;
    """
    times = [1, 2, 5, 5, 12, 13, 19, 30]
    found = {}
    for source in (f"({below})", "came"):
        for at_once in (1, 3, len(times)):
            with App(STREAMS + text.format(source)) as app:
                for first in range(0, len(times), at_once):
                    some = times[first : first + at_once]
                    app.push("a", [{"t": t * 1_000_000, "id": t % 3, "v": 0.0} for t in some])
                app.finish()
                found[source, at_once] = app.results("q2")
    assert all(table.equals(found["came", 1]) for table in found.values())
    assert found["came", 1].num_rows > 5


def test_a_band_beyond_all_times_is_a_condition() -> None:
    far = " + INTERVAL '30000000' DAYS" * 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        app = App(STREAMS + f"SELECT v FROM a [RANGE 9 SECONDS] x JOIN b [RANGE 9 SECONDS] y ON x.t < y.t{far};")
    with app:
        app.push("a", {"t": 1_000_000, "id": 1, "v": 1.0})
        app.push("b", {"t": 1_000_000, "id": 1, "w": "w"})
        app.finish()
        assert [app.results("q1").num_rows, len(app.rejects)] == [0, 1]


def test_a_window_over_a_join_as_long_as_its_slide_is_a_window_of_its_own() -> None:
    join = "SELECT x.id FROM a [RANGE 1 MINUTE SLIDE 10 SECONDS] AS x, b [RANGE 1 MINUTE SLIDE 10 SECONDS] AS y"
    program = f"""
        CREATE STREAM a (t BIGINT, id INT, EVENT TIME t UNIT SECONDS);
        CREATE STREAM b (t BIGINT, id INT, EVENT TIME t UNIT SECONDS);
        CREATE QUERY own AS SELECT COUNT(*) AS n FROM ({join} WHERE x.id = y.id) [RANGE 10 SECONDS SLIDE 10 SECONDS];
        CREATE QUERY whole AS {join.replace("x.id", "COUNT(*) AS n", 1)} WHERE x.id = y.id;
    """
    with App(program) as app:
        for stream in "ab":
            app.push(stream, {"t": 1_005, "id": 1})
        app.finish()
        starts = {name: app.results(name).column("window_start").cast("int64").to_pylist() for name in app.queries}
    assert starts == {"own": [1_000_000_000], "whole": [950_000_000]}


def test_a_relation_that_does_not_fit_is_refused_and_not_built() -> None:
    program = """
        CREATE STREAM a (t BIGINT, EVENT TIME t UNIT SECONDS);
        CREATE STREAM b (t BIGINT, EVENT TIME t UNIT SECONDS);
        SELECT COUNT(*) AS n FROM a [RANGE 1 DAY SLIDE 1 DAY] AS x, b [RANGE 1 DAY SLIDE 1 DAY] AS y;
    """
    times = {"t": np.zeros(4_000, np.int64)}
    with pytest.warns(UserWarning, match="compared with all rows"):
        app = App(program, memory="32MB")
    with app:
        app.push("a", times)
        app.push("b", times)
        with pytest.raises(BudgetError, match="matches of one evaluation"):
            app.finish()
