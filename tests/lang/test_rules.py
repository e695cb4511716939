"""Rules: what queries they become, and where their conditions have edges."""

from __future__ import annotations

import pytest

from penstock.expressions.tree import Column
from penstock.lang import parse
from penstock.lang.query import Call, Edge, Emit, FunctionDef, Program, Query, Rule, Select, StreamRef, Union
from penstock.types import SqlType

STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, x DOUBLE, EVENT TIME t);"
PLAIN = "WHEN SELECT k, x FROM s WHERE x > 3"


def program(text: str) -> Program:
    return parse(STREAM + text, functions=["f", "g"])


def only(text: str) -> Query:
    (query,) = program(text).queries
    return query


def test_a_rule_that_emits_into_one_place_is_one_query() -> None:
    query = only(f"{PLAIN} THEN EMIT INTO out")
    assert (query.name, query.into) == ("out", "out")
    assert query.rule == Rule("rule1", False, ("out",), ())
    assert isinstance(query.body, Edge)
    assert query.body.schema.names == ("k", "x")


def test_what_is_selected_is_a_projection_of_the_edges() -> None:
    query = only(f"CREATE RULE high {PLAIN} THEN EMIT INTO out SELECT x * 2 AS twice, high.k")
    assert isinstance(query.body, Select)
    assert isinstance(query.body.source, Edge)
    assert query.body.schema.names == ("twice", "k")
    assert query.rule == Rule("high", False, ("out",), ())


def test_several_actions_read_a_stream_of_the_rules_name() -> None:
    found = program(f"CREATE RULE high {PLAIN} THEN CALL f(x, k AS key), EMIT INTO a SELECT k, EMIT INTO b, CALL G()")
    rule, a, b = found.queries
    assert (rule.name, rule.into, a.into, b.into) == ("high", "high", "a", "b")
    key, x = Column("k", SqlType.STRING), Column("x", SqlType.DOUBLE)
    assert rule.rule is not None
    assert [(call.function, [(o.name, o.expression) for o in call.arguments]) for call in rule.rule.calls] == [
        ("f", [("x", x), ("key", key)]),
        ("g", []),
    ]
    for query, names in ((a, ("k",)), (b, ("k", "x"))):
        assert isinstance(query.body, Select)
        assert query.body.source == StreamRef("high", rule.body.schema)
        assert query.body.schema.names == names
        assert query.rule is None


def test_later_queries_read_what_a_rule_emits() -> None:
    found = program(
        f"{PLAIN} THEN EMIT INTO out; SELECT k FROM out; CREATE RULE r {PLAIN} THEN CALL f(); SELECT x FROM r"
    )
    assert [query.name for query in found.queries] == ["out", "q2", "r", "q4"]


def test_a_rule_without_edges() -> None:
    assert isinstance(only(f"{PLAIN} EVERY THEN EMIT INTO out").body, Select)


def test_a_sink_takes_what_a_rule_emits() -> None:
    (query,) = parse(f"{STREAM} CREATE SINK files TO 'a.jsonl'; {PLAIN} THEN EMIT INTO FILES").queries
    assert (query.name, query.into) == ("files", "files")


@pytest.mark.parametrize(
    ("condition", "emit"),
    [
        ("SELECT k, COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 SECOND] GROUP BY k", Emit.EDGE),
        ("SELECT RSTREAM k, COUNT(*) AS n FROM s [RANGE 1 MINUTE] GROUP BY k", Emit.EDGE),
        ("SELECT DISTINCT COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 SECOND] GROUP BY k", Emit.ISTREAM),
        ("SELECT ISTREAM k, COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 SECOND] GROUP BY k", Emit.ISTREAM),
        ("SELECT DSTREAM k, COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 SECOND] GROUP BY k", Emit.DSTREAM),
        ("SELECT k, COUNT(*) AS n FROM s [SESSION 1 MINUTE] GROUP BY k", Emit.RSTREAM),
        ("SELECT k FROM s [RANGE 1 MINUTE SLIDE 1 SECOND]", Emit.ISTREAM),
        ("SELECT k FROM s [RANGE 1 MINUTE]", Emit.EVENT_GROUP),
    ],
)
def test_windows_show_what_is_new(condition: str, emit: Emit) -> None:
    body = only(f"WHEN {condition} THEN EMIT INTO out").body
    assert isinstance(body, Select)
    assert body.emit is emit


