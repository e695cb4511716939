"""Queries bound to the typed query: outputs, groups, aggregates, windows' columns, derived streams."""

from __future__ import annotations

from penstock.aggregates.signatures import AggregateCall
from penstock.expressions.tree import Call, Cast, Column, Literal
from penstock.lang import parse
from penstock.lang.query import Emit, Select, StreamRef, Union, columns_of
from penstock.types import Field, Schema, SqlType
from penstock.windows.spec import EveryEvent, Range, TimeSlide

STREAM = """
CREATE STREAM trades (
    t TIMESTAMP NOT NULL, symbol STRING NOT NULL, price DOUBLE, volume INT, buy BOOLEAN, EVENT TIME t
);
"""

SYMBOL = Column("symbol", SqlType.STRING)
PRICE = Column("price", SqlType.DOUBLE)
VOLUME = Column("volume", SqlType.INT)


def bound(query: str) -> Select:
    body = parse(STREAM + query).queries[-1].body
    assert isinstance(body, Select)
    return body


def test_group_keys_and_aggregates_become_columns_of_the_group() -> None:
    select = bound(
        "SELECT symbol, SUM(price * volume) / SUM(volume) AS vwap, SUM(volume) + 1 AS more "
        "FROM trades [RANGE 1 HOUR] GROUP BY symbol"
    )
    assert select.aggregating
    assert select.group_by == (SYMBOL,)
    product = Call("multiply", (PRICE, Cast(VOLUME, SqlType.DOUBLE)), SqlType.DOUBLE)
    assert select.aggregates == (
        AggregateCall("SUM", (product,), None, None, SqlType.DOUBLE),
        AggregateCall("SUM", (VOLUME,), None, None, SqlType.BIGINT),
    )
    money, shares = Column("$0", SqlType.DOUBLE), Column("$1", SqlType.BIGINT)
    assert [o.expression for o in select.outputs] == [
        Column("#0", SqlType.STRING),
        Call("divide", (money, Cast(shares, SqlType.DOUBLE)), SqlType.DOUBLE),
        Call("add", (shares, Literal(1, SqlType.BIGINT)), SqlType.BIGINT),
    ]
    assert select.schema.fields == (
        Field("symbol", SqlType.STRING, nullable=False),
        Field("vwap", SqlType.DOUBLE),
        Field("more", SqlType.BIGINT),
    )


def test_the_default_of_per_event_windows_is_the_events_group() -> None:
    assert bound("SELECT COUNT(*) FROM trades [RANGE 1 HOUR]").emit is Emit.EVENT_GROUP
    assert bound("SELECT COUNT(*) FROM trades [ROWS 5]").emit is Emit.EVENT_GROUP
    assert bound("SELECT COUNT(*) FROM trades [RANGE 1 HOUR SLIDE 1 HOUR]").emit is Emit.RSTREAM
    assert bound("SELECT DSTREAM COUNT(*) FROM trades [RANGE 1 HOUR]").emit is Emit.DSTREAM
    assert bound("SELECT price FROM trades").emit is Emit.RSTREAM


def test_equal_aggregates_are_one_and_different_filters_are_not() -> None:
    select = bound(
        "SELECT COUNT(*) AS a, count(1) AS b, COUNT(*) FILTER (WHERE buy) AS c, COUNT(price) AS d "
        "FROM trades [RANGE 1 HOUR] HAVING COUNT(*) > 1"
    )
    assert [(c.args, c.filter) for c in select.aggregates] == [
        ((), None),
        ((), Column("buy", SqlType.BOOLEAN)),
        ((PRICE,), None),
    ]
    assert [o.expression.name for o in select.outputs if isinstance(o.expression, Column)] == ["$0", "$0", "$1", "$2"]
    assert select.having == Call("gt", (Column("$0", SqlType.BIGINT), Literal(1, SqlType.BIGINT)), SqlType.BOOLEAN)


