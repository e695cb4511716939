"""FROM with several sides bound: aliases, kinds, conditions, names of columns, stars."""

from __future__ import annotations

from penstock.expressions.tree import Call, Column
from penstock.lang import parse
from penstock.lang.query import Emit, Join, JoinKind, Select, columns_of, is_windowed
from penstock.types import SqlType
from penstock.windows.spec import EveryEvent, Range, Rows, WindowSpec

STREAMS = """
CREATE STREAM a (t TIMESTAMP NOT NULL, id INT NOT NULL, v DOUBLE, EVENT TIME t);
CREATE STREAM b (t TIMESTAMP NOT NULL, id INT NOT NULL, w STRING, EVENT TIME t);
"""


def bound(query: str) -> tuple[Select, Join]:
    body = parse(STREAMS + query).queries[-1].body
    assert isinstance(body, Select)
    assert isinstance(body.source, Join)
    return body, body.source


def same(left: str, right: str) -> Call:
    return Call("eq", (Column(left, SqlType.INT), Column(right, SqlType.INT)), SqlType.BOOLEAN)


def test_sides_have_windows_and_aliases() -> None:
    select, join = bound("SELECT v, w FROM a [RANGE 2 MINUTES] AS x, b [ROWS 5000] y WHERE x.id = y.id")
    assert [side.alias for side in join.sides] == ["x", "y"]
    assert join.sides[0].window == WindowSpec(Range(120_000_000), EveryEvent())
    assert join.sides[1].window == WindowSpec(Rows(5000), EveryEvent())
    assert [side.kind for side in join.sides] == [JoinKind.INNER, JoinKind.INNER]
    assert select.window is None
    assert select.where == same("x.id", "y.id")
    assert select.emit is Emit.EVENT_GROUP
    assert is_windowed(select)
    assert columns_of(select).names == ("window_start", "window_end", "v", "w")


def test_conditions_see_the_sides_so_far() -> None:
    _, join = bound("SELECT v FROM a [NOW] x LEFT OUTER JOIN b [NOW] y ON x.id = y.id CROSS JOIN b [NOW] z")
    assert [side.kind for side in join.sides] == [JoinKind.INNER, JoinKind.LEFT, JoinKind.INNER]
    assert [side.on for side in join.sides] == [None, same("x.id", "y.id"), None]


def test_a_side_that_may_be_missing_is_nullable() -> None:
    for kind, nullable in (("", "00"), ("LEFT", "01"), ("RIGHT", "10"), ("FULL OUTER", "11")):
        select, _ = bound(f"SELECT x.id AS i, y.id AS j FROM a [NOW] x {kind} JOIN b [NOW] y ON x.id = y.id")
        assert "".join(str(int(field.nullable)) for field in select.schema) == nullable


def test_a_star_names_columns_plainly_where_they_are_unique() -> None:
    select, _ = bound("SELECT * FROM a [NOW] x, b [NOW] y")
    assert select.schema.names == ("x_t", "x_id", "v", "y_t", "y_id", "w")
    select, _ = bound("SELECT y.* FROM a [NOW] x, b [NOW] y")
    assert select.schema.names == ("y_t", "y_id", "w")


def test_the_name_of_a_stream_is_its_alias() -> None:
    select, _ = bound("SELECT a.id, B.id AS other FROM a [NOW], b [NOW]")
    assert [output.expression for output in select.outputs] == [
        Column("a.id", SqlType.INT),
        Column("b.id", SqlType.INT),
    ]


def test_subqueries_with_windows_are_sides() -> None:
    select, _ = bound("SELECT m, y.window_end AS e FROM a [NOW] x, (SELECT MAX(id) AS m FROM b [ROWS 5]) [NOW] y")
    assert select.schema.names == ("m", "e")


def test_at_slides_a_join_aggregates() -> None:
    select, _ = bound(
        "SELECT x.id, COUNT(*) AS n FROM a [RANGE 2 MINUTES SLIDE 1 MINUTE] x "
        "JOIN b [ROWS 10 SLIDE 1 MINUTE] y ON x.id = y.id GROUP BY x.id HAVING n > 1 ORDER BY n LIMIT 3"
    )
    assert select.aggregating
    assert select.emit is Emit.RSTREAM
    assert select.group_by == (Column("x.id", SqlType.INT),)
