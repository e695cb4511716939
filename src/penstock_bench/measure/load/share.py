"""Which part of a setup's load one driver process carries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock_bench.measure.setup.model import Driver, Setup


@dataclass(frozen=True)
class Share:
    """Copy `copy` of the `copies` of a driver; `number` of all `total` driver processes of the setup, in its order."""

    copy: int = 0
    copies: int = 1
    number: int = 0
    total: int = 1

    def random(self, *about: int) -> np.random.Generator:
        """Chance of this process's own, the same in every run; `about` tells apart what it is used for."""
        return np.random.default_rng([self.number, *(part % 2**64 for part in about)])

    def stamp(self, micros: int) -> int:
        """The first moment from `micros` on at which a schedule may begin: a multiple of `total`, so that the times
        of a schedule keep their remainder."""
        return -(-micros // self.total) * self.total


def share_of(setup: Setup, name: str, copy: int) -> tuple[Driver, Share]:
    """A driver of the setup and the share of its copy."""
    before = 0
    for driver in setup.drivers:
        if driver.name == name:
            return driver, Share(copy, driver.copies, before + copy, sum(d.copies for d in setup.drivers))
        before += driver.copies
    raise ValueError(f"no driver '{name}'")
