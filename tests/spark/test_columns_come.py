"""A stream with more columns than in the checkpoint: buckets go on, and the plan knows its queries."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.lang import parse
from penstock.lang.fingerprint import fingerprint
from penstock.plan.build import build
from penstock.plan.identity import identity
from penstock.spark import processor
from penstock.spark.live import LiveObjects
from penstock.spark.plan_file import Plan

from .by_hand import Run
from .runs import in_order

SECOND = 1_000_000
SUMS = "CREATE QUERY sums AS SELECT k, SUM(v) AS n FROM s [RANGE 30 SECONDS SLIDE 10 SECONDS] GROUP BY k;"
SHOWN = "CREATE QUERY shown AS SELECT k, v FROM s [PARTITION BY k ROWS 3];"


def stream(more: str = "") -> str:
    return f"CREATE STREAM s (t TIMESTAMP, {more}k STRING, v BIGINT, EVENT TIME t LATENESS 5 SECONDS);"


def events(start: int, stop: int, **more: int) -> list[dict[str, object]]:
    return [{"t": i * SECOND, "k": "abc"[i % 3], "v": i, **more} for i in range(start, stop)]


def test_buckets_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Run(stream() + SUMS + SHOWN, random.Random(0), tmp_path)
    before.settle(before.attempt(0, [{"s": events(0, 100)}]), commit=True)
    monkeypatch.setattr(processor, "_live", LiveObjects())
    wider = Run(stream("x INT, ") + SUMS + SHOWN, random.Random(0), tmp_path)
    for bucket, own in zip(wider.buckets, before.buckets, strict=True):
        assert bucket.label == own.label
        bucket.states = dict(own.states)
    wider.settle(wider.attempt(1, [{"s": events(100, 200, x=1)}]), commit=True)
    whole = Run(stream() + SUMS + SHOWN, random.Random(0))
    whole.settle(whole.attempt(0, [{"s": events(0, 100)}]), commit=True)
    whole.forget()
    whole.settle(whole.attempt(1, [{"s": events(100, 200)}]), commit=True)
    for query in ("sums", "shown"):
        assert in_order(wider.table(query)) == in_order(whole.table(query))
        assert wider.table(query).num_rows > 0


@pytest.mark.parametrize("name", [fingerprint, identity], ids=["version 1", "version 2"])
def test_the_plan_knows_its_queries(name: object) -> None:
    def node_of(text: str) -> object:
        return build(parse(text).queries[0].body)

    assert callable(name)
    old = node_of(stream() + SUMS)
    saved = {"sums": {"fingerprint": name(old), "spread": "by key", "share": "f00d", "text": ""}}
    plan = Plan(queries=saved)
    assert plan.kept({"sums": old}) == {"sums": "f00d"}
    wider = {"sums": node_of(stream("x INT, ") + SUMS)}
    assert plan.kept(wider) == ({"sums": "f00d"} if name is identity else {})
    assert plan.kept({"sums": node_of(stream() + SUMS.replace("SUM", "MAX"))}) == {}
