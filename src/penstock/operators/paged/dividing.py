"""Logs that have the same shards are divided together."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.operators.paged.log import RowLog


def divide_together(logs: Sequence[RowLog], number: int, indivisible: set[int]) -> int | None:
    """The number of the shard that gets a part of the rows of a shard in each log. None if it got none, and from then on
    no part: the shard is added to those that are `indivisible`, as is one of two that has all the rows."""
    others = [log.divide(number) for log in logs]
    other = others[0]
    if other is None:
        indivisible.add(number)
        return None
    for part, whole in ((number, other), (other, number)):
        if not any(log.has_rows(part) for log in logs):
            indivisible.add(whole)
    return other
