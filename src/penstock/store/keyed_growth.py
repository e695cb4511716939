"""How a keyed store grows: by an eighth, or into twice as many partitions; and what that takes at most."""

from __future__ import annotations

from collections.abc import Sequence

MOST_BITS = 16

_DEVIATIONS = 5
"""Of all partitions that there can be, hardly one has so many deviations more rows than the mean."""


def slots(capacity: int) -> int:
    """Entries of a partition's index: three quarters of them full at most."""
    return capacity * 4 // 3 + 2


def fullest(rows: float, bits: int) -> int:
    """About the rows of the fullest partition, if there are so many in all."""
    mean = rows / (1 << bits)
    return int(mean + (_DEVIATIONS * mean**0.5 if bits else 0))


def grown(capacity: int) -> int:
    """The next larger capacity of a partition."""
    return 2 * capacity if capacity < 4096 else capacity + capacity // 8


def splits(wanted: int, bits: int, partition_rows: int) -> bool:
    """Whether partitions are split before they become so large."""
    return wanted * 5 > partition_rows * 6 and bits < MOST_BITS


def held(bits: int, capacity: int, widths: Sequence[int], masks: int) -> int:
    """The bytes of arrays of such a shape, of which the key is the first."""
    return (capacity << bits) * (sum(widths) + masks) + (4 * (slots(capacity) + 1) << bits)


def peak(rows: int, bits: int, capacity: int, widths: Sequence[int], masks: int, partition_rows: int) -> int:
    """The most bytes that a store of this shape asks for until there are so many rows; 0 if it need not grow."""
    most = 0
    while fullest(rows, bits) > capacity:
        copied, besides = max(widths) * capacity << bits, 0
        if splits(grown(capacity), bits, partition_rows):
            capacity = fullest(capacity << bits, bits + 1) * 9 // 8 + 16
            bits += 1
            besides = 4 * rows + (2 * capacity << bits) * widths[0]
        else:
            capacity = grown(capacity)
        most = max(most, held(bits, capacity, widths, masks) + copied + besides)
    return most
