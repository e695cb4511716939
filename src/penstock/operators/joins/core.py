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
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from penstock.arrays import Int64s
from penstock.components import component, read_as
from penstock.expressions.batch import Batch
from penstock.operators.chunk import CHUNK_ROWS, Chunk, concat
from penstock.operators.groups import GroupTable
from penstock.operators.joins.rows import JoinRows
from penstock.operators.joins.search import Found, Windows
from penstock.operators.outgoing import Outgoing, Share
from penstock.operators.ports import Due, Ports
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.operators.stage import Output, Stage
from penstock.plan.joins.reads import kept_columns
from penstock.plan.joins.steps import Keys
from penstock.plan.nodes import JoinNode
from penstock.rejects import Reject
from penstock.store.budget import Account

_FIRST_PIECE = 256
_MATCHES_AT_ONCE = 1 << 19
"""How many rows of the join a piece should make at most."""

_BYTES_FOR_A_MATCH = 1024
"""A piece should make one row for so many bytes of the memory: together they take about an eighth of it."""


@dataclass(slots=True)
class Piece:
    """Events in order. `heads[side]` is how many rows a side has after each event; `own[side]` the position there of
    the event itself, if it has entered and takes part, else -1. `before[side]` is the head before the first event."""

    times: Int64s
    before: list[int]
    heads: list[Int64s]
    own: list[Int64s]
    watermark: int


class View(Protocol):
    """A query's way to look at the rows of the sides; its results go to `outgoing`."""

    outgoing: Outgoing

    def see(self, piece: Piece) -> int:
        """Makes the results of a piece; returns how many rows of the join were looked at for them."""

    @property
    def needed(self) -> Sequence[int]:
        """For each side the first row that is still needed."""

    def last_boundary(self, last_time: int | None) -> int | None:
        """The watermark at which a bounded run ends; None for joins per event."""

    starts: list[tuple[Int64s, Int64s]]

    @property
    def common(self) -> tuple[Any, ...] | None:
        """Equal for views that differ in the sizes of their windows alone; None for those that work alone."""

    lag: int

    def look(self, piece: Piece) -> Windows:
        """The windows at each event of a piece."""

    def search_for(self, views: Sequence[Any], piece: Piece, windows: Windows) -> tuple[Found, Batch, int]:
        """What the events of a piece find in these windows, its columns for all the views, and the number of rows."""

    def show(self, found: Found, rows: Batch, piece: Piece) -> None:
        """Makes the results of a piece, of what was found in larger windows."""

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: dict[str, Any]) -> None: ...


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


@component("JoinCore")
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
        account = resources.account(f"{name}: keys")
        self._tables = _tables(node, account)
        self._matches_at_once = max(_FIRST_PIECE, min(_MATCHES_AT_ONCE, account.total // _BYTES_FOR_A_MATCH))
        self._schemas = [below.schema.arrow for below in node.inputs]
        if saved is None:
            self._kept = [_kept(nodes, place) for place in range(len(node.sides))]
            self._moments = [_moments(nodes, place) for place in range(len(node.sides))]
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
                _narrowing(node, place),
                self._moments[place],
                resources,
            )
            for place, side in enumerate(node.sides)
        ]
        self._size = _FIRST_PIECE
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
        for view in self.views:
            self._note_starts(view)
            chunks = view.outgoing.take()
            for output in self.outputs_of(view):
                output.send(chunks, reached - view.lag)

    def finish(self, last_time: int | None) -> None:
        """All waiting rows enter; then each view ends."""
        due = self._ports.take(-START)
        self._run(due, max((int(own[-1].times[-1]) for own in due.values()), default=START))
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
            stop = min(done + self._size, len(times))
            own_ports = ports[done:stop]
            parts = []
            for number, chunk in enumerate(chunks):
                upto = taken[number] + int((own_ports == number).sum())
                whole = upto - taken[number] == chunk.rows
                parts.append(chunk if whole else chunk.slice(taken[number], upto))
                taken[number] = upto
            reached = watermark if stop == len(times) else min(watermark, int(times[stop - 1]))
            matches = self._see(self._piece(parts, times[done:stop], own_ports, reached))
            self._resize(stop - done, matches)
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

    def _resize(self, events: int, matches: int) -> None:
        """Pieces are as large as the matches of their events allow."""
        fitting = self._matches_at_once * max(events, 1) // max(matches, 1)
        self._size = max(1, min(fitting, 4 * self._size, CHUNK_ROWS))

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {
            "ports": self._ports.snapshot(),
            "sides": [side.snapshot() for side in self.sides],
            "tables": [table.snapshot() for table in _distinct(self._tables.values())],
            "size": self._size,
            "kept": self._kept,
            "moments": self._moments,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._ports.restore(snapshot["ports"])
        for table, saved in zip(_distinct(self._tables.values()), snapshot["tables"], strict=True):
            table.restore(saved)
        for side, saved in zip(self.sides, snapshot["sides"], strict=True):
            side.restore(saved)
        self._size = snapshot["size"]


def _alike(views: Iterable[View]) -> list[list[View]]:
    """Views that can be served by one search."""
    found: dict[Any, list[View]] = {}
    for view in views:
        common = view.common
        found.setdefault(view if common is None else common, []).append(view)
    return list(found.values())


def _kept(nodes: Sequence[JoinNode], place: int) -> list[str]:
    """The columns of a side that some join keeps."""
    wanted = {column for node in nodes for column in kept_columns(node, place)}
    schema = nodes[0].inputs[nodes[0].sides[place].input].schema
    return [column for column in schema.names if column in wanted]


def _moments(nodes: Sequence[JoinNode], place: int) -> list[str]:
    """The columns of a side that some join's bands compare."""
    found = [band.column for node in nodes for band in node.bands if band.side == place]
    found += [band.other_column for node in nodes for band in node.bands if band.other == place]
    return list(dict.fromkeys(found))


def _tables(node: JoinNode, account: Account) -> dict[tuple[int, Keys], GroupTable]:
    """A table of slots for each class of keys that are compared with each other, by side and key."""
    found: dict[tuple[int, Keys], GroupTable] = {}
    for equality in (*node.equalities, *(narrowing.equality for narrowing in node.narrowings)):
        left, right = (equality.left, equality.left_keys), (equality.right, equality.right_keys)
        table = found.get(left) or found.get(right)
        if table is None:
            table = GroupTable(tuple(key.type for key in equality.left_keys), account)
        other = found.get(right)
        if other is not None and other is not table:
            found = {name: table if known is other else known for name, known in found.items()}
            other.close()
        found[left] = found[right] = table
    return found


def _narrowing(node: JoinNode, place: int) -> dict[Keys, bool]:
    """The keys of a side that narrow a search, and whether a NULL makes a row odd."""
    found: dict[Keys, bool] = {}
    for narrowing in node.narrowings:
        e = narrowing.equality
        for side, keys in ((e.left, e.left_keys), (e.right, e.right_keys)):
            if side == place:
                found[keys] = found.get(keys, False) or narrowing.with_nulls
    return found


def _distinct(tables: Any) -> list[GroupTable]:
    return list({id(table): table for table in tables}.values())
