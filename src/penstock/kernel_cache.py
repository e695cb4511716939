"""Where compiled kernels are kept between processes: only where this user alone can write.

Kernels are unpickled when they are loaded, so a file of another user in their place would be run as this one.

    directory/kernels-<installation>-<state>/<folder>_<hash>/<module>.<kernel>-<line>.py311.nbi, .nbc

Invariants:
1. Only files of this user are read, from a directory that no other user can write (`private_files`).
2. An installation is a package in its place, with its Python and its numba. An archive, such as Spark brings to its
   workers, is known by its name wherever it lies. A state is the content of all files with kernels: the package's own
   and those of the engine, whose kernels it may call. Numba looks at the file of a kernel, and not at those of the
   kernels that it calls: code that was compiled with an older helper is never run.
3. Only states of this installation are removed, and only those that no process has started with for a week.
4. Any number of processes read and write one kernel at once. A name of machine code is never used twice, so an index
   and what it names always fit.
5. A cache that cannot be used costs time and is told once; it is never an error.

With NUMBA_CACHE_DIR the user chooses the directory: 1 holds there, 2 and 3 do not.

Why: docs/decisions/kernel-cache-key.md
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import inspect
import os
import pickle
import secrets
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numba
import xxhash
from numba.core import caching, serialize

from penstock import private_files
from penstock.private_files import NotPrivateError

_UNUSED_SECONDS = 7 * 86400
_IMPORTS = (b"penstock.jit", b"penstock.instruments")
"""What a file with kernels names; `penstock.instruments` has `kernel` for other packages."""

_dumps: Callable[[object], bytes] = cast(Any, serialize).dumps
_folder_of: Callable[[str], str] = cast(Any, caching)._CacheLocator.get_suitable_cache_subpath


class KernelCache(caching.Cache):
    """The compiled forms of one kernel. The files are numba's: an index of the forms, and one file for each."""

    def __init__(self, function: Callable[..., object], place: Path | None) -> None:
        """`place` is None where nothing is kept."""
        self._py_func = function
        self._name = repr(function)
        self._impl = _Form(function)
        file = inspect.getfile(function)
        self._directory = None if place is None else place / _folder_of(_named(Path(file)))
        line, version = function.__code__.co_firstlineno, f"{sys.version_info[0]}{sys.version_info[1]}"
        name = f"{Path(file).stem}.{function.__qualname__}".replace("<", "").replace(">", "")
        self._base = f"{name}-{line}.py{version}{sys.abiflags}"
        self._enabled = True

    @property
    def cache_path(self) -> str | None:
        return None if self._directory is None else str(self._directory)

    def flush(self) -> None:
        """Forgets what there is, as numba's `recompile` asks."""
        if self._directory is not None:
            with contextlib.suppress(OSError, NotPrivateError), private_files.opened(self._directory) as directory:
                self._write_index(directory, {})

    def load_overload(self, signature: Any, target: Any) -> Any:
        """None where there is none that can be used."""
        if self._directory is None or not self._enabled:
            return None
        target.refresh()
        try:
            with private_files.opened(self._directory) as directory:
                name = self._read_index(directory).get(self._key(signature, target.codegen()))
                reduced = None if name is None else pickle.loads(private_files.read(directory, name))
        except NotPrivateError as error:
            return self._give_up(str(error))
        except Exception:  # not there, removed meanwhile, or cut short by a full disk: it is compiled
            return None
        return None if reduced is None else self._impl.rebuild(target, reduced)

    def save_overload(self, signature: Any, compiled: Any) -> None:
        if self._directory is None or not self._enabled or not self._impl.check_cachable(compiled):
            return
        data = _dumps(self._impl.reduce(compiled))
        try:
            private_files.make_private(self._directory)
            with private_files.opened(self._directory) as directory:
                fcntl.flock(directory, fcntl.LOCK_EX)
                index = self._known(directory)
                key = self._key(signature, compiled.codegen)
                old, index[key] = index.get(key), f"{self._base}.{secrets.token_hex(8)}.nbc"
                private_files.write(directory, index[key], data)
                self._write_index(directory, index)
                if old is not None:  # it could not be read, or another process was faster
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(old, dir_fd=directory)
        except NotPrivateError as error:
            self._give_up(str(error))
        except OSError as error:
            self._give_up(f"{self._directory} cannot be written ({error.strerror})")

    def _key(self, signature: Any, code: Any) -> Any:
        return cast(Any, self)._index_key(signature, code)

    def _known(self, directory: int) -> dict[Any, str]:
        """The index. Machine code that it does not name is of another state of the file, and is removed."""
        try:
            index = self._read_index(directory)
        except Exception:
            index = {}
        if not index:
            for name in os.listdir(directory):
                if name.startswith(f"{self._base}.") and name.endswith(".nbc"):
                    with contextlib.suppress(OSError):
                        os.unlink(name, dir_fd=directory)
        return index

    def _read_index(self, directory: int) -> dict[Any, str]:
        data = memoryview(private_files.read(directory, f"{self._base}.nbi"))
        version = pickle.dumps(numba.__version__, protocol=-1)
        if data[: len(version)] != version:
            return {}
        stamp, index = pickle.loads(data[len(version) :])
        return index if stamp == self._impl.stamp else {}

    def _write_index(self, directory: int, index: dict[Any, str]) -> None:
        version = pickle.dumps(numba.__version__, protocol=-1)
        private_files.write(directory, f"{self._base}.nbi", version + _dumps((self._impl.stamp, index)))

    def _give_up(self, why: str) -> None:
        self._directory = None
        tell(why)


class _Form(caching.CompileResultCacheImpl):
    """How machine code becomes bytes: numba's way, without its search for a directory."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._lineno = function.__code__.co_firstlineno
        self._py_file = inspect.getfile(function)
        self._locator = self  # where a warning of numba looks for the file

    @property
    def stamp(self) -> bytes:
        return _digest_of(self._py_file)


@functools.cache
def _digest_of(file: str) -> bytes:
    return hashlib.sha256(_file_of(Path(file)).read_bytes()).digest()


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
    if chosen := cast(Any, numba.config).CACHE_DIR:
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
    return xxhash.xxh3_64_hexdigest("\0".join([_named(package), sys.version, numba.__version__]).encode())


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
