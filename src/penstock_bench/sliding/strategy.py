"""What a strategy offers, whether it works on groups of equal slides or wraps another one."""

from __future__ import annotations

from typing import Protocol

from penstock.arrays import Int64s
from penstock.instruments import Candidates, Work


class SlidingStrategy(Protocol):
    """Names the queries that are due. `position` is that of the last call, at first where the strategy starts."""

    @property
    def position(self) -> int: ...

    @property
    def work(self) -> Work: ...

    def register(self, query: int, slide: int) -> None:
        """From the next position on the query is a candidate wherever the slide divides the position."""
        ...

    def register_many(self, queries: Int64s, slides: Int64s) -> None: ...

    def remove(self, query: int) -> None: ...

    def candidates(self, upto: int) -> Candidates:
        """Who is due at the positions after the last call's, up to and including this one."""
        ...
