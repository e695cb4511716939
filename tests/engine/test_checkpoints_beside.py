"""Checkpoints that are written while events go on: by a thread that the tests hold up and let go.

A copy of the directory at any moment is what a kill at that moment would leave.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from engine.test_checkpoint_differences import GROUPS, QUERIES, STREAM, batch, events, pushed

_WRITER = "penstock-checkpoint"


class Disk:
    """Holds up, or refuses, every fsync of the thread that writes checkpoints."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_free = threading.Event()
        self.is_free.set()
        self.reached = threading.Event()
        """Whether something has waited since `hold`."""
        self.error: OSError | None = None
        self._passing = 0
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._slow)

    def _slow(self, descriptor: int) -> None:
        if threading.current_thread().name == _WRITER:
            self._passing -= 1
            if self._passing < 0:
                self.reached.set()
                assert self.is_free.wait(30)
            if self.error is not None:
                raise self.error
        self._fsync(descriptor)

    def hold(self, passing: int = 0) -> None:
        """From now on, but for so many of the first."""
        self._passing = passing
        self.reached.clear()
        self.is_free.clear()

    def free_soon(self) -> None:
        threading.Timer(0.1, self.is_free.set).start()

    @contextmanager
    def full(self) -> Iterator[None]:
        """Nothing can be written within this."""
        self.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            yield
        finally:
            self.error = None


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(monkeypatch)
    yield disk
    disk.is_free.set()


def begun(app: ps.App, extra: dict[str, Any] | None = None) -> ps.Checkpoint:
    return app.checkpoint(extra, wait=False)


def over() -> None:
    """Returns when no checkpoint is being written."""
    for thread in threading.enumerate():
        if thread.name == _WRITER:
            thread.join(30)


def killed(directory: Path, number: int = 0) -> Path:
    """What a kill would leave."""
    return Path(shutil.copytree(directory, directory.with_name(f"{directory.name}-killed-{number}")))


def whole(text: str, rows: list[dict[str, Any]]) -> dict[str, str]:
    """The results of a run without checkpoints."""
    with ps.App(text) as app:
        app.push("s", rows)
        app.finish()
        return {name: str(app.results(name).to_pylist()) for name in app.queries}


def resumed(text: str, directory: Path, rows: list[dict[str, Any]], **options: Any) -> dict[str, str]:
    """The results of a run that goes on from a checkpoint, whose results have not been read before."""
    with ps.App(text, checkpoint=directory, **options) as app:
        assert app.restored is not None
        app.push("s", rows[app.restored["offset"] :])
        app.finish()
        return {name: str(app.results(name).to_pylist()) for name in app.queries}


ONE = STREAM + f"CREATE QUERY q AS {QUERIES[0]};"


@settings(max_examples=15)
@given(
    queries=st.lists(st.sampled_from(QUERIES), min_size=1, max_size=3, unique=True),
    seed=st.integers(0, 10**6),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["batch", "list", "one"]),
            st.integers(1, 60),
            st.sampled_from(["", "checkpoint", "checkpoint", "free", "kill"]),
        ),
        min_size=3,
        max_size=14,
    ),
    options=st.sampled_from([{}, {"memory": "1MB", "block_size": 512}, {"block_size": 4096, "linger": 10.0}]),
    passing=st.integers(0, 12),
)
def test_killed_at_any_moment(
    tmp_path_factory: pytest.TempPathFactory,
    queries: list[str],
    seed: int,
    steps: list[tuple[str, int, str]],
    options: dict[str, Any],
    passing: int,
) -> None:
    directory = tmp_path_factory.mktemp("beside") / "app"
    text = STREAM + "".join(f"CREATE QUERY q{at} AS {query};" for at, query in enumerate(queries))
    rows = events(sum(4 * count for _, count, _ in steps), seed, 50)
    expected, offset, kills, stands = whole(text, rows), 0, 0, False
    with pytest.MonkeyPatch.context() as patch, ps.App(text, checkpoint=directory, **options) as app:
        disk = Disk(patch)
        try:
            for how, count, then in steps:
                pushed(app, rows[offset : offset + 4 * count], how)
                offset += 4 * count
                if then == "checkpoint":
                    disk.is_free.set()  # so that the one before is written
                    over()
                    stands = stands or app.last_checkpoint is not None
                    disk.hold(passing)
                    begun(app, {"offset": offset})
                elif then == "free":
                    disk.is_free.set()
                    over()
                elif then == "kill":
                    if not disk.is_free.is_set():
                        disk.reached.wait(0.05)
                    stands = stands or app.last_checkpoint is not None
                    if stands:
                        kills += 1
                        assert resumed(text, killed(directory, kills), rows, **options) == expected
        finally:
            disk.is_free.set()
        app.finish()
        assert {name: str(app.results(name).to_pylist()) for name in app.queries} == expected


