"""Makes the environment in which PyFlink runs: `python -m penstock_bench.measure.adapters.flink_environment`.

PyFlink asks for versions of Arrow, numpy and others that are not ours, so it has a Python of its own: a virtual
environment in the user's cache (`PENSTOCK_FLINK` names another place). It is made beside and moved when it is whole.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from penstock.errors import InputError, PenstockError

VERSION = "2.3.0"
MAKE = "python -m penstock_bench.measure.adapters.flink_environment"
_TIMEOUT_SECONDS = 1800
_TAIL_LINES = 8


def place() -> Path:
    given = os.environ.get("PENSTOCK_FLINK")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "penstock" / f"flink-{VERSION}"


def python_of(environment: Path) -> Path:
    return environment / "bin" / "python"


def found(python: str | None = None) -> Path:
    """The Python that has PyFlink: the one that is named, or that of the environment in the cache."""
    chosen = Path(python) if python else python_of(place())
    if not chosen.is_file():
        told = f"system.options.python = '{python}': no such file; or" if python else "adapter 'flink' needs PyFlink:"
        raise InputError(f"{told} `{MAKE}` makes an environment for it (once; 700 MB)")
    asked = [str(chosen), "-c", "import importlib.util as u; raise SystemExit(u.find_spec('pyflink') is None)"]
    if subprocess.run(asked, capture_output=True, timeout=60, check=False).returncode != 0:
        raise InputError(f"{chosen} has no PyFlink: `{MAKE}` makes an environment that has (once; 700 MB)")
    return chosen


def make() -> Path:
    """The environment, made if it is not there yet; takes minutes and a network."""
    wanted = place()
    if python_of(wanted).is_file():
        return wanted
    wanted.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=wanted.parent, prefix=".flink-"))
    try:
        _run([sys.executable, "-m", "venv", "--copies", str(draft)])
        _run([str(python_of(draft)), "-m", "pip", "install", "--quiet", f"apache-flink=={VERSION}"])
        try:
            draft.rename(wanted)
        except OSError:
            if not wanted.is_dir():  # else another process has just made the same
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return wanted


def _run(command: list[str]) -> None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise PenstockError(f"PyFlink could not be installed within {_TIMEOUT_SECONDS} s") from None
    if ran.returncode != 0:
        said = "\n".join((ran.stdout + ran.stderr).strip().splitlines()[-_TAIL_LINES:])
        raise PenstockError(f"PyFlink {VERSION} could not be installed for Python {sys.version.split()[0]}:\n{said}")


if __name__ == "__main__":
    try:
        print(make())
    except PenstockError as error:
        raise SystemExit(f"error: {error}") from None
