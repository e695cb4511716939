"""Segment files: what is written is read, damage is noticed, files go when no state can name them any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StorageError
from penstock.spark import segment_device
from penstock.spark.segment_device import SegmentDevice


def device(directory: Path, retain: int = 2) -> SegmentDevice:
    return SegmentDevice(str(directory), block_bytes=200, retain=retain)


def written(device: SegmentDevice, directory: Path) -> list[Path]:
    """The files that this device's state names."""
    return [directory / name for _, name, _ in device.snapshot()["segments"]]


class Refusing:
    """A file system where nothing can be deleted."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def delete_file(self, path: str) -> None:
        raise PermissionError(path)


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


def test_orphans_are_swept_when_no_state_that_may_be_loaded_can_name_them(tmp_path: Path) -> None:
    """Two attempts of micro-batch 10: one wins, the other leaves a file."""
    winner, loser = device(tmp_path, retain=2), device(tmp_path, retain=2)
    for attempt in (winner, loser):
        attempt.begin(10)
    kept = winner.write(b"of the winner")
    loser.write(b"of the loser")
    snapshot = winner.snapshot()
    (orphan,) = written(loser, tmp_path)
    resumed = device(tmp_path, retain=2)
    resumed.restore(snapshot)
    for batch in (11, 12, 13):
        resumed.begin(batch)
        assert orphan.exists(), f"batch {batch}: Spark may still load the loser's state"
    resumed.restore(resumed.snapshot())
    resumed.begin(14)
    assert not orphan.exists()
    assert bytes(resumed.read(kept)) == b"of the winner"


def test_orphans_go_without_a_restore_and_other_files_stay(tmp_path: Path) -> None:
    """A speculative attempt leaves a file beside a device that lives on."""
    survivor, loser = device(tmp_path, retain=3), device(tmp_path, retain=3)
    survivor.begin(1)
    loser.begin(1)
    kept = survivor.write(b"kept")
    loser.write(b"orphan")
    survivor.snapshot()
    (orphan,) = written(loser, tmp_path)
    (tmp_path / "notes.txt").write_text("not ours")
    for batch in range(2, 10):
        survivor.begin(batch)
    assert not orphan.exists()
    assert bytes(survivor.read(kept)) == b"kept"
    assert (tmp_path / "notes.txt").exists()


def test_the_losing_attempts_state_is_whole(tmp_path: Path) -> None:
    """Spark may load the state of the attempt that lost: its blocks are there, whatever the winner does meanwhile."""
    first, second = device(tmp_path, retain=2), device(tmp_path, retain=2)
    addresses = []
    for attempt in (first, second):
        attempt.begin(5)
        addresses.append(attempt.write(b"the same block"))
    states = [attempt.snapshot() for attempt in (first, second)]
    for batch in (6, 7, 8):
        first.begin(batch)
    for state, address in zip(states, addresses, strict=True):
        resumed = device(tmp_path, retain=2)
        resumed.restore(state)
        resumed.begin(6)
        assert bytes(resumed.read(address)) == b"the same block"


def test_a_file_that_cannot_be_deleted_does_not_stop_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = device(tmp_path, retain=1)
    writer.begin(1)
    writer.free(writer.write(b"a"))
    writer.snapshot()
    (file,) = files(tmp_path)

    with monkeypatch.context() as patch:
        patch.setattr(writer, "_files", Refusing(writer._files))
        writer.begin(3)
    assert file.exists()
    writer.begin(4)
    assert not file.exists(), "the next sweep has another try"


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