def test_group_by_ordinal_alias_and_expression() -> None:
    expected = (Call("modulo", (VOLUME, Literal(2, SqlType.INT)), SqlType.INT),)
    for grouped in ("1", "parity", "volume % 2", "(volume % 2), volume%2"):
        select = bound(f"SELECT volume % 2 AS parity, COUNT(*) AS n FROM trades [ROWS 9 SLIDE 3] GROUP BY {grouped}")
        assert select.group_by == expected
        assert select.outputs[0].expression == Column("#0", SqlType.INT)


def test_group_by_prefers_the_input_column_to_the_alias() -> None:
    select = bound("SELECT MAX(price) AS volume FROM trades [ROWS 9 SLIDE 3] GROUP BY volume")
    assert select.group_by == (VOLUME,)


def test_an_expression_over_a_grouped_expression() -> None:
    select = bound("SELECT upper(symbol) || '!' AS s FROM trades [NOW] GROUP BY upper(symbol)")
    assert select.outputs[0].expression == Call(
        "concat", (Column("#0", SqlType.STRING), Literal("!", SqlType.STRING)), SqlType.STRING
    )


def test_order_by_prefers_the_output_and_may_use_other_aggregates() -> None:
    select = bound(
        "SELECT symbol, SUM(volume) AS price FROM trades [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY symbol "
        "ORDER BY price DESC, MAX(price), 1 NULLS LAST LIMIT 3"
    )
    assert [(o.expression, o.descending, o.nulls_first) for o in select.order_by] == [
        (Column("$0", SqlType.BIGINT), True, False),
        (Column("$1", SqlType.DOUBLE), False, True),
        (Column("#0", SqlType.STRING), False, False),
    ]
    assert select.limit == 3


def test_percentiles_in_both_spellings_are_one_aggregate() -> None:
    select = bound(
        "SELECT PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY price) AS a, PERCENTILE(price, 0.9) AS b, "
        "percentile_disc(price, 1) AS c, MEDIAN(price) AS d FROM trades [RANGE 1 DAY]"
    )
    assert [(c.function, c.parameter) for c in select.aggregates] == [
        ("PERCENTILE_CONT", 0.9),
        ("PERCENTILE_DISC", 1.0),
        ("MEDIAN", None),
    ]


def test_aliases_of_aggregates_and_count_distinct() -> None:
    select = bound(
        "SELECT MAX_BY(symbol, price) AS a, STDDEV(price) AS b, COUNT(DISTINCT symbol) AS c FROM trades [NOW]"
    )
    assert [c.function for c in select.aggregates] == ["ARG_MAX", "STDDEV_SAMP", "COUNT_DISTINCT"]
    assert [c.type for c in select.aggregates] == [SqlType.STRING, SqlType.DOUBLE, SqlType.BIGINT]


def test_star_and_case_insensitive_names() -> None:
    assert bound("SELECT * FROM TRADES").schema.names == ("t", "symbol", "price", "volume", "buy")
    select = bound('SELECT T.Price, t.`SYMBOL`, "volume" FROM trades AS T')
    assert [o.expression for o in select.outputs] == [PRICE, SYMBOL, VOLUME]
    assert select.schema.names == ("price", "symbol", "volume")


def test_window_columns_come_by_themselves() -> None:
    select = bound("SELECT window_start, symbol, COUNT(*) AS n, window_end FROM trades [NOW] GROUP BY symbol")
    assert select.schema.names == ("symbol", "n")
    assert columns_of(select).names == ("window_start", "window_end", "symbol", "n")


def test_a_subquery_of_the_thesis() -> None:
    select = bound(
        "SELECT SUM(s1)/SUM(c1) FROM (SELECT SUM(price) AS s1, COUNT(price) AS c1 "
        "FROM trades [RANGE 1 SECOND SLIDE 1 SECOND]) [RANGE 1 HOUR]"
    )
    inner = select.source
    assert isinstance(inner, Select)
    assert inner.window is not None
    assert inner.window.slide == TimeSlide(1_000_000)
    assert select.window is not None
    assert (select.window.extent, select.window.slide) == (Range(3_600_000_000), EveryEvent())
    assert select.schema.names == ("SUM(s1)/SUM(c1)",)


