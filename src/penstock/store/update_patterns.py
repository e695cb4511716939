"""How a store is updated follows from how its producer lets items expire and how its consumers are done with them.

                      | Never Consume | Ordered Consume | Eager Consume
    Never Expire      | NO-UPDATE     | FIFO            | FIFO or RANDOM
    Ordered Expire    | FIFO          | FIFO            | FIFO or RANDOM
    Unordered Expire  | RANDOM        | RANDOM          | RANDOM
    Replaced Expire   | IN-PLACE      | IN-PLACE        | IN-PLACE

FIFO or RANDOM: with enough memory the store is FIFO, and items that were consumed early stay until all older items have
left. With little memory it is RANDOM, so that items can leave from the middle.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from penstock.errors import StorageError
from penstock.store.properties import UpdatePattern


class Expiry(Enum):
    """How the producer's items become outdated."""

    NEVER = "Never Expire"
    ORDERED = "Ordered Expire"
    """In the order they were made: the results of a moving window."""
    UNORDERED = "Unordered Expire"
    """New input says by its values which go."""
    REPLACED = "Replaced Expire"
    """A new item takes the place of an old one."""


class Consumption(Enum):
    """How a consumer is done with items."""

    NEVER = "Never Consume"
    """It may look at every item again."""
    ORDERED = "Ordered Consume"
    """Older items first: a moving window."""
    EAGER = "Eager Consume"
    """Items in the middle of its window as well, once it knows that it needs them no more."""


def combined_consumption(consumers: Collection[Consumption]) -> Consumption:
    """What all consumers of a shared store together are done with.

    >>> combined_consumption([Consumption.EAGER, Consumption.ORDERED])
    <Consumption.ORDERED: 'Ordered Consume'>
    """
    if not consumers:
        raise StorageError("a store without consumers needs no pattern; name at least one")
    if Consumption.NEVER in consumers:
        return Consumption.NEVER
    if all(consumer is Consumption.EAGER for consumer in consumers):
        return Consumption.EAGER
    return Consumption.ORDERED


def update_pattern(
    expiry: Expiry, consumers: Collection[Consumption], *, memory_to_spare: bool = False
) -> UpdatePattern:
    """The update pattern of a store between a producer and its consumers.

    >>> update_pattern(Expiry.NEVER, [Consumption.ORDERED])
    <UpdatePattern.FIFO: 'FIFO'>
    """
    consumption = combined_consumption(consumers)
    if expiry is Expiry.REPLACED:
        return UpdatePattern.IN_PLACE
    if expiry is Expiry.UNORDERED:
        return UpdatePattern.RANDOM
    if consumption is Consumption.EAGER:
        return UpdatePattern.FIFO if memory_to_spare else UpdatePattern.RANDOM
    if expiry is Expiry.NEVER and consumption is Consumption.NEVER:
        return UpdatePattern.NO_UPDATE
    return UpdatePattern.FIFO
