"""Patterns whose events and keys are ten times the memory run in it, and answer as with all the memory they want."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock import App
from penstock.operators.patterns.paged import PagedPattern

HOUR = 3600 * 1_000_000
KEYS = 70_000
STEP = 10_000
MEMORY = 1_600_000
PLENTY = 400_000_000
PROGRAM = """
CREATE STREAM a (t TIMESTAMP NOT NULL, k BIGINT, z STRING, v DOUBLE, EVENT TIME t);
CREATE STREAM b (t TIMESTAMP NOT NULL, k BIGINT, z STRING, v DOUBLE, EVENT TIME t);
"""
PATTERNS = {
    "numbers": "SELECT x.k, x.v, y.v AS w FROM PATTERN SEQ(a x, b y) WHERE x.k = y.k WITHIN 1 HOUR;",
    "texts": "SELECT y.z, x.v FROM PATTERN SEQ(ONE a x, ONE b y, a z) WHERE x.z = y.z AND y.z = z.z WITHIN 90 MINUTES;",
    "absent": "SELECT x.k, x.v FROM PATTERN SEQ(a x, !b y) WHERE x.k = y.k AND y.v > x.v WITHIN 20 MINUTES;",
    "repeated": """
        SELECT x.k, COUNT(c.*) AS n, SUM(c.v) AS v FROM PATTERN SEQ(a x, b+ c, !a y)
        WHERE x.k = c.k AND x.k = y.k WITHIN 50 MINUTES;
    """,
}


def batches(skewed: bool, hours: float) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Each key once an hour in a scattered order in each stream. If they are skewed, a tenth of a's rows have one."""
    for first in range(0, int(hours * KEYS), STEP):
        at = np.arange(first, first + STEP)
        times = pa.array(at * HOUR // KEYS).view(pa.timestamp("us", "UTC"))
        for stream, shift in (("a", 0), ("b", KEYS // 2)):
            keys = (at + shift) * 7919 % KEYS
            if skewed and stream == "a":
                keys[::10] = -1
            texts = pa.array([f"the text of key {key}" for key in keys.tolist()])
            columns: list[Any] = [times, pa.array(keys, mask=at % 97 == 0), texts, pa.array(at % 13 / 4)]
            yield stream, pa.RecordBatch.from_arrays(columns, names=["t", "k", "z", "v"])


@pytest.mark.parametrize(
    ("name", "skewed"), [("numbers", False), ("numbers", True), ("texts", False), ("absent", False), ("repeated", True)]
)
def test_events_and_keys_may_be_ten_times_the_memory(name: str, skewed: bool, tmp_path: Path) -> None:
    found = {}
    for memory in (MEMORY, PLENTY):
        with App(PROGRAM + PATTERNS[name], memory=memory, checkpoint=tmp_path / str(memory)) as app:
            taken: list[pa.RecordBatch] = []
            app.subscribe(app.queries[0], taken.append)
            budget, held = app._stores.budget, 0
            for stream, batch in batches(skewed, 1.7):
                app.push(stream, batch)
                held = max(held, budget.used - app.metrics.pool_bytes)
            app.finish()
            found[memory] = pa.Table.from_batches(taken).combine_chunks()
            assert budget.peak <= memory
    if (name, skewed) == ("texts", False):
        assert held >= 10 * MEMORY
    assert found[MEMORY].equals(found[PLENTY])
    assert found[MEMORY].num_rows > KEYS // 4


@pytest.mark.parametrize("name", ["texts", "absent"])
def test_a_pattern_in_shards_goes_on_from_a_checkpoint(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = []
    play = PagedPattern.play
    monkeypatch.setattr(PagedPattern, "play", lambda *given: (played.append(1), play(*given))[1])
    text = PROGRAM + PATTERNS[name]
    taken: dict[bool, list[pa.RecordBatch]] = {False: [], True: []}
    for restarts in (False, True):
        app = App(text, memory=MEMORY if restarts else PLENTY, checkpoint=tmp_path / str(restarts))
        app.subscribe(app.queries[0], taken[restarts].append)
        for number, (stream, batch) in enumerate(batches(False, 1.5)):
            if restarts and number in (9, 15):
                before = len(played)
                app.checkpoint()
                app.close()
                app = App(text, memory=PLENTY if number == 9 else 2 * MEMORY, checkpoint=tmp_path / str(restarts))
                app.subscribe(app.queries[0], taken[restarts].append)
                assert before > 0
            app.push(stream, batch)
        app.finish()
        app.close()
    expected, found = (pa.Table.from_batches(taken[restarts]).combine_chunks() for restarts in (False, True))
    assert found.equals(expected)
    assert found.num_rows > 0
