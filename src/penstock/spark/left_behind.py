"""Segments that will never be read again, because their buckets are gone.

    <checkpoint>/penstock/segments/<query id>/<share>-<generation>.<bucket>/<store>/<batch>-<unique>.segment

A bucket deletes its own segments when their time has come. One whose share is gone is never called again, so its
segments are deleted here, on the driver, when an application starts:

1. Of a share that the plan no longer names, when Spark can no longer roll back to a micro-batch that had it. The share
   does not come back under this name, see `plan_file`.
2. Of another streaming query than that of the checkpoint: Spark's own files were deleted and the query began anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import pyarrow.fs as pafs

from penstock.spark.checkpoint_files import last_begun, query_id
from penstock.spark.file_system import file_system


def segments_directory(checkpoint: str) -> str:
    return f"{checkpoint}/penstock/segments"


def sweep(checkpoint: str, gone: Mapping[str, int], retain: int) -> dict[str, int]:
    """Deletes what can go. `gone` says for names of shares with their generations since which micro-batch they are
    gone; returns those that must still wait."""
    current = query_id(checkpoint)
    batch = last_begun(checkpoint)
    over = {name for name, since in gone.items() if batch is not None and since + retain + 1 < batch}
    files, root = file_system(segments_directory(checkpoint))
    deleted = set(over)
    for query in _directories(files, root):
        if query.base_name != current:
            _delete(files, query.path)
            continue
        for bucket in _directories(files, query.path):
            share = bucket.base_name.rpartition(".")[0]
            if share in over and not _delete(files, bucket.path):
                deleted.discard(share)
    return {name: since for name, since in gone.items() if name not in deleted}


def _directories(files: pafs.FileSystem, path: str) -> Iterator[pafs.FileInfo]:
    found = files.get_file_info(pafs.FileSelector(path, allow_not_found=True))
    return (info for info in found if info.type is pafs.FileType.Directory)


def _delete(files: pafs.FileSystem, path: str) -> bool:
    """What cannot be deleted now is tried again at the next start."""
    with contextlib.suppress(OSError):
        files.delete_dir(path)
        return True
    return False
