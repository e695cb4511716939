"""The memory that a piece of work adds to the process, at its peak.

Linux keeps the peak itself and can be told to begin anew; elsewhere the size at the end stands in for it.
"""

from __future__ import annotations

from pathlib import Path

import psutil

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def peak_of_process() -> int:
    """Bytes that the process has taken at most since it began, or since a `PeakMemory` was made."""
    size = int(psutil.Process().memory_info().rss)
    if _STATUS.exists():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        size = max(size, int(line.split()[1]) * 1024)
    return size


class PeakMemory:
    """Begins to count where it is made."""

    def __init__(self) -> None:
        try:
            _CLEAR.write_text("5")
        except OSError:
            self._tracked = False
        else:
            self._tracked = True
        self._before = int(psutil.Process().memory_info().rss)

    @property
    def added(self) -> int:
        """Bytes by which the process has been larger than at the beginning."""
        size = peak_of_process() if self._tracked else int(psutil.Process().memory_info().rss)
        return max(0, size - self._before)
