"""Which queries run together: the ids of their shares stay while queries come and go."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.lang import parse
from penstock.plan.build import build
from penstock.plan.placement import place
from penstock.spark.shares import Columns, Share, share_out

STREAM = "CREATE STREAM s (t TIMESTAMP, k STRING, j INT, v DOUBLE, w DOUBLE, EVENT TIME t LATE INTO late);"
SUM = "CREATE QUERY sums AS SELECT k, SUM(v) AS x FROM s [RANGE 1 HOUR SLIDE 1 MINUTE] GROUP BY k"
MORE = "CREATE QUERY more AS SELECT k, SUM(w) AS x FROM s [RANGE 1 HOUR SLIDE 1 MINUTE] GROUP BY k"
MEDIAN = "CREATE QUERY median AS SELECT j, MEDIAN(v) AS x FROM s [RANGE 1 HOUR SLIDE 1 MINUTE] GROUP BY j"


def shares(
    *texts: str, kept: Mapping[str, str] | None = None, held: Mapping[str, Columns] | None = None
) -> dict[str, Share]:
    """By the names of their queries."""
    program = parse(f"{STREAM} {'; '.join(texts)}")
    nodes = {query.name: build(query.body) for query in program.queries}
    made = share_out(program.streams, program.queries, nodes, place(program.queries, nodes), kept, held)
    return {query.name: share for share in made for query in share.queries}


def test_the_same_key_is_one_share_whoever_is_in_it() -> None:
    alone, both = shares(SUM), shares(MORE, SUM)
    assert both["sums"] is both["more"]
    assert alone["sums"].id == both["sums"].id


def test_one_share_reports_and_has_all_columns_for_its_late_events() -> None:
    found = shares(SUM, MEDIAN)
    parts = [found[name].parts[0] for name in ("sums", "median")]
    assert [part.reports for part in parts] == [True, False]
    assert parts[0].stream.schema.names == ("t", "k", "j", "v", "w")
    assert set(parts[1].stream.schema.names) == {"t", "j", "v"}


def test_a_query_that_reads_more_than_is_held_gets_a_share_of_its_own() -> None:
    """Events that wait to be put in order do not have its columns."""
    home = shares(SUM)["sums"].id
    held: dict[str, Columns] = {home: {"s": ["t", "k", "v"]}}
    found = shares(SUM, MORE, kept={"sums": home}, held=held)
    assert found["sums"].id == home
    assert found["more"].id != home
    held[found["more"].id] = {"s": ["t", "k", "w"]}
    again = shares(MORE, SUM, kept={"sums": home, "more": found["more"].id}, held=held)
    assert {name: share.id for name, share in again.items()} == {name: share.id for name, share in found.items()}


def test_a_query_that_reads_what_is_held_joins() -> None:
    home = shares(SUM)["sums"].id
    found = shares(SUM, MORE, kept={"sums": home}, held={home: {"s": ["t", "k", "v", "w"]}})
    assert found["more"] is found["sums"]


def test_late_events_are_reported_by_a_share_that_has_them_whole() -> None:
    """The share that reported is gone, and the state of the other has not all columns; a new one has them."""
    home = shares(SUM)["sums"].id
    found = shares(SUM, MEDIAN, kept={"sums": home}, held={home: {"s": ["t", "k", "v"]}})
    assert [found[name].parts[0].reports for name in ("sums", "median")] == [False, True]
