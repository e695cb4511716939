"""What a window costs: the space of one window (1W) or two-level aggregation (2LA), and the I/O of SlideM and SSM.

The formulas carry the numbers they have in "Overcoming Memory Limitations in High-Throughput Event-Based Applications".
All sizes are bytes, all durations seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """What the stream is like: events per second (λ), groups seen within one slide (g) and within the window (G)."""

    rate: float = 1000.0
    groups_in_slide: int = 1000
    groups: int = 10_000


def space_two_level(
    workload: Workload, *, aggregates: int, window: float, slide: float, state: int, partial: int
) -> float:
    """Formula 2.1: N · [g · (s' + W·t_agg/U) + G·s].

    >>> call_centre = Workload(rate=1000, groups_in_slide=1000, groups=10_000)
    >>> two_level = space_two_level(call_centre, aggregates=104, window=86400, slide=10, state=16, partial=20)
    >>> f"{two_level / 2**30:.2f} GiB"
    '16.75 GiB'
    """
    per_group = state + window * partial / slide
    return aggregates * (workload.groups_in_slide * per_group + workload.groups * state)


def space_one_window(workload: Workload, *, aggregates: int, window: float, row: int, state: int) -> float:
    """Formula 2.2: λ·W·t + N·G·s.

    >>> call_centre = Workload(rate=1000, groups=10_000)
    >>> one_window = space_one_window(call_centre, aggregates=144, window=86400, row=94, state=16)
    >>> f"{one_window / 2**30:.2f} GiB"
    '7.59 GiB'
    """
    return workload.rate * window * row + aggregates * workload.groups * state


def iops(rate: float, *, block_size: int, row: int) -> float:
    """Formula 3.1: 2·λ / ⌊block_size / tuple_size⌋.

    >>> f"{iops(1000, block_size=64 * 1024, row=94):.1f}"
    '2.9'
    """
    return 2 * rate / max(1, block_size // max(1, row))


def io_bandwidth(rate: float, *, block_size: int, row: int) -> float:
    """Formula 3.2: IOPS · block_size, in bytes per second.

    >>> f"{io_bandwidth(1000, block_size=64 * 1024, row=94) / 2**20:.2f} MiB/s"
    '0.18 MiB/s'
    """
    return iops(rate, block_size=block_size, row=row) * block_size


def shared_io(windows: int, hit_rate: float) -> float:
    """Formula 4.1: W + (1-ρ)·[(N-1)·(R+W) + R], the requests of windows that share a store for each block that arrives.

    Without any hit it is what SlideM needs for as many windows apart, and when every block is found, one write. It is
    the most there can be: a block that is on disk is not written again, and one that never leaves memory not at all.

    >>> shared_io(32, 0.0), shared_io(32, 1.0)
    (64.0, 1.0)
    """
    return 1 + (1 - hit_rate) * (2 * (windows - 1) + 1)


def hit_rate(resident: Sequence[float], blocks: Sequence[float]) -> float:
    """Formula 4.2: (1/N)·Σ B_i/S_i, for windows of which the i-th finds B_i of the S_i blocks before it in memory.

    >>> hit_rate([50, 100], [100, 100])
    0.75
    """
    return sum(held / total for held, total in zip(resident, blocks, strict=True)) / len(blocks)


def segments(windows: Sequence[float]) -> list[float]:
    """What lies between windows that end at the same time and begin before it by these lengths, the newest first.

    >>> segments([7200, 3600, 5400])
    [3600, 1800, 1800]
    """
    ends = sorted(set(windows))
    return [end - before for before, end in zip([0, *ends], ends, strict=False)]


def resident_blocks(blocks: Sequence[float], memory_blocks: float) -> list[float]:
    """The B_i of formula 4.2 when the block goes whose next reference is farthest: a block of a short segment is needed
    again before one of a longer segment is, so short segments are in memory as a whole.

    >>> resident_blocks([100, 20, 30], 80)
    [30, 20, 30]
    """
    held: list[float] = [0] * len(blocks)
    left = memory_blocks
    for at in sorted(range(len(blocks)), key=lambda i: blocks[i]):
        held[at] = min(blocks[at], left)
        left -= held[at]
    return held
