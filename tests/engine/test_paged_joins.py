"""Joins whose windows and keys are ten times the memory run in it, and answer as with all the memory they want."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock import App
from penstock.operators.joins.paged import PagedJoin

HOUR = 3600 * 1_000_000
KEYS = 70_000
STEP = 10_000
MEMORY = 1_600_000
PROGRAM = """
CREATE STREAM a (t TIMESTAMP NOT NULL, k BIGINT, z STRING, v DOUBLE, EVENT TIME t);
CREATE STREAM b (t TIMESTAMP NOT NULL, k BIGINT, z STRING, v DOUBLE, EVENT TIME t);
"""
JOINS = {
    "numbers": "SELECT x.k, x.v, y.v AS w FROM a [RANGE 1 HOUR] AS x JOIN b [RANGE 1 HOUR] AS y ON x.k = y.k;",
    "texts": "SELECT x.z, y.v FROM a [RANGE 1 HOUR] AS x LEFT JOIN b [RANGE 30 MINUTES] AS y ON x.z = y.z;",
    "itself": """
        SELECT x.v, y.v AS w
        FROM a [RANGE 40 MINUTES] AS x FULL JOIN a [RANGE 1 HOUR] AS y ON x.k = y.k AND x.v < y.v;
    """,
}


def batches(skewed: bool, hours: float) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Each key once an hour in a scattered order on each side; if they are skewed, half of a's rows have one key."""
    for first in range(0, int(hours * KEYS), STEP):
        at = np.arange(first, first + STEP)
        times = pa.array(at * HOUR // KEYS).view(pa.timestamp("us", "UTC"))
        for stream, shift in (("a", 0), ("b", KEYS // 2)):
            keys = (at + shift) * 7919 % KEYS
            if skewed and stream == "a":
                keys[::2] = -1
            texts = pa.array([f"the text of key {key}" for key in keys.tolist()])
            columns: list[Any] = [times, pa.array(keys, mask=at % 97 == 0), texts, pa.array(at % 13 / 4)]
            yield stream, pa.RecordBatch.from_arrays(columns, names=["t", "k", "z", "v"])


def ran(app: App, skewed: bool = False, hours: float = 1.3) -> list[pa.RecordBatch]:
    taken: list[pa.RecordBatch] = []
    app.subscribe(app.queries[0], taken.append)
    for stream, batch in batches(skewed, hours):
        app.push(stream, batch)
    app.finish()
    return taken


@pytest.mark.parametrize(
    ("name", "skewed"), [("numbers", False), ("numbers", True), ("texts", False), ("itself", False)]
)
def test_windows_and_keys_may_be_ten_times_the_memory(name: str, skewed: bool, tmp_path: Path) -> None:
    found = {}
    for memory in (MEMORY, 400_000_000):
        with App(PROGRAM + JOINS[name], memory=memory, checkpoint=tmp_path / str(memory)) as app:
            found[memory] = pa.Table.from_batches(ran(app, skewed)).combine_chunks()
            budget = app._stores.budget
            held = budget.used - app.metrics.pool_bytes
            assert budget.peak <= memory
    if (name, skewed) == ("numbers", False):
        assert held >= 10 * MEMORY
    assert found[MEMORY].equals(found[400_000_000])
    assert found[MEMORY].num_rows > KEYS // 2


def test_a_join_in_shards_goes_on_from_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = []
    play = PagedJoin.play
    monkeypatch.setattr(PagedJoin, "play", lambda *given: (played.append(1), play(*given))[1])
    text = PROGRAM + JOINS["texts"]
    with App(text, memory=400_000_000) as app:
        expected = pa.Table.from_batches(ran(app, hours=0.5)).combine_chunks()
    taken: list[pa.RecordBatch] = []
    app = App(text, memory=MEMORY, checkpoint=tmp_path)
    app.subscribe(app.queries[0], taken.append)
    for number, (stream, batch) in enumerate(batches(False, 0.5)):
        if number in (6, 9):
            before = len(played)
            app.checkpoint()
            app.close()
            app = App(text, memory=MEMORY if number == 6 else 400_000_000, checkpoint=tmp_path)
            app.subscribe(app.queries[0], taken.append)
            assert before > 0
        app.push(stream, batch)
    app.finish()
    app.close()
    assert pa.Table.from_batches(taken).combine_chunks().equals(expected)