def test_at_every_event_the_edge_tests_having() -> None:
    query = "SELECT k, AVG(x) AS mean FROM s [PARTITION BY t ROWS 3] GROUP BY k, t HAVING COUNT(*) > 1"
    body = only(f"WHEN {query} THEN EMIT INTO out").body
    assert isinstance(body, Edge)
    assert body.schema.names == ("window_start", "window_end", "k", "mean")
    assert body.keys == (Column("#0", SqlType.STRING), Column("#1", SqlType.TIMESTAMP))
    assert isinstance(body.source, Select)
    assert body.source.having is None
    assert body.source.schema.names == ("#0", "#1", "$0", "$1")


def test_branches_of_a_union_have_edges_of_their_own() -> None:
    grouped = "SELECT k, COUNT(*) AS n FROM s [RANGE 1 MINUTE] GROUP BY k"
    body = only(f"WHEN {grouped} UNION ALL {grouped.replace(']', ' SLIDE 1 SECOND]')} THEN EMIT INTO out").body
    assert isinstance(body, Union)
    assert isinstance(body.inputs[0], Edge)
    assert isinstance(body.inputs[1], Select)
    assert body.schema.names == ("window_start", "window_end", "k", "n")


def test_functions_outside() -> None:
    text = (
        "CREATE FUNCTION notify AS HTTP POST 'https://example.org:8443/a?b=c' WITH ('timeout' = '1.5 seconds', "
        "'retries' = '0', 'header.Authorization' = 'env:TOKEN');"
    )
    found = program(f"{text} {PLAIN} THEN CALL Notify(*)")
    headers = (("Authorization", "env:TOKEN"),)
    assert found.functions == (FunctionDef("notify", "https://example.org:8443/a?b=c", 1.5, 0, headers),)
    assert found.queries[0].rule is not None
    (call,) = found.queries[0].rule.calls
    assert isinstance(call, Call)
    assert (call.function, [o.name for o in call.arguments]) == ("notify", ["k", "x"])


def test_tables_are_changed_by_what_a_rule_fires() -> None:
    text = f"""
        CREATE TABLE rooms (k STRING PRIMARY KEY, n BIGINT, x DOUBLE);
        CREATE RULE high {PLAIN} THEN UPDATE rooms SET n = rooms.n + 1, x = high.x WHERE rooms.k = high.k, CALL f(x),
            UPSERT INTO rooms (k, n) VALUES (high.k, 0), DELETE FROM rooms WHERE rooms.k = high.k AND n > 7,
            EMIT INTO out SELECT k, x, INSERT INTO rooms VALUES (high.k, 1, 2.0)
    """
    found = program(text)
    assert [(w.stream, w.table, w.kind.value) for w in found.writes] == [
        ("high", "rooms", kind) for kind in ("UPDATE", "UPSERT", "DELETE", "INSERT")
    ]
    assert [name for name, _ in found.writes[0].sets] == ["n", "x"]
    rule, out = found.queries
    assert rule.rule is not None
    assert (rule.into, len(rule.rule.calls), rule.rule.writes, out.into) == ("high", 1, ("out",), "out")
    assert rule.rule.changes == ("UPDATE rooms", "UPSERT rooms", "DELETE rooms", "INSERT rooms")


def test_a_pattern_alone_is_a_condition() -> None:
    pattern = "PATTERN SEQ(s a, s b) WHERE a.k = b.k AND b.x > a.x WITHIN 1 MINUTE"
    assert (
        only(f"WHEN {pattern} THEN EMIT INTO out").body == only(f"WHEN SELECT * FROM {pattern} THEN EMIT INTO out").body
    )
