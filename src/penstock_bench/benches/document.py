"""Puts the figures of all benches into a document, between its marks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock.errors import InputError
from penstock_bench.benches import NAMES, SERIES

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def write(document: Path, *, quick: bool) -> None:
    """Runs every bench in a process of its own, so that none meets what another left behind."""
    figures = []
    for name in NAMES:
        command = [sys.executable, "-m", "penstock_bench.benches", name, *(["--quick"] if quick else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        figures.append(json.loads(done.stdout.splitlines()[-1]))
    text = document.read_text(encoding="utf-8")
    document.write_text(with_figures(text, figures), encoding="utf-8")


def with_figures(text: str, benches: list[dict[str, Any]]) -> str:
    """The text with these figures in place of what stood between the marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"the document needs the lines {BEGIN} and {END}; the figures go between them")
    return f"{before}{BEGIN}\n{markdown(benches)}\n{END}{after}"


def markdown(benches: list[dict[str, Any]]) -> str:
    """The machine, and a table for each bench; what a bench measured in several variants has a table of its own.

    >>> print(markdown([{"bench": "b", "size": "tiny", "rate": 12345.6, "machine": {"cpu": "c", "cores": 2}}]))
    Machine: cpu c; cores 2.
    <BLANKLINE>
    ### b (tiny)
    <BLANKLINE>
    | figure | value |
    |---|---|
    | `rate` | 12,346 |
    """
    machine = benches[0]["machine"]
    parts = ["Machine: " + "; ".join(f"{name} {_shown(value)}" for name, value in machine.items()) + "."]
    for bench in benches:
        parts.append(f"### {bench['bench']} ({bench['size']})")
        rest = {name: value for name, value in bench.items() if name not in ("bench", "size", "machine", SERIES)}
        single = {name: value for name, value in rest.items() if not _is_table(value)}
        parts.append(_table(["figure", "value"], [[f"`{name}`", value] for name, value in single.items()]))
        for name, rows in rest.items():
            if _is_table(rows) and rows:
                headings = list(dict.fromkeys(key for row in rows for key in row))
                parts.append(f"`{name}`:")
                parts.append(_table(headings, [[row.get(key, "") for key in headings] for row in rows]))
    return "\n\n".join(parts)


def _is_table(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def _table(headings: list[str], rows: list[list[Any]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return "\n".join(lines + ["| " + " | ".join(_shown(cell) for cell in row) + " |" for row in rows])


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(each)}" for name, each in value.items())
    if isinstance(value, list):
        return "; ".join(map(_shown, value))
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
