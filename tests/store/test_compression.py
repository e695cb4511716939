"""Compressed blocks: the same bytes come back, whatever the setting now; kept only where they are smaller."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import StorageError
from penstock.store.budget import Budget
from penstock.store.compression import BlockCodec
from penstock.store.file_device import FileDevice
from penstock.store.manager import StoreManager

CODECS = [None, "lz4", "zstd"]
codecs = pytest.mark.parametrize("compression", CODECS)

TEXT = """
CREATE STREAM s (t TIMESTAMP, k BIGINT, v BIGINT, EVENT TIME t);
SELECT SUM(v) AS total FROM s [ROWS 20000 SLIDE 1000];
SELECT k, MAX(v) AS most FROM s [PARTITION BY k ROWS 3000 SLIDE 500] GROUP BY k;
"""


def smooth(count: int) -> bytes:
    return np.arange(count, dtype=np.int64).tobytes()


def noise(count: int, seed: int = 1) -> bytes:
    return np.random.default_rng(seed).bytes(8 * count)


@given(st.lists(st.one_of(st.binary(max_size=3_000), st.integers(0, 400).map(smooth)), max_size=20), st.data())
def test_every_block_comes_back(blocks: list[bytes], data: st.DataObject) -> None:
    codec = BlockCodec(data.draw(st.sampled_from(CODECS)))
    another = BlockCodec(data.draw(st.sampled_from(CODECS)))
    for block in blocks:
        number, stored = codec.compress(block)
        found = another.decompress(number, np.frombuffer(bytes(stored), np.uint8), len(block))
        assert bytes(found) == block
        assert len(stored) <= len(block)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_only_what_shrinks_is_stored_smaller(compression: str, tmp_path: Path) -> None:
    device = FileDevice(tmp_path / "blocks", 8192, compression)
    device.write(noise(1_000))
    assert device.stored == device.written == 8_000
    for _ in range(63):  # after a trial in vain the next ones are not even tried
        device.write(smooth(1_000))
    assert device.stored == device.written
    device.write(smooth(1_000))
    device.write(smooth(1_000))
    saved = device.written - device.stored
    assert saved > 2 * 8_000 * 0.3
    device.close()


def test_what_is_unknown_is_refused_before_there_is_a_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="unknown compression 'gzip'; use lz4 or zstd"):
        StoreManager(Budget(1 << 20), tmp_path / "blocks", compression="gzip")
    assert not (tmp_path / "blocks").exists()
    with pytest.raises(ps.PenstockError, match="use lz4 or zstd"):
        ps.App(TEXT, compression="snappy")


def events(count: int) -> pa.Table:
    times = pa.array(range(count), pa.timestamp("us", tz="UTC"))
    return pa.table({"t": times, "k": np.arange(count) % 7, "v": np.arange(count) % 1_000})


# With the quick tests every setting is once the one before and once the one after.
RESTARTS = [
    pytest.param(before, after, marks=[] if (i + 1 - j) % len(CODECS) == 0 else [pytest.mark.slow])
    for i, before in enumerate(CODECS)
    for j, after in enumerate(CODECS)
]


@pytest.mark.parametrize(("before", "after"), RESTARTS)
def test_a_restart_under_another_setting(before: str | None, after: str | None, tmp_path: Path) -> None:
    """Windows on disk under one setting are read back under another, with the answers of an app in memory."""
    all_events = events(60_000)
    found: dict[str, list[pa.Table]] = {"q1": [], "q2": []}
    for compression, begin, end in [(before, 0, 35_000), (after, 35_000, 60_000)]:
        with ps.App(TEXT, memory="400KB", block_size=8192, checkpoint=tmp_path, compression=compression) as app:
            app.push("s", all_events.slice(begin, end - begin))
            for query, tables in found.items():
                tables.append(app.results(query))
            metrics = app.metrics
            assert metrics.blocks_read > 0
            if compression is None:
                assert metrics.bytes_compressed == metrics.bytes_written > 0
            else:
                assert 0 < metrics.bytes_compressed < 0.7 * metrics.bytes_written
            app.checkpoint()
    with ps.App(TEXT) as app:
        app.push("s", all_events)
        assert app.metrics.blocks_written == app.metrics.bytes_written == 0
        for query, tables in found.items():
            assert pa.concat_tables(tables).to_pylist() == app.results(query).to_pylist()
