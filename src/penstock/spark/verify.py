"""Whether the files beside a Spark checkpoint can be read back as they were written, without Spark.

What names them is in Spark's state store, which only Spark reads. So every block of every segment and every part of a
state of the checkpoint's query is verified, and how many rows a block has is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

import pyarrow.fs as pafs
import xxhash

from penstock.engine.verify import Damage, Verified
from penstock.errors import CheckpointError, StorageError
from penstock.spark.checkpoint_files import query_id
from penstock.spark.file_system import file_system
from penstock.spark.left_behind import segments_directory
from penstock.spark.plan_file import Plan, read_plan
from penstock.spark.segment_device import HEADER, OFFSET_BITS, SUFFIX
from penstock.spark.state_files import SUFFIX as STATE_SUFFIX
from penstock.store import state as state_format


def verify_files(directory: str) -> Verified:
    """Reads all files of the query that the checkpoint belongs to."""
    place = directory.rstrip("/")
    query = query_id(place)
    if query is None:
        raise CheckpointError(f"{directory} has no streaming query yet; there are no files to verify")
    plan = read_plan(place)
    files, root = file_system(f"{segments_directory(place)}/{query}")
    blocks = parts = nbytes = 0
    damaged: list[Damage] = []
    found = files.get_file_info(pafs.FileSelector(root, allow_not_found=True, recursive=True))
    for info in sorted(found, key=lambda info: info.path):
        if info.type is not pafs.FileType.File:
            continue
        label, _, inner = info.path.removeprefix(f"{root}/").partition("/")
        if inner.endswith(SUFFIX):
            store = unquote(inner.partition("/")[0])
            for offset, size, reason in _blocks(files, info.path):
                blocks, nbytes = blocks + 1, nbytes + size
                if reason:
                    queries = _queries_of(plan, label, store)
                    damaged.append(Damage(store, offset, None, queries, f"{info.path} at {offset}: {reason}"))
        elif inner.endswith(STATE_SUFFIX):
            number, reason = _parts(files, info.path)
            parts, nbytes = parts + number, nbytes + info.size
            if reason:
                state = f"state of bucket {label}"
                damaged.append(Damage(state, number, None, _queries_of(plan, label, ""), f"{info.path}: {reason}"))
    return Verified(blocks, nbytes, tuple(damaged), parts)


def _parts(files: pafs.FileSystem, path: str) -> tuple[int, str]:
    """How many parts of a state are whole, and what is wrong with the next one."""
    number = 0
    try:
        with files.open_input_file(path) as file:
            for part in state_format.one_by_one(memoryview(file.read_buffer())):
                state_format.opened(part)
                number += 1
    except (StorageError, OSError) as error:
        return number, str(error)
    return number, "" if number else "it is empty"


def _blocks(files: pafs.FileSystem, path: str) -> Iterator[tuple[int, int, str]]:
    """The place and the size of each block, and what is wrong with it. Behind a block whose length is wrong nothing
    can be found."""
    offset = 0
    with files.open_input_file(path) as file:
        end = file.size()
        while offset < end:
            header = file.read_at(HEADER.size, offset)
            if len(header) < HEADER.size:
                yield offset, 0, "the file is truncated"
                return
            length, checksum = HEADER.unpack(header)
            if offset + HEADER.size + length > end or offset >> OFFSET_BITS:
                yield offset, 0, "the block is damaged, or the file is truncated"
                return
            payload = file.read_at(length, offset + HEADER.size)
            yield offset, length, "" if xxhash.xxh3_64_intdigest(payload) == checksum else "its checksum does not fit"
            offset += HEADER.size + length


def _queries_of(plan: Plan, label: str, store: str) -> tuple[str, ...]:
    """The queries of a bucket that may need a store: those that its name begins with, or all of its share."""
    share = label.rpartition(".")[0].rpartition("-")[0]
    together = tuple(name for name, query in plan.queries.items() if query["share"] == share)
    return tuple(name for name in together if store.startswith(f"{name}-")) or together
