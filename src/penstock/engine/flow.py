"""The queries at work and the way of rows between them.

    a stream's rows -> (shared windows) -> the pipelines that read it -> their outlets
                                |
                                +-> derived streams -> the pipelines that read those

Invariants:
1. Queries run in the order in which they were started, and a query reads only streams that were there before it.
2. `passed` counts the rows of each stream since its first, whichever queries there were.
3. The names of pipelines and shared windows are unique among those running and those of the last checkpoint, whose
   block files must stay as they are until the next one.
4. Queries that are started together and keep rows of the same stream share a window (`plan.sharing`); one that is
   started later joins it if all that it reads is there. After a restart those that are as they were share as before,
   and the others begin afresh in windows of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.aggregates.user import UserAggregate
from penstock.engine.clock import Clock
from penstock.engine.outlet import Outlet
from penstock.engine.ticking import Ticking
from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import Query
from penstock.operators.chunk import Chunk
from penstock.operators.emitter import Reject
from penstock.operators.pipeline import Pipeline
from penstock.operators.resources import Resources
from penstock.operators.shared_window import SharedWindow
from penstock.plan.nodes import AggregateNode, Node
from penstock.plan.sharing import shareable, stream_of
from penstock.store.manager import StoreManager

DERIVED_KEPT = 65_536
"""How many rows of a derived stream wait for who may want to read them, besides the queries that do."""


@dataclass(frozen=True)
class Running:
    """`feeds` is the derived stream that the query's rows go on to; `windows` are those that it may share."""

    query: Query
    node: Node
    fingerprint: str
    pipeline: Pipeline
    windows: tuple[SharedWindow, ...]
    outlet: Outlet
    feeds: str | None