def test_an_outer_query_reads_the_inner_windows_columns() -> None:
    inner = "(SELECT symbol, COUNT(*) AS n FROM trades [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY symbol)"
    flat = bound(f"SELECT window_end AS closed, n FROM {inner} WHERE window_start > TIMESTAMP '2024-01-01 00:00:00Z'")
    assert flat.outputs[0].expression == Column("window_end", SqlType.TIMESTAMP)
    assert flat.schema.names == ("closed", "n")
    windowed = bound(f"SELECT * FROM {inner} x [ROWS 3 SLIDE 3]")
    assert windowed.schema.names == ("symbol", "n")


def test_union_all_flattens_and_keeps_the_first_names() -> None:
    union = bound(
        "SELECT COUNT(*) FROM (SELECT price, symbol FROM trades WHERE buy UNION ALL "
        "SELECT CAST(volume AS DOUBLE), symbol FROM trades UNION ALL SELECT 1.5, 'x' FROM trades) [ROWS 4]"
    ).source
    assert isinstance(union, Union)
    assert len(union.inputs) == 3
    assert union.schema == Schema((Field("price", SqlType.DOUBLE), Field("symbol", SqlType.STRING, nullable=False)))


def test_top_level_union_of_windows() -> None:
    program = parse(STREAM + "SELECT MAX(price) AS p FROM trades [NOW] UNION ALL SELECT MIN(price) FROM trades [NOW]")
    body = program.queries[0].body
    assert isinstance(body, Union)
    assert columns_of(body).names == ("window_start", "window_end", "p")


def test_derived_streams_and_sinks_chain() -> None:
    program = parse(
        STREAM
        + """
        CREATE SINK out TO 'x.jsonl' WITH ('append' = 'true');
        INSERT INTO minutes
            SELECT symbol, MAX(price) AS top FROM trades [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY symbol;
        INSERT INTO OUT
            SELECT symbol, AVG(top) AS a, MAX(window_end) AS upto FROM minutes [RANGE 1 HOUR] GROUP BY symbol;
        INSERT INTO out SELECT symbol, 0.5 AS a, t AS upto FROM trades;
        CREATE QUERY mine AS SELECT price FROM trades;
        EXPLAIN SELECT price FROM trades
        """
    )
    assert [(q.name, q.into) for q in program.queries] == [
        ("minutes", "minutes"),
        ("out", "out"),
        ("q3", "out"),
        ("mine", None),
        ("q5", None),
    ]
    source = program.queries[1].body.source if isinstance(program.queries[1].body, Select) else None
    assert isinstance(source, StreamRef)
    assert source.schema.names == ("window_start", "window_end", "symbol", "top")
    assert program.queries[3].text == "CREATE QUERY mine AS SELECT price FROM trades"
    assert program.sinks[0].options == (("append", "true"),)


def test_a_running_apps_streams_can_be_read() -> None:
    known = Schema((Field("a", SqlType.INT),))
    program = parse(
        "SELECT a FROM live; INSERT INTO o SELECT a FROM live", streams={"Live": known}, sinks=["O"], queries=["q1"]
    )
    assert [(q.name, q.into) for q in program.queries] == [("q2", None), ("O", "O")]
    assert not program.streams


class _Geometric:
    argument_types = (SqlType.DOUBLE,)
    result_type = SqlType.DOUBLE


def test_user_defined_aggregates() -> None:
    program = parse(
        STREAM + "SELECT geo_mean(price) AS g FROM trades [NOW]", user_aggregates={"geo_mean": _Geometric()}
    )
    body = program.queries[0].body
    assert isinstance(body, Select)
    assert body.aggregates == (AggregateCall("GEO_MEAN", (PRICE,), None, None, SqlType.DOUBLE),)
