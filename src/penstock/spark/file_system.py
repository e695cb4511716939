"""The file system of a checkpoint, by the names that Spark users write: paths, `file:/x`, `s3a://`, `hdfs://`, ...

Spark resolves a name with Hadoop's file systems on the driver; segment files are written with `pyarrow.fs` in the
workers, whose working directory is another. `qualified` is called once, on the driver, so that both mean one place.
"""

from __future__ import annotations

import os
import re

import pyarrow as pa
import pyarrow.fs as pafs
from pyspark.sql import SparkSession

from penstock.errors import StorageError

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):/")
_HADOOP_NAMES = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfss"}
"""Hadoop's names of stores for which Arrow has another."""


def qualified(spark: SparkSession, place: str) -> str:
    """The place with its file system and from the root on, so that it means the same in every process."""
    if _SCHEME.match(place):
        return place
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:  # Spark Connect: the server's default file system cannot be asked
        return os.path.abspath(place)
    path = jvm.org.apache.hadoop.fs.Path(place)
    file_system = path.getFileSystem(spark._jsc.hadoopConfiguration())
    return str(file_system.makeQualified(path).toString())


def file_system(place: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a place, and the path there.

    >>> file_system("file:/var/tmp")[1], file_system("/var/tmp")[1]
    ('/var/tmp', '/var/tmp')
    """
    found = _SCHEME.match(place)
    scheme = found.group(1).lower() if found else "file"
    if scheme == "file":
        return pafs.LocalFileSystem(), os.path.abspath(re.sub(r"^file:/+", "/", place, flags=re.IGNORECASE))
    rest = place.split(":", 1)[1]
    try:
        files, path = pafs.FileSystem.from_uri(f"{_HADOOP_NAMES.get(scheme, scheme)}:{rest}")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise StorageError(f"segments cannot be kept at {place!r}: {error}") from error
    return files, path


def make_durable(files: pafs.FileSystem, path: str, directories: int) -> None:
    """Flushes a local file to the disk, and its name: that is in its directory, whose name is in the one above. Other
    file systems make a file durable when it is closed."""
    if not isinstance(files, pafs.LocalFileSystem):
        return
    for _ in range(1 + directories):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        path = os.path.dirname(path)


def make_own_directory(checkpoint: str) -> tuple[pafs.FileSystem, str]:
    """The directory of our files beside a Spark checkpoint. On a local file system it is for its owner alone; others
    have rights of their own."""
    files, path = file_system(f"{checkpoint.rstrip('/')}/penstock")
    files.create_dir(path, recursive=True)
    if isinstance(files, pafs.LocalFileSystem) and os.stat(path).st_uid == os.geteuid():
        os.chmod(path, 0o700)
    return files, path
