"""What is known of a store of the engine before it is made: in which order its rows are read, how they leave or change,
and whether several queries read them.

The language has no word for it; `derived_properties` finds it from the plan. The defaults assume nothing.

>>> Properties().update, Properties().read
(<UpdatePattern.RANDOM: 'RANDOM'>, (<ReadPattern.RANDOM: 'random'>,))
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.errors import StorageError


class ReadPattern(Enum):
    """In which order a reader asks for items."""

    SEQUENTIAL = "sequential"
    RANDOM = "random"
    CLUSTERED = "clustered"


class UpdatePattern(Enum):
    """How items leave or change."""

    FIFO = "FIFO"
    RANDOM = "RANDOM"
    IN_PLACE = "IN-PLACE"
    NO_UPDATE = "NO-UPDATE"


class Sharing(Enum):
    NOT_SHARED = "not shared"
    SHARED = "shared"


@dataclass(frozen=True)
class Properties:
    """Frozen and comparable: equal properties make equal stores.

    `read` has the pattern of each kind of reader there will be; a reader that names none gets the first.
    """

    read: tuple[ReadPattern, ...] = (ReadPattern.RANDOM,)
    update: UpdatePattern = UpdatePattern.RANDOM
    sharing: Sharing = Sharing.NOT_SHARED

    def __post_init__(self) -> None:
        if not self.read:
            raise StorageError("a store needs at least one read pattern; leave `read` out if none is known")
