"""Directories of temporary blocks are gone with their process, however it ends, and not before."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import penstock as ps
from penstock.store import scratch
from penstock.store.scratch import Scratch

STREAM = "CREATE STREAM s (t BIGINT, x DOUBLE, EVENT TIME t UNIT SECONDS); SELECT SUM(x) AS n FROM s [ROWS 100000];"
EVENTS = [{"t": i, "x": float(i)} for i in range(20_000)]


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def files_of(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


def open_files() -> list[str]:
    """Those of this process, also ones that were removed, whose space is not given back before they are closed."""
    found = Path("/proc/self/fd").iterdir()
    return [os.readlink(file) for file in found if file.is_symlink()]


def next_start() -> Scratch:
    """As in another process: what was left behind is looked for again."""
    scratch.remove_left_behind.cache_clear()
    return Scratch()


def test_an_app_that_is_collected_gives_back_its_files(temporary: Path) -> None:
    app = ps.App(STREAM, memory="512KB", block_size=4096)
    app.push("s", EVENTS)
    assert [name for name in files_of(temporary) if name.endswith(".blocks")]
    assert [file for file in open_files() if str(temporary) in file]
    del app
    gc.collect()
    assert files_of(temporary) == []
    assert not [file for file in open_files() if str(temporary) in file]


def test_a_program_that_closes_nothing_leaves_nothing(temporary: Path) -> None:
    program = f"import penstock as ps\napp = ps.App({STREAM!r}, memory='512KB', block_size=4096)\n"
    program += "app.push('s', [{'t': i, 'x': 1.0} for i in range(20000)])\nimport os, tempfile\n"
    program += "print(len(os.listdir(tempfile.gettempdir())))"
    ran = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "TMPDIR": str(temporary)}, capture_output=True, text=True
    )
    assert (ran.stdout, ran.returncode) == ("1\n", 0)
    assert files_of(temporary) == []


def in_another_process() -> int:
    """A process that makes a directory and waits."""
    made, tell = os.pipe()
    process = os.fork()
    if process == 0:
        kept = next_start()
        (kept.path / "a.blocks").write_bytes(b"x" * 1000)
        os.write(tell, b"x")
        signal.pause()
    os.read(made, 1)
    os.close(made)
    os.close(tell)
    return process


def test_what_a_killed_process_left_goes_at_the_next_start_and_what_lives_stays(temporary: Path) -> None:
    living, killed = in_another_process(), in_another_process()
    try:
        assert len(files_of(temporary)) == 6
        os.kill(killed, signal.SIGKILL)
        os.waitpid(killed, 0)
        assert len(files_of(temporary)) == 6
        mine = next_start()
        assert len(files_of(temporary)) == 3 + 2
        assert mine.path.exists()
    finally:
        os.kill(living, signal.SIGKILL)
        os.waitpid(living, 0)
    mine.close()
    assert len(files_of(temporary)) == 3
    next_start().close()
    assert files_of(temporary) == []


def test_a_forked_process_removes_nothing_of_its_parents(temporary: Path) -> None:
    kept = Scratch()
    process = os.fork()
    if process == 0:
        kept.close()
        next_start()
        os._exit(0)
    os.waitpid(process, 0)
    assert kept.path.exists()
    next_start().close()
    assert kept.path.exists()
    kept.close()
    assert not kept.path.exists()


def test_nothing_of_others_is_touched(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ".owner").write_text("")
    (temporary / "penstock-blocks-link").symlink_to(tmp_path / "elsewhere")
    for name in ("another-program", "penstock-blocks-unclaimed", "penstock-blocks-full", "penstock-blocks-linked"):
        (temporary / name).mkdir()
    (temporary / "another-program" / ".owner").write_text("")
    (temporary / "penstock-blocks-full" / "something").write_text("")
    (temporary / "penstock-blocks-linked" / ".owner").symlink_to(tmp_path / "elsewhere" / ".owner")
    os.utime(temporary / "penstock-blocks-full", (0, 0))
    if os.geteuid() == 0:
        (temporary / "penstock-blocks-foreign").mkdir()
        (temporary / "penstock-blocks-foreign" / ".owner").write_text("")
        os.chown(temporary / "penstock-blocks-foreign", 12345, 12345)
    before = files_of(temporary)
    next_start().close()
    assert files_of(temporary) == before
    assert (tmp_path / "elsewhere" / ".owner").exists()
    long_ago = time.time() - 2 * 86400
    os.utime(temporary / "penstock-blocks-unclaimed", (long_ago, long_ago))
    next_start().close()
    assert files_of(temporary) == [name for name in before if "unclaimed" not in name]
