"""Shards that are too large for the memory are divided. Logs that have the same shards are divided together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.errors import BudgetError
from penstock.operators.paged.log import RowLog, are_divisible


class TooLarge(Exception):
    """A shard takes more memory than it should."""


def divide_together(logs: Sequence[RowLog], number: int, indivisible: set[int]) -> int | None:
    """The number of the shard that may get a part of the rows of a shard in each log. None if all of them have the same
    hash: the shard is `indivisible` then. Nothing is staged."""
    if not are_divisible(logs, number):
        indivisible.add(number)
        return None
    indivisible.discard(number)
    others = [log.divide(number) for log in logs]
    return others[0]


def to_play_instead(number: int, indivisible: set[int], divide: Callable[[int], int | None]) -> tuple[int, ...]:
    """The shards to play in place of one that took too much memory: its parts or, if it cannot be divided, the shard
    once more, which may take what there is. None if that was so already."""
    had_to_fit = number in indivisible
    other = divide(number)
    if other is not None:
        return number, other
    return () if had_to_fit else (number,)


def visit(
    log: RowLog, number: int, indivisible: set[int], play: Callable[[int], None], undo: Callable[[], None] | None = None
) -> None:
    """Plays a shard. If that takes too much memory, it is undone, and what there is instead of it is played."""
    try:
        play(number)
        return
    except (BudgetError, TooLarge):
        if undo is not None:
            undo()
        parts = to_play_instead(number, indivisible, lambda shard: divide_together([log], shard, indivisible))
        if not parts:
            raise
    for part in parts:
        visit(log, part, indivisible, play, undo)
