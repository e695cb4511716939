"""What `happenings.jsonl` tells about a run: how it ended, when it was paused, what was noted, what its processes said
last. A line that lacks what is looked for says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ENDS = ("done", "stopped", "failed")


class Happened:
    def __init__(self, happenings: Sequence[dict[str, Any]]) -> None:
        self._happenings = happenings

    @property
    def state(self) -> str | None:
        """The end of the run; None if it has none, because it still runs or was killed."""
        ends = [one["state"] for one in self._happenings if one.get("state") in ENDS]
        return ends[-1] if ends else None

    @property
    def notes(self) -> list[str]:
        """What was noted, and why the run failed."""
        told = [one.get({"note": "text", "error": "error"}.get(one.get("what", ""), "")) for one in self._happenings]
        return list(dict.fromkeys(text for text in told if isinstance(text, str)))

    @property
    def finished_ns(self) -> int:
        """When the system had worked off all events; 0 if it did not say so."""
        return max((int(one["finished_ns"]) for one in self._happenings if "finished_ns" in one), default=0)

    @property
    def unsent(self) -> int:
        """Events that were due when drivers ended and had not been sent, as far as these have said it."""
        return sum(
            max(0, one["due"] - one.get("sent", 0)) for one in self._happenings if isinstance(one.get("due"), int)
        )

    def paused_ns(self, begin: int, end: int) -> int:
        """How much of a stretch of time the run was paused."""
        total, since = 0, None
        for one in [*self._happenings, {"state": "over", "at_ns": end}]:
            if "state" not in one or not isinstance(one.get("at_ns"), int):
                continue
            moment = min(max(one["at_ns"], begin), end)
            if since is not None:
                total += moment - since
            since = moment if one["state"] == "paused" else None
        return total
