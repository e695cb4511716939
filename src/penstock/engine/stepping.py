"""Time passes in steps where windows over one stream meet again in one query.

    SELECT k, AVG(x) OVER [RANGE 1 MINUTE], AVG(x) FROM s [RANGE 1 HOUR SLIDE 1 SECOND] GROUP BY k

The two windows are looked at one after the other, and what the first gives waits for the second. After a silence of an
hour that would be 3,600 evaluations of every group. A push may be cut anywhere without another answer, so it is cut by
time: the second window catches up before the first goes on.

Why: docs/decisions/results-leave-early.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from penstock.operators.chunk import NO_EVENTS, Chunk
from penstock.operators.outgoing import PIECE_ROWS
from penstock.plan.nodes import Node, children, streams
from penstock.store.budget import Budget

_BYTES_FOR_A_ROW = 1024
"""So many bytes must be within reach for each row that waits: about ten times what it takes."""


def meeting_slides(node: Node) -> dict[str, int]:
    """The streams that a node reads by several ways with time slides on them, each with the shortest slide."""
    found: dict[str, int] = {}
    for child in children(node):
        for stream, slide in meeting_slides(child).items():
            found[stream] = min(slide, found.get(stream, slide))
    ways = [(streams(child), _shortest_slide(child)) for child in children(node)]
    for stream in streams(node):
        slides = [slide for read, slide in ways if stream in read]
        by_time = [slide for slide in slides if slide is not None]
        if len(slides) > 1 and by_time:
            found[stream] = min(*by_time, found.get(stream, by_time[0]))
    return found


def _shortest_slide(node: Node) -> int | None:
    slides = [below for child in children(node) if (below := _shortest_slide(child)) is not None]
    slide = None if node.own_window is None else node.own_window.time_slide
    if slide is not None:
        slides.append(slide.micros)
    return min(slides, default=None)


class Steps:
    """`waited` counts the rows that have come to where the ways meet. A step is as long as about `PIECE_ROWS` of them
    allow, fewer where they would take much of the memory within reach; each call begins with a step of one slide, since
    what its rows bring is not known."""

    def __init__(self, slide: int, waited: Callable[[], int], budget: Budget) -> None:
        self._slide = slide
        self._waited = waited
        self._budget = budget

    def cut(self, begin: int | None, chunks: list[Chunk], watermark: int) -> Iterator[tuple[list[Chunk], int]]:
        """The rows and the watermark of one call, as those of several; `begin` is the watermark of the call before."""
        if begin is None:
            begin = next((int(chunk.times[0]) for chunk in chunks if chunk.rows), watermark)
        slides = 1
        while begin + slides * self._slide < watermark:
            begin += slides * self._slide
            before, most = self._waited(), min(PIECE_ROWS, self._budget.within_reach // _BYTES_FOR_A_ROW)
            head, chunks = _split(chunks, begin)
            yield head, begin
            came = self._waited() - before
            if 4 * came < most:
                slides *= 2
            elif came > most:
                slides = max(1, slides // 2)
        yield chunks, watermark


def _split(chunks: list[Chunk], time: int) -> tuple[list[Chunk], list[Chunk]]:
    """The rows before a time, and the others."""
    head: list[Chunk] = []
    rest: list[Chunk] = []
    for chunk in chunks:
        count = int(np.searchsorted(chunk.times, time))
        if count:
            head.append(chunk if count == chunk.rows else chunk.slice(0, count))
        if count < chunk.rows:
            rest.append(chunk.slice(count, chunk.rows) if count else chunk)
    nothing = [NO_EVENTS]
    return head or nothing, rest or nothing