def test_events_go_on_while_a_checkpoint_is_written(tmp_path: Path, disk: Disk) -> None:
    rows = events(400, 1, 20)
    with ps.App(ONE, checkpoint=tmp_path / "a") as app:
        app.push("s", rows[:100])
        assert app.checkpoint({"offset": 100}).epoch == 1
        app.push("s", rows[100:200])
        disk.hold()
        assert begun(app, {"offset": 200}) == (2, {"s": 200})
        app.push("s", rows[200:300])
        assert disk.reached.wait(30)
        assert app.last_checkpoint == (1, {"s": 100})
        before = killed(tmp_path / "a", 1)
        disk.is_free.set()
        over()
        assert app.last_checkpoint == (2, {"s": 200})
        after = killed(tmp_path / "a", 2)
        app.push("s", rows[300:])
    assert resumed(ONE, before, rows) == resumed(ONE, after, rows) == whole(ONE, rows)
    with ps.App(ONE, checkpoint=before) as app:
        assert app.restored == {"offset": 100}
    with ps.App(ONE, checkpoint=after) as app:
        assert app.restored == {"offset": 200}


def test_large_state_is_saved_as_it_was(tmp_path: Path, disk: Disk) -> None:
    """Of groups that change while they are written, by differences and as a whole."""
    with ps.App(GROUPS, checkpoint=tmp_path / "a") as app:
        batch(app, 0, range(50_000))
        for at in range(1, 7):
            disk.hold()
            begun(app)
            batch(app, at, range(50_000) if at % 3 == 0 else range(at, 50_000, 100))
            disk.is_free.set()
            over()
        saved = killed(tmp_path / "a")
        taken = app.last_checkpoint
    assert taken is not None
    assert taken.epoch == 6
    with ps.App(GROUPS, checkpoint=saved) as app:
        assert app.metrics.events == taken.positions["s"]
        batch(app, 7, range(50_000))
        app.push("s", [{"t": 8_000_000, "k": key, "v": 0.5, "n": 1} for key in (5, 100, 1, 49_999)])
        found = {row["k"]: row["b"] for row in app.results("q").to_pylist()}
    # All four have come at 0, 3 and 7 and now; 5 and 1 also when `at` was 5 and 1, 100 and 49,999 never besides.
    assert found == {5: 5, 100: 4, 1: 5, 49_999: 4}


# What cannot be written


def calls(app: ps.App) -> dict[str, Callable[[], object]]:
    return {
        "push": lambda: app.push("s", events(200, 1, 20)[100:110]),
        "checkpoint": app.checkpoint,
        "begun": lambda: begun(app),
        "tick": app.tick,
        "finish": app.finish,
        "add": lambda: app.add_query("SELECT k FROM s"),
    }


