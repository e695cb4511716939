"""The cache of compiled kernels: another user who can write where it might lie gets nothing run, and processes and
installations that share it leave each other alone."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import pickle
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import pytest

from penstock import kernel_cache, private_files
from penstock.kernel_cache import KernelCache, place_of

STRANGER = 12345
Foreign = Callable[[Path], None]


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> Foreign:
    """Gives a file or directory to another user; without the right to do so, this process becomes another user."""

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, STRANGER, STRANGER)
        else:
            monkeypatch.setattr(private_files.os, "geteuid", lambda: STRANGER)

    return give


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No directory is chosen, and nothing has been told yet."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kernel_cache.tell.cache_clear()


def module(directory: Path, text: str = "def twice(x):\n    return x * 2\n") -> ModuleType:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "numbers_of.py"
    if not file.exists() or file.read_text() != text:
        file.write_text(text)
    kernel_cache._digest_of.cache_clear()
    spec = importlib.util.spec_from_file_location("numbers_of", file)
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules["numbers_of"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def compiled(tmp_path: Path, place: Path | None, value: Any = 1) -> tuple[Any, int]:
    """What the kernel answers in a new process, so to speak, and how many forms of it came from the cache."""
    twice = module(tmp_path / "package").twice
    dispatcher = numba.njit(nogil=True)(twice)
    dispatcher._cache = KernelCache(twice, place)
    answer = dispatcher(value)
    return answer, sum(dispatcher.stats.cache_hits.values())


class Attack:
    """Unpickling makes a file."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._mark,)


def plant(directory: Path, mark: Path) -> list[Path]:
    """Replaces every index and all machine code; returns the files."""
    planted = [file for file in directory.rglob("*") if file.suffix in (".nbi", ".nbc")]
    for file in planted:
        file.unlink()
        # An index begins with the version, and is unpickled from there on.
        file.write_bytes(pickle.dumps(numba.__version__, protocol=-1) * (file.suffix == ".nbi"))
        with file.open("ab") as to:
            to.write(pickle.dumps(Attack(mark)))
    assert planted
    return planted


def test_kernels_are_kept_and_only_for_this_user(tmp_path: Path) -> None:
    place = tmp_path / "place"
    old = os.umask(0)
    try:
        assert compiled(tmp_path, place) == (2, 0)
    finally:
        os.umask(old)
    assert compiled(tmp_path, place) == (2, 1)
    assert {path.stat().st_mode & 0o777 for path in place.rglob("*") if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in place.rglob("*") if path.is_file()} == {0o600}


def test_an_attack_on_files_of_this_user_would_work(tmp_path: Path) -> None:
    """The tests below show something: what is planted is run where it is believed to be this user's own."""
    compiled(tmp_path, tmp_path / "place")
    plant(tmp_path / "place", tmp_path / "mark")
    compiled(tmp_path, tmp_path / "place")
    assert (tmp_path / "mark").exists()


def test_files_of_another_user_are_never_read(tmp_path: Path, foreign: Foreign) -> None:
    compiled(tmp_path, tmp_path / "place")
    for file in plant(tmp_path / "place", tmp_path / "mark"):
        foreign(file)
    assert compiled(tmp_path, tmp_path / "place") == (2, 0)
    assert not (tmp_path / "mark").exists()


