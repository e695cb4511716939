"""Ctrl-C as a wish that a run can grant in its own time."""

from __future__ import annotations

import signal
from types import FrameType


class Interrupt:
    """Turns the first Ctrl-C (or SIGTERM) into a wish to stop; the second one ends at once."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Interrupt:
        self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
