"""Properties of the engine's stores, derived from the plan: users do not set them.

Rows of a stream do not expire by themselves; the windows over them say which are needed. A window over the stream is
done with its oldest rows first. A partition or session is done with its own rows, wherever they lie among those of the
others. A landmark is never done.

    windows over a stream        Never Expire, Ordered Consume   FIFO, sequential; shared by several
    windows per partition        Never Expire, Eager Consume     RANDOM, random: in the order of the partitions
    a landmark                   Never Expire, Never Consume     NO-UPDATE
    panes of windows             Ordered Expire                  FIFO, sequential
    rows that wait for earlier   Never Expire, Eager Consume     RANDOM, sequential: in the order of their times
    a table                      Replaced Expire, Never Consume  IN-PLACE, random: by key; shared by its queries

Called by `operators.resources`, for `StoreManager.create`.

Why: docs/decisions/stores-from-properties.md
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.plan.nodes import AggregateNode, RelationNode
from penstock.store.properties import Properties, ReadPattern, Sharing
from penstock.store.update_patterns import Consumption, Expiry, update_pattern

Window = AggregateNode | RelationNode


def consumption_of(window: Window) -> Consumption:
    """How a window is done with the rows of its stream."""
    if window.partition_by or window.window.extent.closes:
        return Consumption.EAGER
    if window.window.extent.since is not None:
        return Consumption.NEVER
    return Consumption.ORDERED


def read_pattern_of(window: Window) -> ReadPattern:
    """In which order a window reads its rows again when they leave."""
    return ReadPattern.RANDOM if consumption_of(window) is Consumption.EAGER else ReadPattern.SEQUENTIAL


def stored_rows(windows: Sequence[Window]) -> Properties:
    """Of the rows of a stream, for the windows over them."""
    return Properties(
        read=tuple(dict.fromkeys(read_pattern_of(window) for window in windows)),
        update=update_pattern(Expiry.NEVER, [consumption_of(window) for window in windows]),
        sharing=Sharing.SHARED if len(windows) > 1 else Sharing.NOT_SHARED,
    )


def joined_rows() -> Properties:
    """Of the rows of one side of a join: they leave in order, and rows of other sides find them anywhere."""
    update = update_pattern(Expiry.NEVER, [Consumption.ORDERED])
    return Properties(read=(ReadPattern.RANDOM,), update=update)


def panes() -> Properties:
    """Of the panes that windows are made of: each is outdated when the longest window has passed it."""
    update = update_pattern(Expiry.ORDERED, [Consumption.ORDERED])
    return Properties(read=(ReadPattern.SEQUENTIAL,), update=update, sharing=Sharing.SHARED)


def reordering() -> Properties:
    """Of rows that came too early: they leave in the order of their times, from the middle of what came."""
    return Properties(read=(ReadPattern.SEQUENTIAL,), update=update_pattern(Expiry.NEVER, [Consumption.EAGER]))


def table_rows() -> Properties:
    """Of the rows of a table: a new one takes the place of the one with its key, and any may be asked for."""
    update = update_pattern(Expiry.REPLACED, [Consumption.NEVER])
    return Properties(read=(ReadPattern.RANDOM,), update=update, sharing=Sharing.SHARED)
