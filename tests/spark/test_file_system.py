"""Places by the names that Spark users write."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from pyspark.sql import SparkSession

from penstock.errors import StorageError
from penstock.spark.end_mark import make_end_directory
from penstock.spark.file_system import file_system, make_own_directory, qualified


@pytest.mark.parametrize("place", ["{}", "file:{}", "file://{}", "FILE:{}"])
def test_a_local_directory_by_all_its_names(tmp_path: Path, place: str) -> None:
    files, path = file_system(place.format(tmp_path / "a b"))
    assert isinstance(files, pafs.LocalFileSystem)
    assert path == str(tmp_path / "a b")


def test_hadoops_name_of_s3() -> None:
    files, path = file_system("s3a://bucket/checkpoints/one?region=eu-west-1")
    assert isinstance(files, pafs.S3FileSystem)
    assert path == "bucket/checkpoints/one"


def test_a_place_that_is_no_file_system_is_refused() -> None:
    with pytest.raises(StorageError, match="nowhere://x"):
        file_system("nowhere://x")


def test_relative_names_are_those_of_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark itself resolves them; the same afterwards in a process with another working directory."""
    whole = qualified(spark, "out/checkpoint")
    place = file_system(whole)[1]
    assert place.endswith("/out/checkpoint")
    monkeypatch.chdir(tmp_path)
    assert file_system(whole)[1] == place
    assert qualified(spark, "hdfs://host/x") == "hdfs://host/x"


def test_our_files_beside_a_checkpoint_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        _, path = make_own_directory(f"file:{tmp_path}/checkpoint/")
        make_end_directory(f"{tmp_path}/checkpoint")
    finally:
        os.umask(before)
    assert path == f"{tmp_path}/checkpoint/penstock"
    assert os.stat(path).st_mode & 0o777 == 0o700
    assert os.path.isdir(f"{path}/end")
