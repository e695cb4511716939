"""Logs that have the same shards are divided together."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.operators.paged.log import RowLog


def divide_together(logs: Sequence[RowLog], number: int, indivisible: set[int]) -> int | None:
    """The number of the shard that gets a part of the rows of a shard in each log; None if there can be no more shards.
    A shard that cannot be divided, and one of two that got all the rows, are added to those that are `indivisible`."""
    others = [log.divide(number) for log in logs]
    other = others[0]
    if other is None:
        indivisible.add(number)
        return None
    for part, whole in ((number, other), (other, number)):
        if not any(log.has_rows(part) for log in logs):
            indivisible.add(whole)
    return other
