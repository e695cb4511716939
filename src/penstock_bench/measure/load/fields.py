"""Values of made fields: each generator of a setup as an Arrow column of its SQL type, a stretch at a time.

Invariants:
1. A column depends on its generator, its type, its seed and the share alone, not on how it is cut into stretches.
2. Sequences of several copies of a driver are one sequence, dealt out in turns: no two copies make the same number
   (but where `limit` says so).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.errors import InputError
from penstock.types import SqlType
from penstock_bench.measure.load.share import Share
from penstock_bench.measure.setup.generators import (
    Constant,
    Generator,
    Listed,
    Normal,
    RandomWalk,
    Scalar,
    Sequential,
    Uniform,
    Zipf,
)

Numbers = NDArray[np.int64] | NDArray[np.float64]
Make = Callable[[int], pa.Array]
"""The next so many values."""


class Fields:
    """The columns of one stream or table."""

    def __init__(
        self, columns: Mapping[str, SqlType], fields: Mapping[str, Generator], share: Share, seed: int, where: str
    ) -> None:
        self._makers = {}
        self._where = where
        for name, kind in columns.items():
            random = share.random(seed, zlib.crc32(f"{where}.{name}".encode()))
            with self._told(name):
                self._makers[name] = maker(fields[name], kind, share, random)

    def take(self, count: int) -> dict[str, pa.Array]:
        made = {}
        for name, make in self._makers.items():
            with self._told(name):
                made[name] = make(count)
        return made

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowInvalid, OverflowError) as error:
            raise InputError(f"{self._where}.{name}: a value does not fit its column: {error}") from None


def maker(generator: Generator, kind: SqlType, share: Share, random: np.random.Generator) -> Make:
    """What makes the values of one column."""
    if isinstance(generator, Constant):
        value = values_of([generator.value], kind)
        return lambda count: value.take(pa.array(np.zeros(count, np.int8)))
    if isinstance(generator, Listed):
        values = values_of(generator.values, kind)
        picked = _picks(generator.weights or (1.0,) * len(values), random)
        return lambda count: values.take(pa.array(picked(count)))
    numbers = _numbers(generator, kind, share, random)
    return lambda count: column_of(numbers(count), kind)


def values_of(values: Sequence[Scalar], kind: SqlType) -> pa.Array:
    """Values as a setup writes them: dates and times are text, a time may be a number of microseconds."""
    if kind is SqlType.TIMESTAMP and not isinstance(values[0], str):
        return pa.array([int(value) for value in values], pa.int64()).cast(kind.arrow)
    if kind is SqlType.TIMESTAMP:
        text = pa.array(values, pa.string())
        try:
            return text.cast(kind.arrow)
        except pa.ArrowInvalid:
            return text.cast(pa.timestamp("us")).cast(pa.int64()).cast(kind.arrow)
    if kind is SqlType.DATE:
        return pa.array(values, pa.string()).cast(kind.arrow)
    return pa.array([int(value) for value in values] if kind.is_integer else values, kind.arrow)


def column_of(numbers: Numbers, kind: SqlType) -> pa.Array:
    """Numbers as a column: rounded for whole numbers, as text for STRING, as microseconds for TIMESTAMP."""
    if kind.is_floating:
        return pa.array(numbers.astype(kind.storage, copy=False))
    whole = numbers if numbers.dtype.kind == "i" else np.rint(numbers).astype(np.int64)
    column = pa.array(whole)
    return column if kind is SqlType.BIGINT else pc.cast(column, kind.arrow)


def _numbers(
    generator: Sequential | Uniform | Normal | Zipf | RandomWalk,
    kind: SqlType,
    share: Share,
    random: np.random.Generator,
) -> Callable[[int], Numbers]:
    if isinstance(generator, Sequential):
        return _Sequence(generator, share).take
    if isinstance(generator, Zipf):
        picked = _picks(1.0 / np.arange(1, generator.count + 1, dtype=np.float64) ** generator.exponent, random)
        return lambda count: picked(count) + 1
    if isinstance(generator, Normal):
        return lambda count: random.normal(generator.mean, generator.stdev, count)
    if isinstance(generator, RandomWalk):
        return _Walk(generator, random).take
    low, high = generator.min, generator.max
    if kind.is_floating:
        return lambda count: random.uniform(low, high, count)
    first, last = int(np.ceil(low)), int(np.floor(high))
    if last < first:
        raise InputError(f"uniform from {low:g} to {high:g}: there is no whole number between")
    return lambda count: random.integers(first, last, count, np.int64, endpoint=True)


def _picks(weights: Sequence[float] | NDArray[np.float64], random: np.random.Generator) -> Callable[[int], Numbers]:
    """Indices, each as often as its weight says: exact, by looking up an even number among the sums of the weights."""
    sums = np.cumsum(np.asarray(weights, np.float64))
    sums /= sums[-1]
    last = int(np.flatnonzero(np.asarray(weights))[-1])
    return lambda count: np.minimum(np.searchsorted(sums, random.random(count), side="right"), last)


class _Sequence:
    def __init__(self, generator: Sequential, share: Share) -> None:
        self._generator = generator
        self._share = share
        self._given = 0

    def take(self, count: int) -> Numbers:
        places = np.arange(self._given, self._given + count) * self._share.copies + self._share.copy
        self._given += count
        if self._generator.limit is not None:
            places %= self._generator.limit
        return places * self._generator.step + self._generator.start


class _Walk:
    """A walk that nothing holds back, folded at the bounds: a mirrored step is as likely as the step."""

    def __init__(self, generator: RandomWalk, random: np.random.Generator) -> None:
        self._step = generator.step
        self._low, self._high = generator.min, generator.max
        low = -np.inf if self._low is None else self._low
        high = np.inf if self._high is None else self._high
        if not low <= generator.start <= high:
            raise InputError(f"random walk: start = {generator.start:g} is not between min and max")
        self._random = random
        self._at = generator.start
        self._begun = False

    def take(self, count: int) -> Numbers:
        steps = self._random.standard_normal(count) * self._step
        if count == 0:
            return steps
        if not self._begun:
            steps[0] = 0.0
            self._begun = True
        steps[0] += self._at
        np.cumsum(steps, out=steps)
        self._at = float(steps[-1])
        return self._folded(steps)

    def _folded(self, walk: NDArray[np.float64]) -> NDArray[np.float64]:
        low, high = self._low, self._high
        if low is not None and high is not None:
            width = high - low
            if width == 0:
                return np.full(len(walk), low)
            return high - np.abs((walk - low) % (2 * width) - width)
        if low is not None:
            return low + np.abs(walk - low)
        if high is not None:
            return high - np.abs(walk - high)
        return walk
