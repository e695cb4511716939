"""A program is parsed once and each of its queries is planned once, whichever way it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from counted_plans import count_plans
from penstock.cli import embedded

STREAM = "CREATE STREAM s (t TIMESTAMP, k INT, x DOUBLE, EVENT TIME t)"
QUERIES = """
    CREATE QUERY a AS SELECT k, SUM(x) AS n FROM (SELECT k, x FROM s) [RANGE 1 HOUR SLIDE 1 MINUTE] GROUP BY k;
    CREATE QUERY b AS SELECT AVG(x) AS n FROM s [RANGE 1 HOUR SLIDE 1 MINUTE]
"""


def test_an_app(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = count_plans(monkeypatch)
    with ps.App(f"{STREAM}; {QUERIES}") as app:
        assert (counted.parsed, counted.planned) == (1, 2)
        app.explain()
        assert (counted.parsed, counted.planned) == (1, 2)


def test_queries_that_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    with ps.App(STREAM) as app:
        counted = count_plans(monkeypatch)
        app.add_query(QUERIES)
        assert (counted.parsed, counted.planned) == (1, 2)


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("t,k,x\n2024-01-01T00:00:00Z,1,2.0\n")
    counted = count_plans(monkeypatch)
    source = f"{STREAM} FROM '{tmp_path}/s.csv'"
    embedded.run_embedded(
        f"{source}; {QUERIES}",
        memory="64MB",
        checkpoint=None,
        every=None,
        block_size="64KiB",
        compression=None,
        rejects=tmp_path / "rejects.jsonl",
        batch=100,
        follow=False,
        limit=None,
        quiet=True,
    )
    assert (counted.parsed, counted.planned) == (1, 2)
