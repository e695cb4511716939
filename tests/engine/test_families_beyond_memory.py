"""Families of windows made of panes with more groups than memory: they go to shards, the budget holds, and answers stay
what they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.operators.panes.family import PaneFamily
from penstock.operators.panes.held import HeldPanes

MINUTE = 60_000_000
KEYS = 4_000
MEMORY = 500_000
ROWS = 2 * KEYS
BATCH = 1_000
STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k {key} NOT NULL, x DOUBLE, n INT, EVENT TIME t);"
SUMS = "SUM(x) AS total, COUNT(*) AS n"
MANY = "AVG(x) AS a, VAR_POP(x) AS v, MIN(x) AS lo, MAX(n) AS hi, FIRST(n) AS f, LAST(x) AS l, ARG_MAX(n, x) AS m"
WINDOWS = ((60, 10), (120, 20), (30, 10))


def batches(key: str, first: int = 0, last: int = ROWS) -> Iterator[pa.RecordBatch]:
    """Each key about once in an hour; every seventh event is of one of ten keys, which have values of all sizes."""
    for start in range(first, last, BATCH):
        numbers = np.arange(start, min(start + BATCH, last))
        often = numbers % 7 == 0
        times = pa.array(numbers * (60 * MINUTE) // KEYS).view(pa.timestamp("us"))
        keys = pa.array(np.where(often, numbers % 10, numbers * 7919 % KEYS))
        values = np.where(
            often & (numbers > BATCH) & (numbers % 3 == 0), 10.0 ** (numbers % 600 - 300), numbers % 97 / 8
        )
        values[numbers % 1001 == 0] = np.nan
        columns = [
            times,
            keys if key == "BIGINT" else keys.cast(pa.string()),
            pa.array(values, mask=numbers % 11 == 0),
            pa.array((numbers % 13).astype(np.int32)),
        ]
        yield pa.RecordBatch.from_arrays(columns, names=["t", "k", "x", "n"])


def program(what: str, key: str = "BIGINT", emit: str = "") -> str:
    return STREAM.format(key=key) + "".join(
        f"CREATE QUERY w{i} AS SELECT {emit} k, {what} "
        f"FROM s [RANGE {extent} MINUTES SLIDE {slide} MINUTES] GROUP BY k;"
        for i, (extent, slide) in enumerate(WINDOWS)
    )


def bits(table: pa.Table) -> list[Any]:
    """The columns, bit for bit, except that all NaN are one."""
    found: list[Any] = []
    for column in table.columns:
        array = column.combine_chunks()
        found.append(array.is_valid().to_pylist())
        if pa.types.is_floating(array.type):
            array = array.fill_null(0.0).to_numpy()
            found.append(np.where(array != array, np.nan, array).tobytes())
        else:
            found.append(array.to_pylist())
    return found


def is_in_shards(app: ps.App) -> bool:
    families = [one for one in app._flow._aggregations.values() if isinstance(one, PaneFamily)]
    return any(family._paged is not None for family in families)


def answers(text: str, key: str, memory: int, strategy: str) -> tuple[list[Any], ps.Metrics, bool]:
    with ps.App(text, memory=memory, block_size="4KiB", strategy=strategy) as app:
        for batch in batches(key):
            app.push("s", batch)
        metrics, paged = app.metrics, is_in_shards(app)
        app.finish()
        return [bits(app.results(f"w{i}")) for i in range(len(WINDOWS))], metrics, paged


@pytest.mark.parametrize(("what", "key", "memory"), [(SUMS, "STRING", MEMORY), (MANY, "BIGINT", 4 * MEMORY)])
def test_answers_are_those_of_enough_memory(what: str, key: str, memory: int) -> None:
    whole, in_memory, stays = answers(program(what, key), key, 100 * MEMORY, "panes")
    paged, metrics, goes = answers(program(what, key), key, memory, "panes")
    stored, _, _ = answers(program(what, key), key, 100 * MEMORY, "window")
    assert (stays, goes) == (False, True)
    assert paged == whole == stored
    assert metrics.memory_peak <= memory
    assert in_memory.memory_bytes - in_memory.pool_bytes > 2 * memory


@pytest.mark.parametrize("memory", [3 * MEMORY, 100 * MEMORY])
def test_a_restart_goes_on_where_it_was_also_with_another_budget(tmp_path: Path, memory: int) -> None:
    text, half = program(MANY), ROWS // 2 + 77
    left = text.replace("CREATE QUERY w1", "CREATE QUERY other")
    with ps.App(text, memory=4 * MEMORY, checkpoint=tmp_path, strategy="panes") as app:
        for batch in batches("BIGINT", 0, half):
            app.push("s", batch)
        assert is_in_shards(app)
        app.checkpoint()
        before = [app.results(f"w{i}") for i in (0, 2)]
    with (
        ps.App(left, memory=memory, checkpoint=tmp_path, strategy="panes") as app,
        ps.App(text, memory=100 * MEMORY, strategy="panes") as whole,
    ):
        assert is_in_shards(app)
        for batch in batches("BIGINT", half):
            app.push("s", batch)
        for batch in batches("BIGINT"):
            whole.push("s", batch)
        for one in (app, whole):
            one.finish()
        for i, table in zip((0, 2), before, strict=True):
            own = app.results(f"w{i}")
            found, wanted = pa.concat_tables([table, own]), whole.results(f"w{i}")
            # What was waiting to be read at the checkpoint is there again.
            assert bits(found.slice(found.num_rows - wanted.num_rows)) == bits(wanted)


def test_queries_that_are_left_after_a_restart_read_what_is_in_the_logs(tmp_path: Path) -> None:
    """The columns that only `sums` has read are gone with it; rows and panes in the logs have them."""
    window, other = (
        "s [RANGE 60 MINUTES SLIDE 10 MINUTES] GROUP BY k",
        "s [RANGE 30 MINUTES SLIDE 10 MINUTES] GROUP BY k",
    )
    sums = f"CREATE QUERY sums AS SELECT k, SUM(x) AS a FROM {window};"
    sums += f"CREATE QUERY both AS SELECT k, SUM(x) AS a, MAX(n) AS b FROM {other};"
    most = f"CREATE QUERY most AS SELECT k, MAX(n) AS a FROM {window};"
    stream, half = STREAM.format(key="BIGINT"), ROWS // 2 + 177
    for strategy in ("panes", "window"):
        directory = tmp_path / strategy
        with ps.App(stream + sums + most, memory=MEMORY, checkpoint=directory, strategy=strategy) as app:
            for batch in batches("BIGINT", 0, half):
                app.push("s", batch)
            app.checkpoint()
        with (
            ps.App(stream + most, memory=MEMORY, checkpoint=directory, strategy=strategy) as app,
            ps.App(stream + most, memory=100 * MEMORY) as whole,
        ):
            for one, first in ((app, half), (whole, 0)):
                for batch in batches("BIGINT", first):
                    one.push("s", batch)
                one.finish()
            assert bits(app.results("most")) == bits(whole.results("most"))


def test_changes_are_those_of_enough_memory() -> None:
    """What ISTREAM compares with is in memory; the groups are in shards."""
    text = program("COUNT(*) AS n", emit="ISTREAM").replace("GROUP BY k;", "GROUP BY k HAVING COUNT(*) > 2;")
    whole, _, stays = answers(text, "BIGINT", 100 * MEMORY, "panes")
    paged, _, goes = answers(text, "BIGINT", MEMORY, "panes")
    assert (stays, goes) == (False, True)
    assert paged == whole


def test_windows_without_groups_stay_in_memory() -> None:
    text = program(SUMS).replace("SELECT  k, ", "SELECT ").replace(" GROUP BY k", "")
    _, _, paged = answers(text, "BIGINT", MEMORY, "panes")
    assert not paged


def test_memory_is_given_back_when_the_last_query_goes() -> None:
    with ps.App(program(SUMS), memory=MEMORY, strategy="panes") as app:
        nothing = ps.App(program(SUMS), memory=MEMORY, strategy="panes").metrics.memory_bytes
        for batch in batches("BIGINT"):
            app.push("s", batch)
        app.drop_query("w1")
        app.push("s", [{"t": 121 * MINUTE, "k": 1, "x": 1.0, "n": 1}])
        assert is_in_shards(app)
        assert not [one for one in vars(app._flow).values() if isinstance(one, HeldPanes)]
        for name in ("w0", "w2"):
            app.results(name)
            app.drop_query(name)
        assert app.metrics.memory_bytes <= nothing
