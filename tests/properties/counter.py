"""Counts what the property tests did, for the line that pytest prints at the end."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.oracle import Outcome


@dataclass
class Counter:
    cases: int = 0
    evaluations: int = 0
    rows: int = 0
    late: int = 0

    def add(self, outcome: Outcome) -> None:
        self.cases += 1
        self.evaluations += outcome.evaluations
        self.rows += len(outcome.rows)
        self.late += len(outcome.late)

    def merge(self, other: dict[str, int]) -> None:
        """Takes in what a parallel worker counted."""
        for name, count in other.items():
            setattr(self, name, getattr(self, name) + count)

    def __str__(self) -> str:
        return (
            f"properties: {self.cases:,} generated cases equal the oracle bit for bit "
            f"({self.evaluations:,} evaluations, {self.rows:,} result rows, {self.late:,} late events)"
        )


COUNTER = Counter()
