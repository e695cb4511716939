"""What Spark's own files in a checkpoint directory say: which query it belongs to and how far that has come."""

from __future__ import annotations

import json

import pyarrow.fs as pafs

from penstock.errors import CheckpointError
from penstock.spark.file_system import file_system


def query_id(checkpoint: str) -> str | None:
    """The id of the streaming query, which it keeps through all its runs; None if it was never started."""
    files, path = file_system(f"{checkpoint}/metadata")
    try:
        with files.open_input_stream(path) as stream:
            return str(json.loads(stream.read())["id"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{path} is damaged; restore it, or use a new checkpoint directory") from None


def last_begun(checkpoint: str) -> int | None:
    """The number of the last micro-batch that was begun."""
    return max(_numbers(f"{checkpoint}/offsets"), default=None)


def last_committed(checkpoint: str) -> int | None:
    """The number of the last micro-batch that was committed; its state is the one that the next run takes up."""
    return max(_numbers(f"{checkpoint}/commits"), default=None)


def _numbers(directory: str) -> list[int]:
    files, path = file_system(directory)
    found: list[pafs.FileInfo] = files.get_file_info(pafs.FileSelector(path, allow_not_found=True))
    return [int(info.base_name) for info in found if info.base_name.isdigit()]
