"""The results of a call, on their way out: large results leave while the call is still running.

A call that closes 3,600 boundaries over 10,000 groups makes 36 million rows. They must not be in memory together, so
an operator puts what it makes into an `Outgoing`, which hands on every `PIECE_ROWS` rows to its receiver. What is left
is the result of the call.

Invariant: rows leave in the order in which they were put; those that the receiver got come before those of `take`.

Why: docs/decisions/results-leave-early.md
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.operators.chunk import Chunk

PIECE_ROWS = 1 << 16
"""About how many rows of results are in memory together."""

_MOST_CHUNKS = 1024
"""A chunk takes memory besides its rows, so few of them are in memory together, however short they are."""

_LEAST_PIECE = 1024
"""The least rows of a piece: each piece has a fixed cost, however many queries there are."""

Receive = Callable[[list[Chunk]], None]
"""Takes results that do not wait for the end of the call that makes them."""


class Share:
    """How many rows may wait for each of the queries that are served together.

    >>> share = Share()
    >>> share.rows, share.change(16), share.rows, share.change(1000), share.rows
    (65536, None, 4096, None, 1024)
    """

    __slots__ = ("_queries", "rows")

    def __init__(self) -> None:
        self._queries = 0
        self.rows = PIECE_ROWS

    def change(self, queries: int) -> None:
        """So many queries come, or go if the number is below 0."""
        self._queries += queries
        self.rows = max(_LEAST_PIECE, PIECE_ROWS // max(self._queries, 1))


class Outgoing:
    """Without a `receiver` everything waits for the end of the call.

    >>> import numpy as np, pyarrow as pa
    >>> rows = Chunk(np.zeros(40_000, np.int64), pa.RecordBatch.from_arrays([pa.nulls(40_000)], ["x"]))
    >>> outgoing = Outgoing()
    >>> outgoing.receiver = lambda chunks: print([chunk.rows for chunk in chunks])
    >>> outgoing.put(rows)
    >>> outgoing.put(rows)
    [40000, 40000]
    >>> outgoing.put(rows)
    >>> [chunk.rows for chunk in outgoing.take()]
    [40000]
    """

    __slots__ = ("_chunks", "_rows", "made", "receiver", "share")

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._rows = 0
        self.receiver: Receive | None = None
        self.share = Share()
        self.made = 0
        """How many rows were put since the beginning."""

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def put(self, chunk: Chunk) -> None:
        rows = len(chunk.times)
        if rows == 0:
            return
        self._chunks.append(chunk)
        self._rows += rows
        self.made += rows
        if (self._rows >= self.share.rows or len(self._chunks) >= _MOST_CHUNKS) and self.receiver is not None:
            self.receiver(self.take())

    def take(self) -> list[Chunk]:
        """What was put since the last call and has not left."""
        chunks, self._chunks, self._rows = self._chunks, [], 0
        return chunks
