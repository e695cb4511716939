"""Segment files: what is written is read, damage is noticed, files go when no state can name them any more."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StorageError
from penstock.spark import segment_device
from penstock.spark.segment_device import SegmentDevice


def device(directory: Path, retain: int = 2) -> SegmentDevice:
    return SegmentDevice(str(directory), block_bytes=200, retain=retain)


def files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.segment"))


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=30), st.sampled_from([50, 300, 10_000]))
def test_blocks_survive_a_restore(tmp_path_factory: pytest.TempPathFactory, blocks: list[bytes], size: int) -> None:
    directory = tmp_path_factory.mktemp("segments")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_device, "SEGMENT_BYTES", size)
        writer = device(directory)
        addresses = [writer.write(block) for block in blocks]
        assert len(set(addresses)) == len(blocks)
        reader = device(directory)
        reader.restore(writer.snapshot())
        for address, block in zip(addresses, blocks, strict=True):
            assert bytes(reader.read(address)) == bytes(writer.read(address)) == block


def test_a_block_is_readable_before_any_sync(tmp_path: Path) -> None:
    writer = device(tmp_path)
    first = writer.write(b"first")
    assert bytes(writer.read(first)) == b"first"
    second = writer.write(b"second")
    assert bytes(writer.read(second)) == b"second"
    assert bytes(writer.read(first)) == b"first"


def test_a_file_goes_only_when_no_retained_state_names_it(tmp_path: Path) -> None:
    writer = device(tmp_path, retain=2)
    writer.begin(10)
    addresses = [writer.write(b"a"), writer.write(b"b")]
    writer.snapshot()
    writer.begin(11)
    writer.free(addresses[0])
    writer.begin(12)
    writer.free(addresses[1])
    for batch in (13, 14):
        writer.begin(batch)
        assert len(files(tmp_path)) == 1, f"batch {batch}: Spark may still go back to batch 11"
    writer.begin(15)
    assert files(tmp_path) == []


def test_retirement_survives_a_restore(tmp_path: Path) -> None:
    writer = device(tmp_path, retain=2)
    writer.begin(10)
    writer.free(writer.write(b"a"))
    resumed = device(tmp_path, retain=2)
    resumed.restore(writer.snapshot())
    resumed.begin(12)
    assert len(files(tmp_path)) == 1
    resumed.begin(13)
    assert files(tmp_path) == []


def test_old_orphans_are_swept_and_young_ones_left(tmp_path: Path) -> None:
    writer = device(tmp_path)
    kept = writer.write(b"kept")
    snapshot = writer.snapshot()
    failed = device(tmp_path)
    for _ in range(2):
        failed.write(b"of a failed attempt")
        failed.sync()
    named = {name for _, name, _ in snapshot["segments"]}
    old, young = [f for f in files(tmp_path) if f.name not in named]
    long_ago = time.time() - 2 * segment_device.ORPHAN_AGE
    os.utime(old, (long_ago, long_ago))
    resumed = device(tmp_path)
    resumed.restore(snapshot)
    assert not old.exists()
    assert young.exists()
    assert bytes(resumed.read(kept)) == b"kept"


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_is_an_error_that_names_the_file(tmp_path: Path, damage: str) -> None:
    writer = device(tmp_path)
    address = writer.write(b"a block of some length")
    snapshot = writer.snapshot()
    (file,) = files(tmp_path)
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[-3] ^= 1
        file.write_bytes(data)
    elif damage == "truncate":
        file.write_bytes(data[:-4])
    else:
        file.unlink()
    reader = device(tmp_path)
    reader.restore(snapshot)
    with pytest.raises(StorageError, match=file.name):
        reader.read(address)


def test_a_place_that_is_no_file_system_is_refused() -> None:
    with pytest.raises(StorageError, match="nowhere"):
        SegmentDevice("nowhere://x")


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    with pytest.raises(StorageError, match="cannot be written"):
        SegmentDevice(str(blocked)).write(b"x")
