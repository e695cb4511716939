"""Checkpoints of earlier releases go on here: what comes from there on is what an uninterrupted run gives."""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path

import pytest

from penstock.spark import processor
from penstock.spark.live import LiveObjects

from .programs import PROGRAMS, Program
from .runs import Results, differences, resumed, resumed_in_buckets, uninterrupted, uninterrupted_in_buckets
from .write import ARCHIVES

pytestmark = pytest.mark.filterwarnings("ignore:three")
BY_NAME = {program.name: program for program in PROGRAMS}


def cases(runtime: str) -> list[tuple[str, str]]:
    """The archives and the programs that they have."""
    found = []
    for archive in sorted(ARCHIVES.glob("*.tar.xz")):
        with tarfile.open(archive) as tar:
            parts = {tuple(name.split("/")[1:3]) for name in tar.getnames()}
        found += sorted((archive.name, parts_[1]) for parts_ in parts if len(parts_) == 2 and parts_[0] == runtime)
    return found


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("archives")
    for archive in ARCHIVES.glob("*.tar.xz"):
        with tarfile.open(archive) as tar:
            tar.extractall(root / archive.name, filter="data")
    return root


@cache
def whole(program: Program) -> Results:
    return uninterrupted(program)


@pytest.mark.parametrize(("archive", "name"), cases("embedded"))
def test_a_checkpoint_of_an_app_goes_on(unpacked: Path, archive: str, name: str) -> None:
    found = resumed(BY_NAME[name], unpacked / archive / "embedded" / name)
    assert differences(found, whole(BY_NAME[name])) == []


@pytest.mark.parametrize(("archive", "name"), cases("spark"))
def test_committed_values_of_spark_go_on(
    unpacked: Path, archive: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "_live", LiveObjects())
    expected = uninterrupted_in_buckets(BY_NAME[name], tmp_path / "whole")
    monkeypatch.setattr(processor, "_live", LiveObjects())
    assert differences(resumed_in_buckets(BY_NAME[name], unpacked / archive / "spark" / name), expected) == []


def test_every_program_is_in_the_last_archive() -> None:
    """The last one by name; a new program goes into the next archive."""
    last = cases("embedded")[-1][0]
    assert {name for archive, name in cases("embedded") if archive == last} == set(BY_NAME)
