"""The end of the streams, as an input like any other: a file in a directory that the program reads as one more stream.

Spark itself knows no end of a stream: a run with the `availableNow` trigger may be followed by another with more
events, so it must leave windows open that may still take some. The file is committed with the checkpoint, its results
go to the same sinks exactly once, and a run that was killed at any moment just goes on.

Why: docs/decisions/spark-own-time.md
"""

from __future__ import annotations

import uuid

import pyarrow.fs as pafs

from penstock.spark.file_system import file_system, make_own_directory


def make_end_directory(checkpoint: str) -> str:
    """The directory of the end mark, which Spark wants to be there before it reads from it."""
    directory = f"{checkpoint.rstrip('/')}/penstock/end"
    files, path = make_own_directory(checkpoint)
    files.create_dir(f"{path}/end", recursive=True)
    return directory


def mark_end(checkpoint: str) -> None:
    """Says, once and for all, that the streams of the program with this checkpoint have ended."""
    files, path = file_system(make_end_directory(checkpoint))
    if files.get_file_info(f"{path}/end.json").type is pafs.FileType.File:
        return
    # Spark takes no notice of names that begin with a dot, and must never see half a file.
    draft = f"{path}/.{uuid.uuid4().hex}"
    with files.open_output_stream(draft) as stream:
        stream.write(b'{"ended": true}\n')
    files.move(draft, f"{path}/end.json")
