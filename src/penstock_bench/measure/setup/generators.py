"""What the fields of made events hold: one model for each way to make values."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from penstock_bench.measure.setup.strict import Strict

Scalar = bool | int | float | str


class Sequential(Strict):
    """Counts up: the first event of a driver has `start`, each next one `step` more; wraps after `limit` values."""

    generator: Literal["sequential"]
    start: int = 1
    step: int = 1
    limit: int | None = Field(None, gt=0, description="begins again after this many values")


class Uniform(Strict):
    """Evenly spread from `min` to `max`: integers with both ends, other numbers without `max`."""

    generator: Literal["uniform"]
    min: float
    max: float

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if self.max < self.min:
            raise ValueError(f"max = {self.max:g} is below min = {self.min:g}")
        return self


class Normal(Strict):
    """The bell curve."""

    generator: Literal["normal"]
    mean: float
    stdev: float = Field(ge=0)


class Zipf(Strict):
    """Whole numbers 1…`count`: the k-th as often as 1/k**`exponent`."""

    generator: Literal["zipf"]
    count: int = Field(gt=0)
    exponent: float = Field(1.0, ge=0)


class RandomWalk(Strict):
    """Each value differs from the one before by a normal step; `min` and `max` hold it back."""

    generator: Literal["random walk"]
    start: float = 100.0
    step: float = Field(1.0, ge=0, description="standard deviation of a step")
    min: float | None = None
    max: float | None = None


class Constant(Strict):
    """Always the same."""

    generator: Literal["constant"]
    value: Scalar


class Listed(Strict):
    """One of `values`, each equally often or by `weights`."""

    generator: Literal["list"]
    values: tuple[Scalar, ...] = Field(min_length=1)
    weights: tuple[float, ...] | None = None

    @model_validator(mode="after")
    def _as_many(self) -> Listed:
        if self.weights is not None and len(self.weights) != len(self.values):
            raise ValueError(f"{len(self.values)} values have {len(self.weights)} weights")
        if self.weights is not None and (min(self.weights) < 0 or sum(self.weights) <= 0):
            raise ValueError("weights must not be negative, nor all zero")
        return self


Generator = Annotated[
    Sequential | Uniform | Normal | Zipf | RandomWalk | Constant | Listed, Field(discriminator="generator")
]
