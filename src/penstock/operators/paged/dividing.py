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


def visit(
    logs: Sequence[RowLog],
    number: int,
    indivisible: set[int],
    play: Callable[[int], None],
    undo: Callable[[], None] = lambda: None,
) -> None:
    """Plays a shard. If that takes too much memory it is undone, the shard is divided, and both parts are played; one
    that cannot be divided is played once more, and may take what there is."""
    try:
        play(number)
        return
    except (BudgetError, TooLarge):
        undo()
        had_to_fit = number in indivisible
        other = divide_together(logs, number, indivisible)
        if other is None and had_to_fit:
            raise
    for part in (number,) if other is None else (number, other):
        visit(logs, part, indivisible, play, undo)
