"""Damaged block files: always `StorageError`, never wrong rows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.errors import StorageError
from penstock.store.fifo import FifoStore
from penstock.store.file_device import FileDevice

from .rows import batch, expected, make_store, rows_of

BLOCK = 256


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "window.blocks"


def filled(path: Path, compression: str | None = None) -> FifoStore:
    store = make_store(FileDevice(path, BLOCK, compression), block_size=BLOCK)
    store.append(batch(0, 10 * store.block_rows))
    assert store.metrics.blocks_written >= 8
    return store


def scan(store: FifoStore) -> list[tuple[object, ...]]:
    return [row for view in store.scan(0, store.head) for row in rows_of(view)]


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_flipped_bit_anywhere_in_a_block(path: Path, compression: str | None) -> None:
    store = filled(path, compression)
    device = store.device
    block = bytes(device.read(3))
    original = path.read_bytes()
    used = len(original[3 * BLOCK : 4 * BLOCK].rstrip(b"\0")) if compression else 32 + len(block)
    for index in range(used):
        for bit in (index % 8, (index + 3) % 8):
            damaged = bytearray(original)
            damaged[3 * BLOCK + index] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(StorageError):
                device.read(3)
    path.write_bytes(original)
    assert bytes(device.read(3)) == block


def test_the_error_names_file_block_and_rows(path: Path) -> None:
    store = filled(path)
    with path.open("r+b") as file:
        file.seek(2 * BLOCK + 100)
        file.write(b"\xff\x00\xff")
    with pytest.raises(StorageError) as error:
        scan(store)
    text = str(error.value)
    block = store.block_rows
    assert f"{path}: block 2 is damaged" in text
    assert "window's rows" in text
    first = int(text.split("rows ")[-1].split(" to ")[0])
    assert first % block == 0


def test_a_truncated_file(path: Path) -> None:
    store = filled(path)
    size = path.stat().st_size
    last = size // BLOCK if size % BLOCK else size // BLOCK - 1
    for length in range(last * BLOCK, size):
        os.truncate(path, length)
        with pytest.raises(StorageError, match="truncated"):
            store.device.read(last)
    os.truncate(path, 0)
    with pytest.raises(StorageError, match="truncated"):
        scan(store)


def test_swapped_blocks(path: Path) -> None:
    store = filled(path)
    content = bytearray(path.read_bytes())
    content[BLOCK : 2 * BLOCK], content[2 * BLOCK : 3 * BLOCK] = (
        content[2 * BLOCK : 3 * BLOCK],
        content[BLOCK : 2 * BLOCK],
    )
    path.write_bytes(content)
    for address in (1, 2):
        with pytest.raises(StorageError, match="holds another block"):
            store.device.read(address)


def test_an_older_block_in_its_old_place(path: Path) -> None:
    """As if the last write to the slot had been lost."""
    device = FileDevice(path, BLOCK)
    device.write(b"old")
    before = path.read_bytes()
    device.free(0)
    assert device.write(b"new") == 0
    path.write_bytes(before)
    with pytest.raises(StorageError, match="holds another block"):
        device.read(0)


def test_a_block_of_another_file(path: Path, tmp_path: Path) -> None:
    device, other = FileDevice(path, BLOCK), FileDevice(tmp_path / "other", BLOCK)
    assert device.write(b"ours") == other.write(b"else") == 0
    path.write_bytes((tmp_path / "other").read_bytes())
    with pytest.raises(StorageError, match="damaged"):
        device.read(0)


def test_an_address_that_is_not_in_use(path: Path) -> None:
    device = FileDevice(path, BLOCK)
    device.free(device.write(b"gone"))
    for address in (0, 1, -1):
        with pytest.raises(StorageError, match="not in use"):
            device.read(address)


def test_what_a_previous_process_left_is_not_taken_for_ours(path: Path) -> None:
    filled(path)
    store = make_store(FileDevice(path, BLOCK), block_size=BLOCK)
    store.append(batch(0, 3 * store.block_rows))
    assert scan(store) == expected(0, store.head)
    assert path.stat().st_size <= 2 * BLOCK


def test_a_missing_slot_of_zeros(path: Path) -> None:
    store = filled(path)
    content = bytearray(path.read_bytes())
    content[0:BLOCK] = bytes(BLOCK)
    path.write_bytes(content)
    with pytest.raises(StorageError, match="damaged"):
        store.device.read(0)
