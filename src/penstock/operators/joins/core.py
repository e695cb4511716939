"""What joins over the same inputs and keys have in common: the order of the events and the rows of the sides.

    inputs -> waiting rows (Ports) -> pieces in order -> the rows of each side -> views: one for each query

Invariants:
1. The order of events is (time, position of the input in FROM, sequence); an event that several sides read enters all
   of them at once.
2. A piece is a run of events whose rows are in the sides when the views see it; how a run is cut changes no answer.
3. Rows leave a side when no view needs them for its next evaluation.
4. Queries that are the same read one view.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from penstock.arrays import Int64s
from penstock.components import component, read_as
from penstock.operators.chunk import CHUNK_ROWS, Chunk, concat
from penstock.operators.joins.paged import PagedJoin, may_page
from penstock.operators.joins.piece import FIRST_PIECE, Piece, View, matches_at_once, next_size
from penstock.operators.joins.rows import JoinRows
from penstock.operators.joins.search import Windows
from penstock.operators.joins.sides import distinct, kept_of, moments_of, narrowing_of, tables_of
from penstock.operators.outgoing import Share
from penstock.operators.ports import Due, Ports
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.operators.stage import Output, Stage
from penstock.plan.nodes import JoinNode
from penstock.rejects import Reject

_LEAST_FREE, _MANY_ROWS = 3, 8
"""Rows go to shards when less than the one part of the memory is free, and their times and keys take more than the
other."""

_LEAST_BYTES = 1 << 17
"""Times and keys of fewer bytes stay in memory: what is known of shards would take as much."""

_PIECE_SHARE, _LEAST_ROWS = 8, 64
"""A piece takes about such a part of the memory that is free at most, but it has so many rows."""

_ROW_BYTES, _WIDE_ROW = 128, 1024
"""What a row takes besides its own bytes, and what few rows take together with these."""


class JoinOutput(Output):
    """A query that reads a view. `starts` has the ends and starts of evaluated windows, if an aggregation over the join
    asked for them; it removes those it has read."""

    __slots__ = ("starts", "view")

    def __init__(self, view: View, reject: Reject) -> None:
        super().__init__(reject)
        self.view = view
        self.starts: deque[tuple[Int64s, Int64s]] | None = None

    def note_starts(self) -> deque[tuple[Int64s, Int64s]]:
        """The ends and starts of windows that are evaluated from now on. The caller removes what it has read."""
        self.starts = deque()
        return self.starts

    def snapshot(self) -> dict[str, Any]:
        return self.view.snapshot()

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.view.restore(snapshot)


def _in_memory(saved: dict[str, Any]) -> dict[str, Any]:
    """Version 1 held all rows in memory."""
    return saved | {"paged": None}


@component("JoinCore", 2, _in_memory)
class JoinCore(Stage):
    """`nodes` are joins that can have one core (`plan.joins.sharing`). What is `saved` says which columns the stores
    have, for they may be more than those that these nodes need. It ends with its last output."""

    def __init__(
        self, name: str, nodes: Sequence[JoinNode], resources: Resources, saved: dict[str, Any] | None = None
    ) -> None:
        self.name = name
        node = nodes[0]
        self._node = node
        self.joins_streams = node.joins_streams
        self.resources = resources
        self._ports = Ports(len(node.inputs), resources.account(f"{name}: rows that wait for the other inputs"))
        held = self._held = resources.apart()
        """What the rows in memory take: it goes back when they go to shards."""
        resources.at_end(held.close)
        account = self._account = held.account(f"{name}: keys")
        self._tables = tables_of(node, account)
        self._matches_at_once = matches_at_once(account.total)
        self._schemas = [below.schema.arrow for below in node.inputs]
        if saved is None:
            self._kept = [kept_of(nodes, place) for place in range(len(node.sides))]
            self._moments = [moments_of(nodes, place) for place in range(len(node.sides))]
        else:
            read = read_as(JoinCore, saved)
            self._kept, self._moments = read["kept"], read["moments"]
        self.sides = [
            JoinRows(
                f"{name}-{place}",
                node.inputs[side.input].schema,
                side.window,
                side.where,
                self._kept[place],
                {own: table for (at, own), table in self._tables.items() if at == place},
                narrowing_of(node, place),
                self._moments[place],
                held,
            )
            for place, side in enumerate(node.sides)
        ]
        self._size = FIRST_PIECE
        self._may_page = may_page(nodes)
        self._paged: PagedJoin | None = None
        """The rows, once they are in shards."""
        self._reached = START
        self._outputs: list[JoinOutput] = []
        self._share = Share()

    # Queries come and go

    @property
    def views(self) -> list[View]:
        return list(dict.fromkeys(output.view for output in self._outputs))

    @property
    def is_used(self) -> bool:
        return bool(self._outputs)

    def join(self, view: View, resources: Resources) -> JoinOutput:
        """A query that reads a view of this core; it leaves with its resources."""
        if not self.outputs_of(view):
            view.outgoing.receiver = lambda chunks: self._send_rows(view, chunks)
            view.outgoing.share = self._share
            self._share.change(1)
        output = JoinOutput(view, resources.reject)
        self._outputs.append(output)
        resources.at_end(lambda: self._leave(output))
        return output

    def outputs_of(self, view: View) -> list[JoinOutput]:
        return [output for output in self._outputs if output.view is view]

    def _leave(self, output: JoinOutput) -> None:
        self._outputs.remove(output)
        if not self.outputs_of(output.view):
            self._share.change(-1)
        if not self._outputs:
            self.close()

    def close(self) -> None:
        self.resources.close()

    # Rows

    def process(self, chunk: Chunk, watermark: int, port: int = 0) -> None:
        if len(self._schemas) == 1:
            reached, due = watermark, {0: [chunk]}
        else:
            reached = self._ports.put(port, chunk, watermark)
            due = self._ports.take_due()
        self._run(due, reached)
        self._reached = reached
        self._send()

    def _send(self) -> None:
        """What has come of a call, and how far time has come: events that wait are yet to give results."""
        reached = self._reached
        if self._paged is not None and self._paged.waits_since is not None:
            reached = min(reached, self._paged.waits_since - 1)
        for view in self.views:
            self._note_starts(view)
            chunks = view.outgoing.take()
            for output in self.outputs_of(view):
                output.send(chunks, reached - view.lag)

    def finish(self, last_time: int | None) -> None:
        """All waiting rows enter; then each view ends."""
        due = self._ports.take(-START)
        self._run(due, max((int(own[-1].times[-1]) for own in due.values()), default=START))
        if self._paged is not None:
            self._paged.play(self.views, self.rejected)
        for view in self.views:
            end = view.last_boundary(last_time)
            if end is not None:
                view.see(self._piece([], np.empty(0, np.int64), np.empty(0, np.int64), end))
        for view in self.views:
            self._send_rows(view, view.outgoing.take())

    def _send_rows(self, view: View, chunks: list[Chunk]) -> None:
        self._note_starts(view)
        for output in self.outputs_of(view) if chunks else ():
            output.send_rows(chunks)

    def _note_starts(self, view: View) -> None:
        starts, view.starts = view.starts, []
        for output in self.outputs_of(view) if starts else ():
            if output.starts is not None:
                output.starts += starts

    def _run(self, due: Due, watermark: int) -> None:
        chunks = [concat(due.get(port, []), schema) for port, schema in enumerate(self._schemas)]
        times = chunks[0].times if len(chunks) == 1 else np.concatenate([chunk.times for chunk in chunks])
        ports = np.repeat(np.arange(len(chunks)), [chunk.rows for chunk in chunks])
        if sum(chunk.rows > 0 for chunk in chunks) > 1:
            order = np.argsort(times, kind="stable")
            times, ports = times[order], ports[order]
        done, taken = 0, [0] * len(chunks)
        while True:
            stop = min(done + self._events_at_once(chunks), len(times))
            own_ports = ports[done:stop]
            parts = []
            for number, chunk in enumerate(chunks):
                upto = taken[number] + int((own_ports == number).sum())
                whole = upto - taken[number] == chunk.rows
                parts.append(chunk if whole else chunk.slice(taken[number], upto))
                taken[number] = upto
            reached = watermark if stop == len(times) else min(watermark, int(times[stop - 1]))
            if self._paged is None:
                matches = self._see(self._piece(parts, times[done:stop], own_ports, reached))
                self._size = next_size(self._size, stop - done, matches, self._matches_at_once)
                self._page()
            else:
                self._paged.add(parts, times[done:stop], own_ports)
                self._let_wait(self._paged)
            done = stop
            if done == len(times):
                return

    def _piece(self, chunks: Sequence[Chunk], times: Int64s, ports: Int64s, watermark: int) -> Piece:
        """The rows of the piece enter the sides."""
        before = [side.head for side in self.sides]
        heads: list[Int64s] = []
        own: list[Int64s] = []
        for place, rows in enumerate(self.sides):
            number = self._node.sides[place].input
            if not chunks or chunks[number].rows == 0:
                rows.fresh = rows.head
                heads.append(np.full(len(times), rows.head, np.int64))
                own.append(np.full(len(times), -1, np.int64))
                continue
            here = ports == number
            entered, passing = rows.enter(chunks[number])
            if entered is not None:
                here[here] = entered
            head = before[place] + np.cumsum(here)
            takes_part = here.copy()
            if passing is not None:
                takes_part[here] = passing
            heads.append(head)
            own.append(np.where(takes_part, head - 1, -1))
        return Piece(times, before, heads, own, watermark)

    def _see(self, piece: Piece) -> int:
        most, all_views = 0, self.views
        for views in _alike(all_views):
            together = len(views) > 1 and len(piece.times)
            matches = self._see_together(views, piece) if together else max(view.see(piece) for view in views)
            most = max(most, matches)
        for rows in self.sides:
            rows.settle()
        for place, rows in enumerate(self.sides):
            rows.release(min(view.needed[place] for view in all_views))
        return most

    def _see_together(self, views: Sequence[View], piece: Piece) -> int:
        """One search in the longest windows; each view takes what is in its own."""
        windows = [view.look(piece) for view in views]
        low = [np.minimum.reduce(tails) for tails in zip(*(own.low for own in windows), strict=True)]
        found, rows, matches = views[0].search_for(views, piece, Windows(low, piece.heads))
        for view in views:
            view.show(found, rows, piece)
        return matches

    # Rows page

    def _events_at_once(self, chunks: Sequence[Chunk]) -> int:
        """Of how many events a piece is: of fewer where a larger one could take the memory that is left."""
        if self._paged is not None:
            return CHUNK_ROWS
        most = self._account.free // (_PIECE_SHARE * len(self.sides)) if self._may_page else 0
        if not self._may_page or self._size * _WIDE_ROW <= most:
            return self._size
        nbytes = sum(int(chunk.columns.nbytes) for chunk in chunks if chunk.rows)
        row_bytes = _ROW_BYTES + nbytes // max(1, sum(chunk.rows for chunk in chunks))
        return min(self._size, max(most // row_bytes, _LEAST_ROWS))

    def _page(self) -> None:
        """Rows that leave too little memory for others go to shards."""
        account = self._account
        if not self._may_page or account.free * _LEAST_FREE > account.total:
            return
        nbytes = account.nbytes + sum(side.nbytes for side in self.sides)
        if nbytes >= max(account.total // _MANY_ROWS, _LEAST_BYTES):
            paged = self._begin_paging()
            paged.fill(self.sides)
            self._forget_rows()

    def _begin_paging(self) -> PagedJoin:
        self._paged = PagedJoin(self.name, self._node, self._kept, self._moments, self.resources)
        return self._paged

    def _forget_rows(self) -> None:
        """The rows are in shards: none is kept here."""
        for side in self.sides:
            side.close()
        for table in distinct(self._tables.values()):
            table.close()
        self._held.close()

    def _let_wait(self, paged: PagedJoin) -> None:
        """Events that have been added wait for others, until there are many or the runtime is about to return."""
        if paged.has_many:
            paged.play(self.views, self.rejected)
        elif paged.waits_since is not None and self._play_waiting not in self.resources.later:
            self.resources.later.append(self._play_waiting)

    def _play_waiting(self) -> None:
        if self._paged is not None and self.is_used:
            self._paged.play(self.views, self.rejected)
            self._send()

    def rejected(self, view: View, reason: str, row: dict[str, Any]) -> None:
        """A row of the join is rejected for each query that reads the view."""
        for output in self.outputs_of(view):
            output.reject(reason, row)

    # Durability

    def snapshot(self) -> dict[str, Any]:
        in_memory = self._paged is None
        return {
            "ports": self._ports.snapshot(),
            "sides": [side.snapshot() for side in self.sides] if in_memory else [],
            "tables": [table.snapshot() for table in distinct(self._tables.values())] if in_memory else [],
            "paged": None if self._paged is None else self._paged.snapshot(),
            "size": self._size,
            "kept": self._kept,
            "moments": self._moments,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._ports.restore(snapshot["ports"])
        self._size = snapshot["size"]
        if snapshot["paged"] is not None:
            self._begin_paging().restore(snapshot["paged"])
            self._forget_rows()
            return
        for table, saved in zip(distinct(self._tables.values()), snapshot["tables"], strict=True):
            table.restore(saved)
        for side, saved in zip(self.sides, snapshot["sides"], strict=True):
            side.restore(saved)


def _alike(views: Iterable[View]) -> list[list[View]]:
    """Views that can be served by one search."""
    found: dict[Any, list[View]] = {}
    for view in views:
        common = view.common
        found.setdefault(view if common is None else common, []).append(view)
    return list(found.values())
