"""Reports as files: `report.html`, which has all in it, and `report.md` with its figures beside."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import InputError
from penstock_bench.measure.report.document import Document
from penstock_bench.measure.report.html import html
from penstock_bench.measure.report.markdown import FIGURES, markdown
from penstock_bench.measure.report.run_report import run_report
from penstock_bench.measure.report.sweep_report import sweep_report


def report(directory: Path) -> Document:
    """Of a run, of a sweep, or of all runs that a directory holds."""
    if not directory.is_dir():
        raise InputError(f"{directory}: there is no such directory; give that of a run or of a sweep")
    if (directory / "setup.json").is_file():
        return run_report(directory)
    return sweep_report(directory)


def write_report(directory: Path, output: Path | None = None) -> list[Path]:
    """Writes the report, by default where the runs are; returns the HTML file, the Markdown file and the figures."""
    document = report(directory)
    output = output or directory
    try:
        (output / FIGURES).mkdir(parents=True, exist_ok=True)
        written = {output / "report.html": html(document), output / "report.md": markdown(document)}
        written |= {output / FIGURES / f"{figure.name}.svg": figure.svg for figure in document.figures()}
        for path, text in written.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{output}: the report cannot be written: {error.strerror}") from None
    return list(written)