@pytest.mark.parametrize("call", ["push", "checkpoint", "begun", "tick", "finish", "add"])
def test_a_full_disk_is_told_by_the_next_call(tmp_path: Path, disk: Disk, call: str) -> None:
    rows = events(200, 1, 20)
    with ps.App(ONE, checkpoint=tmp_path / "a") as app:
        app.push("s", rows[:50])
        app.checkpoint({"offset": 50})
        app.push("s", rows[50:100])
        with disk.full():
            begun(app, {"offset": 100})
            over()
        with pytest.raises(ps.StorageError, match=r"No space left on device"):
            calls(app)[call]()
        assert (app.metrics.events, app.queries, app.last_checkpoint) == (100, ("q",), (1, {"s": 50}))
        assert resumed(ONE, killed(tmp_path / "a"), rows) == whole(ONE, rows)
        app.push("s", rows[100:150])
        assert begun(app, {"offset": 150}).epoch == 2
        app.push("s", rows[150:])
    assert resumed(ONE, tmp_path / "a", rows) == whole(ONE, rows)


@pytest.mark.parametrize("options", [{"linger": 60.0}, {}, {"dispatch": "fcfs"}])
@pytest.mark.parametrize("size", [1, 10])
def test_a_push_that_tells_of_a_full_disk_takes_nothing(
    tmp_path: Path, disk: Disk, options: dict[str, Any], size: int
) -> None:
    """Whichever way events take: lanes, lingering, input buffers. It is pushed again, and every event counts once."""
    text = STREAM.replace("1 SECONDS", "0 SECONDS") + f"CREATE QUERY q AS {QUERIES[0]};"
    rows = [{**event, "v": 1.0} for event in events(300, 2, 5)]
    told = 0
    with ps.App(text, checkpoint=tmp_path, **options) as app:
        for at in range(0, len(rows), size):
            if at % 50 == 0:
                with disk.full():
                    begun(app)
                    over()
            try:
                app.push("s", rows[at] if size == 1 else rows[at : at + size])
            except ps.StorageError:
                told += 1
                app.push("s", rows[at] if size == 1 else rows[at : at + size])
        app.finish()
        assert told == 6
        assert str(app.results("q").to_pylist()) == whole(text, rows)["q"]


def test_a_dispatcher_that_tells_of_a_full_disk_loses_nothing(tmp_path: Path, disk: Disk) -> None:
    rows = events(100, 3, 5)
    with ps.App(ONE, checkpoint=tmp_path, dispatch="fcfs") as app:

        def offered() -> None:
            with disk.full(), app.dispatching() as dispatcher:
                for event in rows[:50]:
                    app.offer("s", event)
                with dispatcher.paused():
                    begun(app)
                    over()
                with contextlib.suppress(ps.PenstockError):  # the dispatcher stops
                    for event in rows[50:]:
                        app.offer("s", event)

        with pytest.raises(ps.StorageError, match="No space left"):
            offered()
        left = app.metrics.events + app.waiting["s"]
        app.push("s", rows[left:])
        app.finish()
        assert str(app.results("q").to_pylist()) == whole(ONE, rows)["q"]


def test_a_full_disk_is_told_at_the_end(tmp_path: Path, disk: Disk) -> None:
    for leave in ("close", "with", "error"):
        with disk.full():
            app = ps.App(ONE, checkpoint=tmp_path)
            app.push("s", events(10, 1, 5))
            begun(app)
            if leave == "error":
                with pytest.raises(KeyError), app:
                    raise KeyError("of the program itself")
            else:
                with pytest.raises(ps.StorageError, match="No space left"):
                    app.close() if leave == "close" else app.__exit__(None, None, None)
        app.close()  # all is given back
    with ps.App(ONE, checkpoint=tmp_path) as app:
        assert app.restored is None
        assert app.metrics.events == 0


# Waiting


def test_the_next_checkpoint_waits(tmp_path: Path, disk: Disk) -> None:
    with ps.App(ONE, checkpoint=tmp_path) as app:
        for wait in (False, True):
            app.push("s", events(10, 1, 5)[:1])
            disk.hold()
            first = begun(app)
            disk.free_soon()
            second = app.checkpoint(wait=wait)
            assert second.epoch == first.epoch + 1
            assert app.last_checkpoint in ((second,) if wait else (first, second))
            assert not wait or not any(t.name == _WRITER for t in threading.enumerate() if t.is_alive())
            over()


