"""What the processes of a run use: CPU, memory and disk, looked at again and again while it runs.

A process counts with all that it has started, such as the JVM of a host. Processes come and go: what one had used
when it was last seen stays in the sum, so CPU and disk never go down.

Memory is the resident set, added over the tree: pages that processes share count in each. Disk is what the system has
read and written for the process (`read_bytes`, `write_bytes` of Linux): not what a page cache has answered. Where the
operating system does not tell it, it is 0.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa

from penstock_bench.measure.clock import Clock
from penstock_bench.measure.running.logs import RowLog

USED = pa.schema(
    [
        ("time_ns", pa.int64()),
        ("process", pa.string()),
        ("cpu_s", pa.float64()),
        ("rss_bytes", pa.int64()),
        ("read_bytes", pa.int64()),
        ("written_bytes", pa.int64()),
    ]
)


class Usage(NamedTuple):
    """Since the process began; `rss_bytes` is now."""

    cpu_s: float = 0.0
    rss_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


@dataclass
class _Tree:
    """A process and what it has started. `spent` is what each of them had used when it was last seen."""

    root: psutil.Process
    spent: dict[tuple[int, float], Usage] = field(default_factory=dict)

    def look(self) -> Usage | None:
        """None when the root has ended."""
        try:
            members = [self.root, *self.root.children(recursive=True)]
            if self.root.status() == psutil.STATUS_ZOMBIE:
                return None
        except psutil.Error:
            return None
        rss = 0
        for member in members:
            usage = _usage(member)
            if usage is not None:
                rss += usage.rss_bytes
                # A number of a process may come again; with the moment it began it is unique.
                self.spent[member.pid, member.create_time()] = usage
        seen = self.spent.values()
        return Usage(
            sum(one.cpu_s for one in seen), rss, sum(one.read_bytes for one in seen), sum(o.written_bytes for o in seen)
        )


def _usage(process: psutil.Process) -> Usage | None:
    """None if it has ended just now."""
    try:
        with process.oneshot():
            times = process.cpu_times()
            rss = process.memory_info().rss
            try:
                disk = process.io_counters()
                read, written = disk.read_bytes, disk.write_bytes
            except (psutil.AccessDenied, AttributeError):
                # macOS counts none, and psutil has no such method there; Linux shows them to a process's owner alone.
                read = written = 0
            return Usage(times.user + times.system, rss, read, written)
    except psutil.Error:
        return None


class ResourceSampler:
    """Looks at processes every so often, in a thread of its own, and logs what it sees.

    Invariant: the log is written by that thread alone; `watch` and `latest` may be called by any.
    """

    def __init__(self, directory: Path, clock: Clock, every_us: int) -> None:
        self._log = RowLog(directory, USED)
        self._clock = clock
        self._every = max(every_us, 10_000) / 1e6
        self._lock = threading.Lock()
        self._trees: dict[str, _Tree] = {}
        self._latest: dict[str, Usage] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="resources", daemon=True)

    def watch(self, name: str, pid: int) -> None:
        """From now on, until it ends. One that has ended already is not watched."""
        try:
            tree = _Tree(psutil.Process(pid))
        except psutil.Error:
            return
        with self._lock:
            self._trees[name] = tree

    def start(self) -> None:
        self._thread.start()

    def latest(self) -> Mapping[str, Usage]:
        """What each process used when it was last looked at."""
        with self._lock:
            return dict(self._latest)

    def stop(self) -> None:
        """After a last look."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        else:
            self._log.close()

    def _run(self) -> None:
        try:
            while not self._over.wait(self._every):
                self._look()
            self._look()
        finally:
            self._log.close()

    def _look(self) -> None:
        with self._lock:
            trees = dict(self._trees)
        for name, tree in trees.items():
            now = self._clock.ns()
            usage = tree.look()
            with self._lock:
                if usage is None:
                    if self._trees.get(name) is tree:
                        del self._trees[name]
                    continue
                self._latest[name] = usage
            self._log.append(now, name, *usage)
        self._log.roll()
