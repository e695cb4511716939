"""The page "The papers, reproduced" and its figures, made from a directory of results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.errors import InputError
from penstock_bench.measure.report.charts import svg
from penstock_bench.measure.report.comparison import comparison
from penstock_bench.measure.report.document import Notes, Paragraph
from penstock_bench.measure.report.markdown import section_text
from penstock_bench.measure.report.outcomes import failures, outcomes_of
from penstock_bench.measure.reproduction.item import Item, Paper, Shown, Table, number
from penstock_bench.measure.reproduction.papers import PAPERS
from penstock_bench.measure.reproduction.results import MICRO, Results
from penstock_bench.workloads import micro

PAGE = "reproduction.md"
IMAGES = "images/reproduction"

_INTRODUCTION = """\
# The papers, reproduced

Every table and figure of the papers that Penstock's features cover: what the paper says, what we measured, and why the
two differ. This page and its figures are made by one command from results, and never by hand:

```
penstock bench all --output out/bench
penstock bench report out/bench --papers docs
```

`bench all` takes a short version of everything, `bench all --full` the long one; both go on where they were stopped.
A figure of a paper that has no numbers in its text is compared by its shape: nothing was read off a drawing. Points and
lines of a paper are dashed. A dash (–) is a number that the paper does not give or that was not measured."""


_BESIDE = "Beside other systems"
_HOW = """\
The thesis compared three engines of its time; these are the same questions to systems of today: Penstock in one \
process (embedded), Spark's own structured streaming, Esper and Flink, each asked in its own language and as it runs \
fastest that we know of. Driver, system and sink share the machine. At most points a closed loop sends events as fast \
as they are taken, so a system that is fast is partly measured by what the driver can make. A system that is not asked \
has no words for the question. The burst, which meets each system at a rate of its own, is in Table 4.5."""


def write(results: Path, docs: Path) -> Path:
    """Writes the page and its figures into a directory of documents, and removes figures that it no longer has."""
    found = Results(results)
    images = docs / IMAGES
    try:
        images.mkdir(parents=True, exist_ok=True)
        page, figures = render(found)
        for old in images.glob("*.svg"):
            if old.name not in figures:
                old.unlink()
        for name, drawn in figures.items():
            (images / name).write_text(drawn, encoding="utf-8")
        (docs / PAGE).write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{error.filename or docs}: cannot be written: {error.strerror}") from None
    return docs / PAGE


def render(results: Results) -> tuple[str, dict[str, str]]:
    """The text of the page and its figures by the names of their files."""
    figures: dict[str, str] = {}
    parts = [_INTRODUCTION, _machine(results.machine), _summary(results)]
    for paper in PAPERS:
        parts.append(f"## {paper.title}\n\n{paper.source}; measured {paper.setting}.")
        for item in paper.items:
            shown = item.shown(results)
            image = f"{paper.key}-{item.slug}.svg"
            if shown.charts:
                figures[image] = svg(*shown.charts, columns=shown.columns)
            parts.append(_section(paper, item, shown, image, results))
    parts.append(_beside(results))
    return "\n\n".join(filter(None, parts)) + "\n", figures


def _beside(results: Results) -> str:
    """The systems on the microbenchmarks, one beside the other."""
    outcomes = outcomes_of(results.micro)
    compared = comparison(outcomes)
    if compared is None:
        return ""
    blocks = [Paragraph(_HOW), *compared.blocks, Notes(failures(outcomes))]
    return section_text(replace(compared, title=_BESIDE, blocks=blocks))


def _machine(machine: Mapping[str, Any]) -> str:
    if not machine:
        return "Machine: nothing of our own benches has been measured yet."
    # What else the machine did is of one moment, and would change the page with nothing new to say.
    known = {name: value for name, value in machine.items() if name != "load"}
    return "Machine: " + "; ".join(f"{name} {_value(value)}" for name, value in known.items()) + "."


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items() if each)
    return str(value)


def _summary(results: Results) -> str:
    """What there is, paper by paper."""
    rows: list[tuple[str, int, int, str]] = []
    for paper in PAPERS:
        measured = [item for item in paper.items if item.sources]
        there = [item for item in measured if all(map(results.has, item.sources))]
        missing = sorted({s for item in measured for s in item.sources if not results.has(s)})
        link = f"[{paper.key}](#{_anchor(paper.title)})"
        rows.append((link, len(paper.items), len(there), ", ".join(f"`{source}`" for source in missing) or "none"))
    return _markdown(Table(("paper", "tables and figures", "measured in full", "results that are missing"), rows))


def _anchor(title: str) -> str:
    """As GitHub makes them.

    >>> _anchor("RS-Algo: an Algorithm – (x)")
    'rs-algo-an-algorithm--x'
    """
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def _section(paper: Paper, item: Item, shown: Shown, image: str, results: Results) -> str:
    parts = [f"### {item.name}: {item.title}"]
    if shown.charts:
        parts.append(f"![{item.name} of {paper.key}, ours]({IMAGES}/{image})")
    if shown.text:
        parts.append(shown.text)
    if shown.table is not None and shown.table.rows:
        parts.append(_markdown(shown.table))
    parts.append("\n".join(f"- {line}" for line in _remarks(item, results)))
    return "\n\n".join(parts)


def _remarks(item: Item, results: Results) -> list[str]:
    remarks = [f"**In the paper**: {item.place}. {item.stated}".rstrip()]
    there = [source for source in item.sources if results.has(source)]
    missing = [source for source in item.sources if source not in there]
    if there:
        remarks.append(f"**Made by** {', '.join(f'`{_command(source, results)}`' for source in there)}")
    busy = [source for source in there if results.was_busy(source)]
    if busy:
        remarks.append("**On a busy machine**: times and rates are worse than they would be on a quiet one.")
    if missing:
        remarks.append(f"**Not measured yet**: {', '.join(f'`{_command(source, results)}`' for source in missing)}")
    quick = f"In this quick run: {item.quick_cut}" if item.quick_cut and any(map(results.is_quick, there)) else ""
    cut = " ".join(filter(None, (item.cut, quick)))
    if cut:
        remarks.append(f"**Cut down**: {cut}")
    remarks.append(f"**Differences**: {item.differs}")
    return remarks


def _command(source: str, results: Results) -> str:
    quick = " --quick" if results.is_quick(source) else ""
    if source.startswith(MICRO):
        name = source.removeprefix(MICRO)
        if micro.is_series(name):
            return f"penstock bench sweep {name}{quick}"
        # Which searches the system's rate before.
        return f"penstock bench all --only {name}{'' if quick else ' --full'}"
    return f"penstock bench {source}{quick}"


def _markdown(table: Table) -> str:
    lines = ["| " + " | ".join(table.headings) + " |", "|" + "---|" * len(table.headings)]
    return "\n".join(lines + ["| " + " | ".join(number(cell) for cell in row) + " |" for row in table.rows])