def test_close_waits(tmp_path: Path, disk: Disk) -> None:
    app = ps.App(ONE, checkpoint=tmp_path)
    app.push("s", events(10, 1, 5))
    disk.hold()
    begun(app, {"offset": 10})
    disk.free_soon()
    app.close()
    with ps.App(ONE, checkpoint=tmp_path) as again:
        assert (again.restored, again.metrics.events) == ({"offset": 10}, 10)


@pytest.fixture
def interrupts() -> Iterator[None]:
    """A shell starts its background jobs with interrupts ignored, and the tests may be one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("call", ["checkpoint", "close"])
def test_interrupted_while_it_waits(tmp_path: Path, disk: Disk, call: str) -> None:
    app = ps.App(ONE, checkpoint=tmp_path)
    app.push("s", events(10, 1, 5))
    disk.hold()
    begun(app, {"offset": 10})
    assert disk.reached.wait(30)
    threading.Timer(0.2, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        getattr(app, call)()
    if call == "checkpoint":
        app.push("s", events(20, 1, 5)[-1:])
    disk.is_free.set()
    app.close()
    with ps.App(ONE, checkpoint=tmp_path) as again:
        assert (again.restored, again.metrics.events) == ({"offset": 10}, 10)


def test_queries_come_and_go_meanwhile(tmp_path: Path, disk: Disk) -> None:
    """Their blocks stay as long as a checkpoint names them, under their own names."""
    text, options = STREAM + f"CREATE QUERY q AS {QUERIES[2]};", {"memory": "400KB", "block_size": 512}
    rows = events(1000, 4, 40)
    with ps.App(text, checkpoint=tmp_path / "a", **options) as app:  # type: ignore[arg-type]
        app.push("s", rows[:250])
        app.checkpoint({"offset": 250})
        app.push("s", rows[250:500])
        disk.hold()
        begun(app, {"offset": 500})
        app.drop_query("q")
        app.add_query(text.removeprefix(STREAM))
        app.push("s", rows[500:750])
        before = killed(tmp_path / "a", 1)
        disk.is_free.set()
        over()
        app.push("s", rows[750:800])  # it stands, and what only the first one named is gone
        app.drop_query("q")
        app.add_query(text.removeprefix(STREAM))
        app.push("s", rows[800:])
        after = killed(tmp_path / "a", 2)
    assert resumed(text, before, rows, **options) == resumed(text, after, rows, **options) == whole(text, rows)


# Memory


def test_copies_are_on_the_account_and_given_up(tmp_path: Path, disk: Disk) -> None:
    """A state of 3 MB and its copy do not hold up what needs more than is left beside them."""
    with ps.App(GROUPS, checkpoint=tmp_path, memory="14MB") as app:
        batch(app, 0, range(20_000))
        free = app._stores.budget.free
        disk.hold()
        begun(app)
        held = app._stores.budget.describe()["checkpoint that is being written"]
        assert 1_000_000 < held <= free - app._stores.budget.free + 100
        disk.free_soon()
        with app._stores.budget.account("another").borrowed(app._stores.budget.free + held // 2):
            assert app._stores.budget.describe()["checkpoint that is being written"] == 0
        batch(app, 1, range(10))
        assert "checkpoint that is being written" not in app._stores.budget.describe()
        assert app.last_checkpoint == (1, {"s": 20_000})


def test_without_memory_for_copies_it_is_waited_for(tmp_path: Path, disk: Disk) -> None:
    with ps.App(GROUPS, checkpoint=tmp_path, memory="14MB") as app:
        batch(app, 0, range(20_000))
        account = app._stores.budget.account("all the rest")
        account.resize(app._stores.budget.unused - 1000)
        disk.hold()  # there is no thread to hold up
        assert begun(app) == app.last_checkpoint
        account.close()
    with ps.App(GROUPS, checkpoint=tmp_path) as app:
        assert app.metrics.events == 20_000
