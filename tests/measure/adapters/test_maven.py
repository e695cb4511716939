"""Jars come by either client, once; whatever goes wrong is said in words."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from penstock.errors import InputError, PenstockError
from penstock_bench.measure.adapters import maven

# Small, and it needs a second one.
_SMALL = "org.slf4j:slf4j-simple:1.7.36"
_NAMES = ["slf4j-api-1.7.36.jar", "slf4j-simple-1.7.36.jar"]


@pytest.mark.skipif(shutil.which("mvn") is None, reason="the test below fetches the same without mvn")
@pytest.mark.slow
def test_maven_brings_what_is_needed_too(tmp_path: Path) -> None:
    assert [jar.name for jar in maven.jars([_SMALL], tmp_path)] == _NAMES
    assert [entry.name for entry in tmp_path.iterdir()] == [maven.jars([_SMALL], tmp_path)[0].parent.name]


@pytest.mark.slow
def test_without_mvn_ivy_brings_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = maven.java_home()
    monkeypatch.setenv("JAVA_HOME", str(java))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [jar.name for jar in maven.jars([_SMALL], tmp_path / "jars")] == _NAMES


def test_what_is_there_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_JARS", str(tmp_path))
    place = tmp_path / maven._name(["a:b:1"])
    place.mkdir()
    (place / "b-1.jar").touch()
    (place / "c-2.jar").touch()
    assert maven.class_path(["a:b:1"]) == os.pathsep.join([str(place / "b-1.jar"), str(place / "c-2.jar")])


def test_what_does_not_exist_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="slf4j-simple:0 could not be fetched"):
        maven.jars(["org.slf4j:slf4j-simple:0"], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_any_client_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(maven, "_carried_ivy", lambda: None)
    with pytest.raises(InputError, match="apt-get install maven"):
        maven.jars([_SMALL], tmp_path / "jars")


def test_a_coordinate_has_three_parts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="group:artifact:version"):
        maven.jars(["slf4j-simple"], tmp_path)
