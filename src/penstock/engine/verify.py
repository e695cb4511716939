"""Whether every block that a checkpoint names can be read back as it was written. Nothing is changed.

The state itself was verified when it was decoded: one checksum is over all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.components import read_as
from penstock.engine.saved_state import SavedQuery
from penstock.errors import StorageError
from penstock.store.file_device import FileDevice
from penstock.store.manager import block_file, read_device, read_store
from penstock.store.queue_rounds import Rounds
from penstock.store.slots import SlotMap


@dataclass(frozen=True)
class Damage:
    """`rows` are those that can no longer be read, None where it is not known how many a block has. `queries` are those
    that need them."""

    store: str
    block: int
    rows: int | None
    queries: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Verified:
    """`parts` are those of states that are in files of their own."""

    blocks: int
    nbytes: int
    damaged: tuple[Damage, ...]
    parts: int = 0


def verify_app(directory: Path, stores: Mapping[str, Any], queries: Mapping[str, SavedQuery]) -> Verified:
    """Reads all blocks of the stores of an embedded app's checkpoint."""
    blocks = nbytes = 0
    damaged: list[Damage] = []
    for name, saved in stores.items():
        device = read_device(saved)
        addresses = np.flatnonzero(read_as(SlotMap, device["slots"])["sequences"] >= 0).tolist()
        blocks += len(addresses)
        nbytes += int(device["stored"][addresses].sum())
        damaged += [
            Damage(name, address, rows_in(saved, address), needing(name, queries), reason)
            for address, reason in _unreadable(directory / "blocks" / block_file(name), device, addresses)
        ]
    return Verified(blocks, nbytes, tuple(damaged))


def _unreadable(path: Path, saved: dict[str, Any], addresses: Iterable[int]) -> Iterator[tuple[int, str]]:
    """The blocks that cannot be read, and why."""
    addresses = list(addresses)
    if not addresses:
        return
    if not path.exists():
        yield from ((address, f"{path} is missing") for address in addresses)
        return
    device = FileDevice(path, saved["regions"][-1][2], read_only=True)
    try:
        with suppress(StorageError):  # a file that is too short: told of each block that is not there
            device.restore(saved)
        for address in addresses:
            try:
                device.read(address)
            except StorageError as error:
                yield address, str(error)
    finally:
        device.close()


def needing(store: str, queries: Mapping[str, SavedQuery]) -> tuple[str, ...]:
    """The queries that read a store. Events that wait to be put in order, and tables, are for all."""
    readers = tuple(query.name for query in queries.values() if store in query.stores)
    return readers or tuple(queries)


def rows_in(saved: dict[str, Any], address: int) -> int | None:
    """How many rows the block at this address has of a store's; None where its owner does not say."""
    saved = read_store(saved)
    if "head" in saved:
        return _rows_of_window(saved, address)
    if "rounds" in saved:
        blocks = read_as(Rounds, saved["rounds"])["blocks"]
        return int(blocks[blocks[:, 0] == address, 1].sum())
    if "runs" in saved:
        pieces = [run["spilled"]["pieces"] for run in saved["runs"] if "spilled" in run]
        return sum(int(own[own[:, 0] == address, 2].sum()) for own in pieces)
    return None


def _rows_of_window(saved: dict[str, Any], address: int) -> int:
    """Rows that have left the window are not counted."""
    opened = len(saved["open"][0][0]) if saved["open"] else 0
    ends = [era["first"] for era in saved["eras"][1:]] + [saved["head"] - opened]
    at = saved["addresses"].tolist().index(address) if address in saved["addresses"] else -1
    for era, end in zip(saved["eras"], ends, strict=True):
        if 0 <= at < era["blocks"]:
            rows = (end - era["first"]) // era["blocks"]
            first = era["first"] + at * rows
            return len(range(max(first, saved["tail"]), first + rows))
        at -= era["blocks"]
    return 0
