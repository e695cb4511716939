"""What a person sees of a bench while it runs: lines of progress and tables, on standard error."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


class Report:
    def __init__(self, title: str, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False, quiet=quiet)
        self._began = time.perf_counter()
        self._console.print(f"[bold]{title}[/bold]")

    def step(self, text: str) -> None:
        """One line about what happens now."""
        self._console.print(f"[dim]{time.perf_counter() - self._began:6.1f} s[/dim]  {text}")

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """The figures; numbers are aligned to the right."""
        table = Table()
        for place, heading in enumerate(headings):
            table.add_column(heading, justify="left" if place == 0 else "right")
        for row in rows:
            table.add_row(*[_shown(cell) for cell in row])
        self._console.print(table)


def _shown(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:,.3g}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
