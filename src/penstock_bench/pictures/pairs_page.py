"""The page of a Pairs validation: the counts of both streams, and the answers that are not correct."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from penstock_bench.measure.report.document import Block, Document, Figure, Notes, Paragraph, Section, Table, Tiles
from penstock_bench.measure.report.html import html
from penstock_bench.pictures.pairs import bands_picture
from penstock_bench.workloads.pairs.answers import TOLERANCE, Report, StreamReport
from penstock_bench.workloads.pairs.strategies import Strategy
from penstock_bench.workloads.pairs.validator import Answers

MOST_ROWS: Final = 1000
_PICTURES = 3
_KEYS = {"strategy", "type", "inputTickTS"}


def validation_page(report: Report, expected: Answers, strategies: Sequence[Strategy], about: str) -> str:
    """One HTML file that needs no other; `about` says what was validated."""
    streams = (report.indicators, report.orders)
    tiles = [("result", "passed" if report.passed else "failed", about)]
    for part in streams:
        tiles.append((f"correct {part.name.lower()}", f"{part.correct:,}", f"of {part.expected:,} expected"))
    tiles.append(("not correct", f"{report.bad_answers:,}", "missing, undue or wrong"))
    document = Document("Pairs: validation", [Tiles(tiles), *_doubts(report)])
    document.sections.append(Section("Answers", [_counts(streams)]))
    for part in reversed(streams):
        document.sections.extend(_sections(part))
    document.sections.extend(_pictures(report, expected, strategies))
    return html(document)


def _doubts(report: Report) -> list[Block]:
    if report.closest >= 1e-9:
        return []
    return [
        Notes(
            [
                f"A ratio came as near as {report.closest:.1g} (relative) to its band. A system that rounds otherwise "
                "than the validator may see a cross there where it sees none."
            ]
        )
    ]


def _counts(streams: Sequence[StreamReport]) -> Table:
    headings = ["stream", "validator answers", "SUT answers", "correct", "missing", "undue", "wrong"]
    rows = [
        [part.name, *(f"{n:,}" for n in (part.expected, part.given, part.correct)), *_bad(part)] for part in streams
    ]
    return Table(headings, rows)


def _bad(part: StreamReport) -> list[str]:
    return [f"{table.num_rows:,}" for table in (part.missing, part.undue, part.wrong)]


def _sections(part: StreamReport) -> list[Section]:
    named = (
        ("wrong", part.wrong, "Both have them, with different values: val_ is the validator's, sut_ the system's."),
        ("missing", part.missing, "The validator expects them, and the system did not give them."),
        ("undue", part.undue, "The system gave them, and the validator does not expect them."),
    )
    sections = []
    for kind, table, meaning in named:
        if table.num_rows:
            blocks: list[Block] = [Paragraph(meaning)]
            if table.num_rows > MOST_ROWS:
                blocks.append(Paragraph(f"These are the first {MOST_ROWS:,} of {table.num_rows:,}."))
            sections.append(Section(f"{part.name}: {kind}", [*blocks, _rows(table.slice(0, MOST_ROWS))]))
    return sections


def _rows(table: pa.Table) -> Table:
    values = [name.removeprefix("val_") for name in table.column_names if name.startswith("val_")]
    rows = []
    for row in table.to_pylist():
        cells = ["" if value is None else str(value) for value in row.values()]
        if values:
            cells.append(", ".join(name for name in values if _differ(row[f"val_{name}"], row[f"sut_{name}"])))
        rows.append(cells)
    headings = [*table.column_names, *(["differs"] if values else [])]
    return Table(headings, rows, names=sum(name in _KEYS for name in table.column_names) - 1)


def _differ(mine: object, theirs: object) -> bool:
    if isinstance(mine, float) and isinstance(theirs, float):
        return not math.isclose(mine, theirs, rel_tol=TOLERANCE)
    return mine != theirs


def _pictures(report: Report, expected: Answers, strategies: Sequence[Strategy]) -> list[Section]:
    """Of the first strategies with orders that are not correct."""
    bad = [part["strategy"] for part in (report.orders.wrong, report.orders.missing, report.orders.undue)]
    aliases = list(dict.fromkeys(name for column in bad for name in column.to_pylist()))
    known = {strategy.alias: strategy for strategy in strategies}
    with_indicators = set(expected.indicators["strategy"].to_pylist()) if aliases else set()
    shown = [alias for alias in aliases if alias in known and alias in with_indicators][:_PICTURES]
    figures: list[Block] = [
        Figure(alias, bands_picture(known[alias], expected), f"What the validator expects of {alias}.")
        for alias in shown
    ]
    return [Section("Strategies with such orders", figures)] if figures else []
