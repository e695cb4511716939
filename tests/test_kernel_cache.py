"""The cache of compiled kernels: another user who can write where it might lie gets nothing run, and processes and
installations that share it leave each other alone."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from penstock import jit, kernel_cache, private_files
from penstock.jit import Kernel
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
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
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


def compiled(tmp_path: Path, place: Path | None, value: Any = 1) -> tuple[Any, bool]:
    """What the kernel answers in a new process, so to speak, and whether its machine code came from the cache."""
    twice = Kernel(module(tmp_path / "package").twice, {})
    twice._cache = KernelCache(twice.py_func, place)
    found = twice._cache.load(jit._type_of(value)) is not None
    return twice(value), found


def plant(tmp_path: Path) -> list[Path]:
    """Replaces all machine code in `place` by code that answers with three times the value; returns the files."""
    from penstock.compiling import compiled

    package = module(tmp_path / "package")
    thrice = module(tmp_path / "other", "def thrice(x):\n    return x * 3\n").thrice
    KernelCache(package.twice, tmp_path / "forge").save("int64", compiled(Kernel(thrice, {}).dispatcher, [1]))
    (forged,) = (tmp_path / "forge").rglob("*.code")
    planted = [*(tmp_path / "place").rglob("*.code")]
    for file in planted:
        file.unlink()
        file.write_bytes(forged.read_bytes())
    assert planted
    return planted


def test_kernels_are_kept_and_only_for_this_user(tmp_path: Path) -> None:
    place = tmp_path / "place"
    old = os.umask(0)
    try:
        assert compiled(tmp_path, place) == (2, False)
    finally:
        os.umask(old)
    assert compiled(tmp_path, place) == (2, True)
    assert {path.stat().st_mode & 0o777 for path in place.rglob("*") if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in place.rglob("*") if path.is_file()} == {0o600}


def test_an_attack_on_files_of_this_user_would_work(tmp_path: Path) -> None:
    """The tests below show something: what is planted is run where it is believed to be this user's own."""
    compiled(tmp_path, tmp_path / "place")
    plant(tmp_path)
    assert compiled(tmp_path, tmp_path / "place") == (3, True)


def test_files_of_another_user_are_never_read(tmp_path: Path, foreign: Foreign) -> None:
    compiled(tmp_path, tmp_path / "place")
    for file in plant(tmp_path):
        foreign(file)
    assert compiled(tmp_path, tmp_path / "place") == (2, False)


def test_a_directory_of_another_user_is_never_read(
    tmp_path: Path, foreign: Foreign, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled(tmp_path, tmp_path / "place")
    plant(tmp_path)
    (folder,) = (tmp_path / "place").iterdir()
    foreign(folder)
    assert [compiled(tmp_path, tmp_path / "place") for _ in range(2)] == [(2, False), (2, False)]
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"compiled kernels are not kept: {folder} belongs to another user" in told


def test_a_link_in_the_way_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled(tmp_path, tmp_path / "place")
    plant(tmp_path)
    (folder,) = (tmp_path / "place").iterdir()
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert compiled(tmp_path, tmp_path / "place") == (2, False)
    assert f"{folder} is a link" in capsys.readouterr().err


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_directory_that_others_could_write_is_replaced(tmp_path: Path, mode: int) -> None:
    compiled(tmp_path, tmp_path / "place")
    plant(tmp_path)
    (folder,) = (tmp_path / "place").iterdir()
    folder.chmod(mode)
    private_files.make_private(folder)
    assert compiled(tmp_path, tmp_path / "place") == (2, False)
    assert compiled(tmp_path, tmp_path / "place") == (2, True)
    assert (folder.stat().st_mode & 0o777, [*folder.parent.iterdir()]) == (0o700, [folder])


def test_a_broken_cache_costs_a_compilation_and_no_error(tmp_path: Path) -> None:
    compiled(tmp_path, tmp_path / "place")
    for length in (0, 20, -1):
        (file,) = (tmp_path / "place").rglob("*.code")
        file.write_bytes(file.read_bytes()[:length])
        assert compiled(tmp_path, tmp_path / "place") == (2, False)
        assert compiled(tmp_path, tmp_path / "place") == (2, True)


@pytest.mark.parametrize("setting", ["NUMBA_OPT", "PENSTOCK_CHECKED_LANE"])
def test_code_of_another_source_or_setting_is_not_run(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    compiled(tmp_path, place)
    changed = module(tmp_path / "package", "def twice(x):\n    return x + x\n").twice
    assert KernelCache(changed, place).load("int64") is None
    assert compiled(tmp_path, place) == (2, True)
    monkeypatch.setenv(setting, "1" if setting not in os.environ else "2")
    kernel_cache._settings.cache_clear()
    assert compiled(tmp_path, place) == (2, False)
    kernel_cache._settings.cache_clear()


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
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
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
    import penstock_bench

    for package in (jit, penstock_bench):
        place = jit._place_for.__wrapped__(package.__name__.partition(".")[0])
        assert place is not None
        assert place.parent.parent == Path(package.__file__ or "").parent


def _compile(tmp_path: Path, value: Any, start: Any) -> None:
    start.wait()
    compiled(tmp_path, tmp_path / "place", value)


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    values = [1, 1.0, np.uint8(1)]
    compiled(tmp_path, None)
    forked = multiprocessing.get_context("fork")
    start = forked.Barrier(2 * len(values))
    processes = [forked.Process(target=_compile, args=(tmp_path, value, start)) for value in values * 2]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(processes)
    assert [compiled(tmp_path, tmp_path / "place", value) for value in values] == [
        (value * 2, True) for value in values
    ]
