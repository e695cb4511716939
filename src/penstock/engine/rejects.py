"""Rows that could not be computed: the last of them are kept, and subscribers get all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

KEPT = 10_000


class Rejects:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        """Each with its reason."""
        self.count = 0
        self._subscribers: list[Callable[[str, dict[str, Any]], None]] = []

    def add(self, reason: str, row: dict[str, Any]) -> None:
        self.count += 1
        for callback in self._subscribers:
            callback(reason, row)
        if len(self.rows) >= KEPT:
            del self.rows[: KEPT // 2]
        self.rows.append({"reason": reason, "row": row})

    def subscribe(self, callback: Callable[[str, dict[str, Any]], None]) -> None:
        self._subscribers.append(callback)