def test_a_directory_of_another_user_is_never_read(
    tmp_path: Path, foreign: Foreign, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled(tmp_path, tmp_path / "place")
    plant(tmp_path / "place", tmp_path / "mark")
    (folder,) = (tmp_path / "place").iterdir()
    foreign(folder)
    assert [compiled(tmp_path, tmp_path / "place") for _ in range(2)] == [(2, 0), (2, 0)]
    assert not (tmp_path / "mark").exists()
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"compiled kernels are not kept: {folder} belongs to another user" in told


def test_a_link_in_the_way_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled(tmp_path, tmp_path / "place")
    plant(tmp_path / "place", tmp_path / "mark")
    (folder,) = (tmp_path / "place").iterdir()
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert compiled(tmp_path, tmp_path / "place") == (2, 0)
    assert not (tmp_path / "mark").exists()
    assert f"{folder} is a link" in capsys.readouterr().err


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_directory_that_others_could_write_is_replaced(tmp_path: Path, mode: int) -> None:
    compiled(tmp_path, tmp_path / "place")
    plant(tmp_path / "place", tmp_path / "mark")
    (folder,) = (tmp_path / "place").iterdir()
    folder.chmod(mode)
    private_files.make_private(folder)
    assert compiled(tmp_path, tmp_path / "place") == (2, 0)
    assert compiled(tmp_path, tmp_path / "place") == (2, 1)
    assert not (tmp_path / "mark").exists()
    assert (folder.stat().st_mode & 0o777, [*folder.parent.iterdir()]) == (0o700, [folder])


def test_a_broken_cache_costs_a_compilation_and_no_error(tmp_path: Path) -> None:
    compiled(tmp_path, tmp_path / "place")
    for suffix in ("nbi", "nbc"):
        for file in (tmp_path / "place").rglob(f"*.{suffix}"):
            file.write_bytes(file.read_bytes()[:20])
        assert compiled(tmp_path, tmp_path / "place") == (2, 0)
        assert compiled(tmp_path, tmp_path / "place") == (2, 1)
        assert len([*(tmp_path / "place").rglob("*.nbc")]) == 1


def package(tmp_path: Path, name: str = "package") -> Path:
    module(tmp_path / name, "import penstock.jit\n")
    return tmp_path / name


def test_kernels_lie_beside_the_code_or_in_the_users_cache(
    tmp_path: Path, foreign: Foreign, capsys: pytest.CaptureFixture[str]
) -> None:
    code = package(tmp_path)
    beside = place_of(code)
    assert beside is not None
    assert beside.parent == code / "__pycache__"
    assert (beside.stat().st_mode & 0o777) == 0o700
    if os.geteuid() == 0:
        shutil.rmtree(code / "__pycache__")
        (code / "__pycache__").mkdir()
        foreign(code / "__pycache__")
        cached = place_of(code)
        assert cached == tmp_path / "cache" / "penstock" / beside.name
        assert cached.stat().st_mode & 0o777 == cached.parent.stat().st_mode & 0o777 == 0o700
        assert capsys.readouterr().err == ""
    foreign(tmp_path / "cache" if os.geteuid() == 0 else code)
    shutil.rmtree(tmp_path / "cache" / "penstock", ignore_errors=True)
    assert place_of(code) is None
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "belongs to another user" in told


def test_a_chosen_directory_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "chosen"))
    assert place_of(package(tmp_path)) == tmp_path / "chosen"


def test_installations_that_share_a_cache_leave_each_other_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_cache, "_roots", lambda package: [tmp_path / "shared"])
    one, other = package(tmp_path, "one"), package(tmp_path, "other")
    first, second = place_of(one), place_of(other)
    assert first is not None
    assert second is not None
    assert first != second

    long_ago = time.time() - 30 * 86400
    states = [first]
    for text in ("import penstock.jit  # changed\n", "import penstock.jit  # and again\n"):
        module(one, text)
        states.append(place_of(one) or first)
    assert len(set(states)) == 3
    assert all(state.is_dir() for state in (*states, second))
    for state in (first, second):
        os.utime(state, (long_ago, long_ago))
    module(one, "import penstock.jit  # once more\n")
    assert place_of(one) is not None
    assert [state.is_dir() for state in (*states, second)] == [False, True, True, True]


def test_a_state_of_another_package_holds_its_own_kernels_and_the_engines(tmp_path: Path) -> None:
    engine, other = package(tmp_path, "engine"), package(tmp_path, "other")
    first = place_of(other, engine)
    module(engine, "import penstock.jit  # changed\n")
    second = place_of(other, engine)
    module(other, "from penstock.instruments import kernel\n")
    third = place_of(other, engine)
    assert len({first, second, third, place_of(engine)}) == 4
    assert all(place is not None and place.parent == other / "__pycache__" for place in (first, second, third))


def test_kernels_of_the_laboratory_lie_beside_its_code() -> None:
    from penstock.windows import steps
    from penstock_bench.benches import column_kernels

    kept = {
        Path(one.__file__ or "").parent.parent: Path(kernel._cache.cache_path).parent.parent.parent
        for one in (steps, column_kernels)
        for kernel in vars(one).values()
        if hasattr(kernel, "_cache")
    }
    assert len(kept) == 2
    assert all(package == place for package, place in kept.items())


def _compile(tmp_path: Path, value: Any, start: Any) -> None:
    start.wait()
    compiled(tmp_path, tmp_path / "place", value)


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    values = [1, 1.0, 1j]
    compiled(tmp_path, None)
    forked = multiprocessing.get_context("fork")
    start = forked.Barrier(2 * len(values))
    processes = [forked.Process(target=_compile, args=(tmp_path, value, start)) for value in values * 2]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(processes)
    assert [compiled(tmp_path, tmp_path / "place", value) for value in values] == [(value * 2, 1) for value in values]