class Flow:
    """With `in_parts` only a part of each stream passes here, and queries give partial rows (`operators.parts`)."""

    def __init__(
        self,
        stores: StoreManager,
        reject: Reject,
        users: Mapping[str, UserAggregate],
        clock: Clock,
        sinks: Iterable[str],
        *,
        in_parts: bool = False,
    ) -> None:
        self._stores = stores
        self._reject = reject
        self._users = users
        self._clock = clock
        self._sinks = set(sinks)
        self._in_parts = in_parts
        self._readers: dict[str, tuple[Running, ...]] = {}
        self._saved: dict[str, Any] = {}
        self._saved_windows: dict[str, Any] = {}
        self._used_names: set[str] = set()
        self.running: dict[str, Running] = {}
        self.passed: dict[str, int] = {}
        self._ticking = Ticking(clock.now())

    # Queries come and go

    def expect(self, snapshot: dict[str, Any]) -> None:
        """Queries that are started from now on take up what the snapshot has of them, when it is restored."""
        self._saved, self._saved_windows = snapshot["queries"], snapshot["windows"]
        self._used_names = {saved["pipeline"] for saved in self._saved.values()} | set(self._saved_windows)
        self.passed = dict(snapshot["passed"])

    def start(self, queries: Sequence[tuple[Query, Node]]) -> None:
        """Starts queries together, from here on; if that fails, nothing of them stays."""
        windows: dict[str, list[SharedWindow]] = {}
        try:
            self._make_windows(queries, windows)
            for query, node in queries:
                self._start(query, node, windows[query.name])
        except BaseException:
            for query, _ in reversed(queries):
                if query.name in self.running:
                    self.drop(query.name)
            for window in {window for own in windows.values() for window in own}:
                if not window.has_members:
                    window.close()
            raise

    def _make_windows(self, queries: Sequence[tuple[Query, Node]], made: dict[str, list[SharedWindow]]) -> None:
        """The windows of each query: the one it had, one that is there and has all it reads, or one for all that begin
        on the same stream."""
        members: dict[tuple[str, str], list[tuple[str, AggregateNode]]] = {}
        for query, node in queries:
            made[query.name] = []
            saved = self._saved_state(query, node)
            for number, window in enumerate(shareable(node)):
                joins = self._window_for(window) if saved is None else None
                if joins is not None:
                    made[query.name].append(joins)
                    continue
                known = "" if saved is None else saved["windows"][number]
                members.setdefault((known, stream_of(window)), []).append((query.name, window))
        for (known, stream), sharing in members.items():
            nodes = [node for _, node in sharing]
            name = known or self._free_name(f"window-{stream}-{fingerprint(tuple(nodes))[:12]}")
            resources = self._resources()
            try:
                shared = SharedWindow(name, nodes, resources, self._saved_windows.get(known))
            except BaseException:
                resources.close()
                raise
            self._used_names.add(name)
            for query_name, _ in sharing:
                made[query_name].append(shared)

    def _window_for(self, node: AggregateNode) -> SharedWindow | None:
        """A window at work that a query can join from here on."""
        readers = self._readers.get(stream_of(node), ())
        windows = (window for running in readers for window in running.windows if stream_of(node) == window.stream)
        return next((window for window in windows if window.takes(node)), None)

    def _start(self, query: Query, node: Node, windows: list[SharedWindow]) -> None:
        print_of = fingerprint(node)
        saved = self._saved_state(query, node)
        name = self._free_name(f"{query.name}-{print_of[:12]}") if saved is None else saved["pipeline"]
        resources = self._resources()
        try:
            pipeline = Pipeline(name, node, resources, windows, in_parts=self._in_parts)
        except BaseException:
            resources.close()
            raise
        feeds = None if query.into in self._sinks else query.into
        keep = DERIVED_KEPT if feeds is not None else 0 if query.into is not None else None
        outlet = Outlet(query.name, pipeline.schema, keep)
        self.running[query.name] = Running(query, node, print_of, pipeline, tuple(windows), outlet, feeds)
        self._used_names.add(name)
        self._ticking.add(query.name, node, pipeline)
        self._note_changes()

    def _resources(self) -> Resources:
        return Resources(self._stores, self._reject, self._users, now=self._clock.now(), passed=self.passed)

    def _saved_state(self, query: Query, node: Node) -> dict[str, Any] | None:
        """What the checkpoint has of the query, if that is still the same."""
        saved: dict[str, Any] | None = self._saved.get(query.name)
        return saved if saved is not None and saved["fingerprint"] == fingerprint(node) else None

    def _free_name(self, base: str) -> str:
        name, number = base, 1
        while name in self._used_names:
            number += 1
            name = f"{base}-{number}"
        return name

    def drop(self, name: str) -> None:
        self.running.pop(name).pipeline.close()
        self._ticking.drop(name)
        self._note_changes()

    def readers(self, stream: str) -> list[str]:
        return [name for name, running in self.running.items() if stream in running.pipeline.streams]

    def _note_changes(self) -> None:
        everyone = tuple(self.running.values())
        streams = set().union(*(running.pipeline.streams for running in everyone))
        self._readers = {s: tuple(r for r in everyone if s in r.pipeline.streams) for s in streams}

    @property
    def _windows(self) -> dict[str, SharedWindow]:
        return {window.name: window for running in self.running.values() for window in running.windows}

    def sharers(self) -> dict[str, list[str]]:
        """For each query that shares a window the others that do."""
        found: dict[str, list[str]] = {}
        for running in self.running.values():
            mine = set(running.windows)
            others = [r.query.name for r in self.running.values() if r is not running and mine & set(r.windows)]
            if others:
                found[running.query.name] = others
        return found

    def users_of(self, store: str) -> list[str]:
        """The queries whose rows or states are in a store of this name."""
        return [
            name
            for name, running in self.running.items()
            if store.startswith(f"{running.pipeline.name}-") or store in (window.name for window in running.windows)
        ]

    # Rows pass

    def dispatch(self, stream: str, chunks: list[Chunk], watermark: int) -> None:
        """Hands a stream's rows to the queries that read it, and their results to those that read these."""
        self.passed[stream] = self.passed.get(stream, 0) + sum(chunk.rows for chunk in chunks)
        for running in self._readers.get(stream, ()):
            progress = running.pipeline.push(stream, chunks, watermark)
            self._deliver(running, progress.chunks, progress.watermark)

    def _deliver(self, running: Running, chunks: list[Chunk], watermark: int) -> None:
        for chunk in chunks:
            if chunk.rows:
                running.outlet.put(chunk.arrow)
        if running.feeds is not None:
            self.dispatch(running.feeds, chunks, watermark)

    def tick(self, now: int) -> None:
        """Lets the windows slide that follow the local clock."""
        for name in self._ticking.due(now):
            running = self.running[name]
            progress = running.pipeline.tick(now)
            if progress is not None:
                self._deliver(running, progress.chunks, progress.watermark)

    @property
    def next_tick(self) -> int | None:
        """When the local clock may next make a window slide; None if it never does."""
        return self._ticking.next_tick

    def finish(self, last_times: Mapping[str, int] | None = None) -> None:
        """Ends a bounded run. What derives from results ends later in the same loop (invariant 1). `last_times` says
        when the streams ended that have passed here only in part."""
        ended = last_times or {}
        for running in tuple(self.running.values()):
            (stream, *_) = running.pipeline.streams
            last = [chunk for chunk in running.pipeline.finish(ended.get(stream)) if chunk.rows]
            if last:
                self._deliver(running, last, int(last[-1].times[-1]))

    # Durability

    def snapshot(self) -> dict[str, Any]:
        queries = {
            name: {
                "pipeline": running.pipeline.name,
                "fingerprint": running.fingerprint,
                "windows": [window.name for window in running.windows],
                "operators": running.pipeline.snapshot(),
                "outlet": running.outlet.snapshot(),
            }
            for name, running in self.running.items()
        }
        windows = {name: window.snapshot() for name, window in self._windows.items()}
        return {"queries": queries, "windows": windows, "passed": self.passed}

    def committed(self) -> None:
        """The last snapshot is durable: block files that only earlier ones name are gone."""
        self._used_names = {running.pipeline.name for running in self.running.values()} | set(self._windows)

    def restore(self) -> None:
        """What was expected is there: queries that are the same go on, the others have begun afresh."""
        resumed = [window for name, window in self._windows.items() if name in self._saved_windows]
        for window in resumed:
            window.restore(self._saved_windows[window.name])
        for name, running in self.running.items():
            saved = self._saved.get(name)
            if saved is not None and saved["pipeline"] == running.pipeline.name:
                running.pipeline.restore(saved["operators"])
                running.outlet.restore(saved["outlet"])
        for window in resumed:
            window.settle()
        self._saved, self._saved_windows = {}, {}
        self._ticking.restored()
