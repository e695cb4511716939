"""Where compiled kernels are kept between processes: only where this user alone can write.

Kernels are run when they are loaded, so a file of another user in their place would be run as this one.

    directory/kernels-<installation>-<state>/<folder>_<hash>/<module>.<kernel>-<line>.<types>.code

Invariants:
1. Only files of this user are read, from a directory that no other user can write (`private_files`).
2. An installation is a package in its place, with its Python and its numba. An archive, such as Spark brings to its
   workers, is known by its name wherever it lies. A state is the content of all files with kernels: the package's own
   and those of the engine, whose kernels it may call. So code that was compiled with an older helper is never run.
3. Only states of this installation are removed, and only those that no process has started with for a week.
4. Any number of processes read and write one kernel at once: a file is replaced at once, and is read as a whole.
5. A file is taken only if it is complete, and was made from the same source, by the same numba with the same settings,
   for the same processor.
6. A cache that cannot be used costs time and is told once; it is never an error.

With NUMBA_CACHE_DIR the user chooses the directory: 1 holds there; of 2 only the kernel's own file counts, and 3 does
not hold.

Why: docs/decisions/kernel-cache-key.md
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import xxhash

from penstock import machine_code, private_files
from penstock.machine_code import MachineCode
from penstock.private_files import NotPrivateError

_CHOICE = "NUMBA_CACHE_DIR"
_CHECKED = "PENSTOCK_CHECKED_LANE"
_UNUSED_SECONDS = 7 * 86400
_IMPORTS = (b"penstock.jit", b"penstock.instruments")
"""What a file with kernels names; `penstock.instruments` has `kernel` for other packages."""


class KernelCache:
    """The compiled forms of one kernel, a file for each."""

    def __init__(self, function: Callable[..., object], place: Path | None) -> None:
        """`place` is None where nothing is kept."""
        self._file = function.__code__.co_filename
        path = Path(self._file)
        self._directory = None if place is None else place / _folder_of(path)
        name = f"{path.stem}.{function.__qualname__}".replace("<", "").replace(">", "")
        self._base = f"{name}-{function.__code__.co_firstlineno}"

    @property
    def directory(self) -> Path | None:
        return self._directory

    def load(self, types: str) -> MachineCode | None:
        """None where there is none that can be used."""
        if self._directory is None:
            return None
        try:
            with private_files.opened(self._directory) as directory:
                head, _, code = private_files.read(directory, self._name(types)).partition(b"\n")
            told = json.loads(head)
            if told.pop("stamp") != self._stamp(types, code):
                return None
            return MachineCode(code, told["entry"], tuple(told["known"]), tuple(told["needed"]))
        except NotPrivateError as error:
            self._give_up(str(error))
        except (OSError, ValueError, KeyError, TypeError):  # not there, or cut short by a full disk: it is compiled
            pass
        return None

    def save(self, types: str, machine: MachineCode) -> None:
        if self._directory is None:
            return
        told = {"entry": machine.entry, "known": machine.known, "needed": machine.needed}
        head = json.dumps({"stamp": self._stamp(types, machine.code), **told})
        try:
            private_files.make_private(self._directory)
            with private_files.opened(self._directory) as directory:
                private_files.write(directory, self._name(types), head.encode() + b"\n" + machine.code)
        except NotPrivateError as error:
            self._give_up(str(error))
        except OSError as error:
            self._give_up(f"{self._directory} cannot be written ({error.strerror})")

    def _name(self, types: str) -> str:
        return f"{self._base}.{xxhash.xxh3_64_hexdigest((types + _settings()).encode())}.code"

    def _stamp(self, types: str, code: bytes) -> str:
        whole = xxhash.xxh3_128(code)
        whole.update("\0".join((types, _settings(), _digest_of(self._file))).encode())
        return whole.hexdigest()

    def _give_up(self, why: str) -> None:
        self._directory = None
        tell(why)


@functools.cache
def _settings() -> str:
    """What machine code depends on, besides its source."""
    chosen = sorted((key, value) for key, value in os.environ.items() if key.startswith("NUMBA_") or key == _CHECKED)
    chosen = [(key, value) for key, value in chosen if key != _CHOICE]
    writer = _digest_of(str(Path(__file__).with_name("compiling.py")))
    return json.dumps([sys.version, _numba(), machine_code.host(), writer, chosen])


@functools.cache
def _numba() -> str:
    return version("numba")


@functools.cache
def _digest_of(file: str) -> str:
    return xxhash.xxh3_128_hexdigest(_file_of(Path(file)).read_bytes())


def _folder_of(path: Path) -> str:
    directory = Path(_named(path)).parent
    return f"{directory.name}_{xxhash.xxh3_64_hexdigest(str(directory).encode())}"


def _file_of(path: Path) -> Path:
    """The file, or the archive that it is in."""
    return next(there for there in (path, *path.parents) if there.exists())


def _named(path: Path) -> str:
    """The path; inside an archive, as if the archive lay at the root."""
    there = _file_of(path)
    return str(path) if there == path else str("/" / path.relative_to(there.parent))


@functools.cache
def tell(why: str) -> None:
    """Once for each reason."""
    hint = "each process compiles its own; name a directory of your own with NUMBA_CACHE_DIR"
    print(f"penstock: compiled kernels are not kept: {why}; {hint}", file=sys.stderr)


def place_of(package: Path, engine: Path | None = None) -> Path | None:
    """Where the kernels of a package are kept, or None, which has been told then. `engine` is the package whose kernels
    those of the package may call, if that is another one."""
    if chosen := os.environ.get(_CHOICE):
        return Path(chosen).absolute()
    installation = f"kernels-{_installation(package)}-"
    name = installation + "-".join(_state(one) for one in (package, engine) if one is not None)
    why = ""
    for root in _roots(package):
        try:
            private_files.make_private(root / name)
        except NotPrivateError as error:
            why = str(error)
        except OSError as error:
            why = f"{root} cannot be written ({error.strerror})"
        else:
            os.utime(root / name)
            _remove_old(root, installation, name)
            return root / name
    tell(why)
    return None


def _roots(package: Path) -> list[Path]:
    """Beside the code where that can be, so that kernels go with it, and the user's cache otherwise."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(home) if os.path.isabs(home) else Path(os.path.expanduser("~")) / ".cache"
    beside = [package / "__pycache__"] if package.is_dir() else []
    return [*beside, cache / "penstock"]


def _installation(package: Path) -> str:
    return xxhash.xxh3_64_hexdigest("\0".join([_named(package), sys.version, _numba()]).encode())


def _state(package: Path) -> str:
    if not package.is_dir():
        return xxhash.xxh3_64_hexdigest(_file_of(package).read_bytes())
    digest = xxhash.xxh3_64()
    for source in sorted(package.rglob("*.py")):
        text = source.read_bytes()
        if any(named in text for named in _IMPORTS):
            digest.update(text)
    return digest.hexdigest()


def _remove_old(root: Path, installation: str, current: str) -> None:
    """Other states of this installation that no process has started with for long."""
    until = time.time() - _UNUSED_SECONDS
    for other in root.glob(f"{installation}*"):
        with contextlib.suppress(OSError):
            found = other.lstat()
            if other.name != current and found.st_uid == os.geteuid() and found.st_mtime < until:
                shutil.rmtree(other, ignore_errors=True)
