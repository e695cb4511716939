"""Queries built in Python: the same as from text, and nothing in a name or a fragment reaches beyond its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.builder import quoted, render
from penstock.lang import parse
from penstock.lang.fingerprint import fingerprint

CALLS = ps.stream(
    "calls",
    {"t": "TIMESTAMP", "agent": "STRING", "seconds": "DOUBLE NOT NULL"},
    event_time="t",
    lateness="5 seconds",
    idle_after="1 minute",
    late_into="late calls",
)


def test_the_text_and_the_builder_make_the_same_query() -> None:
    built = (
        CALLS.window("RANGE 1 HOUR SLIDE 10 SECONDS")
        .where("seconds > 0")
        .where("agent <> 'x'")
        .group_by("agent", day="CAST(t AS DATE)")
        .select(mean="AVG(seconds)", calls="COUNT(*)")
        .having("COUNT(*) > 1")
        .order_by("mean", descending=True)
        .order_by("agent")
        .limit(3)
    )
    text = """
        CREATE STREAM calls (t TIMESTAMP, agent STRING, seconds DOUBLE NOT NULL,
            EVENT TIME t LATENESS 5 SECONDS IDLE AFTER 1 MINUTE) LATE INTO `late calls`;
        SELECT agent, CAST(t AS DATE) AS day, AVG(seconds) AS mean, COUNT(*) AS calls
        FROM calls [RANGE 1 HOUR SLIDE 10 SECONDS] WHERE seconds > 0 AND agent <> 'x'
        GROUP BY agent, CAST(t AS DATE) HAVING COUNT(*) > 1 ORDER BY mean DESC, agent LIMIT 3
    """
    mine, theirs = parse(render(built)), parse(text)
    assert mine.streams == theirs.streams
    assert mine.queries[0].body == theirs.queries[0].body


def test_an_app_of_built_queries() -> None:
    slow = CALLS.window("RANGE 1 MINUTE").where("seconds > 10").group_by("agent").select(n="COUNT(*)").named("slow")
    plain = CALLS.select("agent", twice="seconds * 2")
    with ps.App([slow, plain]) as app:
        assert app.queries == ("slow", "q2")
        name = app.add_query(CALLS.window("ROWS 2").rstream().select(most="MAX(seconds)"))
        app.push("calls", [{"t": i * 10_000_000, "agent": "ann", "seconds": 20.0 * i} for i in range(3)])
        app.finish()
        assert app.results("slow").select(["agent", "n"]).to_pylist() == [{"agent": "ann", "n": n} for n in (1, 2)]
        assert app.results("q2").column("twice").to_pylist() == [0.0, 40.0, 80.0]
        assert app.results(name).column("most").to_pylist() == [0.0, 20.0, 40.0]


def test_emit() -> None:
    for method, word in (("istream", "ISTREAM"), ("dstream", "DSTREAM"), ("rstream", "RSTREAM")):
        query = getattr(CALLS.window("RANGE 1 HOUR SLIDE 1 HOUR").select("agent"), method)()
        assert parse(render(query)).queries[0].body.emit.value == word


@given(st.text(min_size=1, max_size=20))
def test_any_name_stays_a_name(name: str) -> None:
    """Whatever a column is called, the program has one stream with that column and one query."""
    query = ps.stream("s", {"t": "TIMESTAMP", name: "INT"}, event_time="t").select(name)
    try:
        program = parse(render(query))
    except ps.QueryError:
        return
    assert [stream.name for stream in program.streams] == ["s"]
    assert program.streams[0].schema.names == ("t", name)
    assert len(program.queries) == 1


@pytest.mark.parametrize("name", ["a`b", 'a"b', "a'b", "a;b", "select", "a -- b", "a /* b", "x y", "é", "a\\b"])
def test_odd_names_work(name: str) -> None:
    query = ps.stream("s", {"t": "TIMESTAMP", name: "INT"}, event_time="t").select(name)
    with ps.App(query) as app:
        app.push("s", {"t": 1, name: 7})
        assert app.results("q1").column(name).to_pylist() == [7]


@pytest.mark.parametrize(
    "fragment",
    [
        "x > 0; SELECT 1",
        "x > 0) OR (1 = 1",
        "x > 0 -- and so on",
        "x > 0 /* and so on",
        "x /* a */ > 0",
        "(x > 0",
        "[x",
        "x]",
        "",
        "  ",
        "'x",
        "`x",
        "/* x */",
    ],
)
def test_a_fragment_stays_in_its_clause(fragment: str) -> None:
    for clause in (CALLS.where, CALLS.having, CALLS.window, CALLS.order_by):
        with pytest.raises(ps.QueryError):
            clause(fragment)
    with pytest.raises(ps.QueryError):
        CALLS.select(x=fragment)
    with pytest.raises(ps.QueryError):
        CALLS.group_by(x=fragment)


@given(st.text(alphabet="ab1 ()[]'\"`;,-/*\\\n<>=.", max_size=12), st.text(alphabet="ab1 ()'`;-/*\n", max_size=8))
def test_no_fragments_make_a_second_statement(condition: str, other: str) -> None:
    try:
        query = CALLS.window("ROWS 5").where(condition).select(a=other).having(other)
        program = parse(render(query))
    except ps.QueryError:
        return
    assert len(program.queries) == 1
    assert len(program.streams) == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"lateness": "5 seconds, x INT"},
        {"lateness": "5 seconds) FROM 'x"},
        {"unit": "SECONDS; x"},
        {"idle_after": "1 minute -- x"},
    ],
)
def test_a_duration_is_words(bad: dict[str, str]) -> None:
    with pytest.raises(ps.QueryError):
        ps.stream("s", {"t": "TIMESTAMP"}, event_time="t", **bad)  # type: ignore[arg-type]


def test_a_type_is_words() -> None:
    with pytest.raises(ps.QueryError):
        ps.stream("s", {"t": "TIMESTAMP, x INT"}, event_time="t")
    assert "INT NOT NULL" in render(ps.stream("s", {"t": ps.SqlType.TIMESTAMP, "x": "INT NOT NULL"}, event_time="t"))


@given(st.text(max_size=20))
def test_a_source_stays_text(source: str) -> None:
    query = ps.stream("s", {"t": "TIMESTAMP"}, event_time="t", source=source)
    try:
        assert parse(render(query)).streams[0].uri == source
    except ps.QueryError:
        assert not source.isprintable() or not source


def test_streams_must_agree() -> None:
    other = ps.stream("calls", {"t": "TIMESTAMP"}, event_time="t")
    with pytest.raises(ps.QueryError, match="two ways"):
        ps.App([CALLS, other])
    with pytest.raises(ps.QueryError, match="built queries"):
        ps.App([CALLS, 5])  # type: ignore[list-item]


def test_the_builder_changes_nothing_in_place() -> None:
    before = str(CALLS)
    CALLS.where("seconds > 1").select("agent").limit(3)
    assert str(CALLS) == before
    assert quoted("a") == "`a`"
    assert fingerprint(parse(render(CALLS)).streams[0])
