"""Logs that have the same shards are divided together."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.operators.paged.log import RowLog, are_divisible


def divide_together(logs: Sequence[RowLog], number: int, indivisible: set[int]) -> int | None:
    """The number of the shard that may get a part of the rows of a shard in each log. None if all of them have the same
    hash: the shard is `indivisible` then. Nothing is staged."""
    if not are_divisible(logs, number):
        indivisible.add(number)
        return None
    indivisible.discard(number)
    others = [log.divide(number) for log in logs]
    return others[0]
