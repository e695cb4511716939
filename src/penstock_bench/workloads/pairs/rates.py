"""The input rate of a Pairs run over time, and the times of arrivals that follow it.

The curve is straight between its corners: from zero up to the peak, down to the basis, up and down again (the
measurement interval), and up to the peak. Arrival number s, counted on the scale of expected arrivals, happens where
the integral of the rate reaches s. So arrivals at s = 0, 1, 2 … are evenly spread, and those at the sums of
exponential variables are a Poisson process with this rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.arrays import Floats
from penstock.errors import InputError

RAMP_UP, BEFORE, HALF_OF_MEASUREMENT, AFTER = 60.0, 1800.0, 1800.0, 1800.0
"""The phases of a run in seconds; the measurement interval has two halves."""
FULL_RUN = RAMP_UP + BEFORE + 2 * HALF_OF_MEASUREMENT + AFTER
PEAK_TO_BASIS = 1.5


@dataclass(frozen=True)
class RateCurve:
    """Ticks a second: `basis`, and `peak` where `varying`; `shortened` multiplies the length of every phase."""

    basis: float
    peak: float
    shortened: float = 1.0
    varying: bool = True

    def __post_init__(self) -> None:
        if not (self.basis > 0 and self.peak >= self.basis and np.isfinite(self.peak)):
            raise InputError(
                f"the basis rate is {self.basis:g} ticks a second and the peak {self.peak:g}: "
                f"the basis must be above 0, and the peak not below it"
            )
        if not (0 < self.shortened <= 1000):
            raise InputError(f"phases cannot be multiplied by {self.shortened:g}: write a factor above 0, such as 0.1")

    @property
    def seconds(self) -> float:
        return FULL_RUN * self.shortened

    @property
    def measurement(self) -> tuple[float, float]:
        """When the measurement interval begins and ends, in seconds from the start of the run."""
        start = (RAMP_UP + BEFORE) * self.shortened
        return start, start + 2 * HALF_OF_MEASUREMENT * self.shortened

    @cached_property
    def corners(self) -> tuple[Floats, Floats]:
        """The times in seconds and the rates between which the curve is straight."""
        if not self.varying:
            return np.array([0.0, self.seconds]), np.array([self.basis, self.basis])
        phases = np.array([0.0, RAMP_UP, BEFORE, HALF_OF_MEASUREMENT, HALF_OF_MEASUREMENT, AFTER])
        rates = np.array([0.0, self.peak, self.basis, self.peak, self.basis, self.peak])
        return np.cumsum(phases) * self.shortened, rates

    @cached_property
    def _expected(self) -> Floats:
        """How many arrivals are expected up to each corner."""
        times, rates = self.corners
        return np.concatenate(([0.0], np.cumsum(np.diff(times) * (rates[1:] + rates[:-1]) / 2)))

    @property
    def expected_ticks(self) -> float:
        return float(self._expected[-1])

    def rate(self, seconds: Floats) -> Floats:
        times, rates = self.corners
        return np.interp(seconds, times, rates)

    def times(self, arrivals: Floats) -> Floats:
        """The seconds at which the expected number of arrivals reaches these; none is beyond `expected_ticks`."""
        times, rates = self.corners
        segment = np.minimum(np.searchsorted(self._expected, arrivals, side="right"), len(times) - 1) - 1
        within = arrivals - self._expected[segment]
        first = rates[segment]
        slope = (np.diff(rates) / np.diff(times))[segment]
        # The root of first·x + slope·x²/2 = within, in the form that loses no digits where the slope is small.
        root = np.sqrt(np.maximum(first * first + 2 * slope * within, 0.0))
        denominator = first + root
        passed = np.divide(2 * within, denominator, out=np.zeros_like(within), where=denominator > 0)
        seconds: Floats = times[segment] + passed
        return seconds
