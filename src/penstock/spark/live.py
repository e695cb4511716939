"""Live objects that a Python worker keeps between micro-batches, so that state need not be read and decoded again.

Invariants:
1. An entry is filed under the tag of the state that was written when it was filed. Tags are unique to the attempt
   that wrote them, so an entry whose tag is the committed one equals the committed state; any other is never used.
2. `take` removes the entry: the caller that changes it holds it alone, and a failed attempt leaves nothing behind.
3. A query touches every bucket in every micro-batch, so an entry of a batch before the last is dead and is dropped.

Spark may send a bucket to another worker at any time; that worker then has no entry and restores from the state.

A worker collects garbage after every task. Each time it would visit all objects that the kernels have loaded, which
takes longer than a small task itself. So once, when most kernels are loaded, `_settle` freezes all objects: the
collector then skips them. Live objects must not be frozen, since they could never be collected: they are dropped
before, and restored afterwards.
"""

from __future__ import annotations

import gc
from typing import Generic, NamedTuple, TypeVar

Live = TypeVar("Live")

SETTLED_AFTER = 8
"""Buckets and micro-batches that a worker has seen by the time that most kernels are loaded."""


class _Entry(NamedTuple, Generic[Live]):
    query: str
    batch: int
    live: Live


class LiveObjects(Generic[Live]):
    """
    >>> cache = LiveObjects[str]()
    >>> cache.put("tag-1", query="q", batch=7, live="the object")
    >>> cache.take("tag-1"), cache.take("tag-1")
    ('the object', None)
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry[Live]] = {}
        self._takes = 0

    def take(self, tag: str) -> Live | None:
        self._takes += 1
        if self._takes == SETTLED_AFTER:
            self._settle()
        entry = self._entries.pop(tag, None)
        return entry.live if entry else None

    def put(self, tag: str, *, query: str, batch: int, live: Live) -> None:
        self._entries = {
            known: entry
            for known, entry in self._entries.items()
            if entry.query != query or batch - 1 <= entry.batch <= batch
        }
        self._entries[tag] = _Entry(query, batch, live)

    def _settle(self) -> None:
        self._entries.clear()
        gc.collect()
        gc.freeze()

    def __len__(self) -> int:
        return len(self._entries)
