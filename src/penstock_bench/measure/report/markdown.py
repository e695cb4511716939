"""A report as Markdown, its figures as files beside it."""

from __future__ import annotations

import re

from penstock_bench.measure.report.document import (
    Block,
    Code,
    Document,
    Figure,
    Notes,
    Paragraph,
    Section,
    Table,
    Tiles,
)

FIGURES = "figures"
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#$])")
_FENCES = re.compile(r"`{3,}")


def markdown(document: Document) -> str:
    parts = [f"# {plain(document.title)}", *map(_block, document.lead)]
    parts += map(section_text, document.sections)
    return "\n\n".join(parts) + "\n"


def section_text(section: Section) -> str:
    return "\n\n".join([f"## {plain(section.title)}", *map(_block, section.blocks)])


def plain(text: str) -> str:
    """Text that means nothing but itself, on one line.

    >>> plain("a|b <i>*x*</i>\\nc & d")
    'a\\\\|b \\\\<i\\\\>\\\\*x\\\\*\\\\</i\\\\> c &amp; d'
    """
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()).replace("&", "&amp;"))


def _block(block: Block) -> str:
    match block:
        case Paragraph(text):
            return plain(text)
        case Notes(items):
            return "\n".join(f"> - {plain(item)}" for item in items)
        case Tiles(items):
            return "\n".join(
                f"- {plain(name)}: **{plain(value)}** {plain(about)}".rstrip() for name, value, about in items
            )
        case Table(headings, rows, names):
            lines = [
                _line(headings),
                _line([":--" if place < names else "--:" for place in range(len(headings))], raw=True),
            ]
            return "\n".join([*lines, *map(_line, rows)])
        case Figure(name, _, caption):
            return f"![{plain(caption)}]({FIGURES}/{name}.svg)\n\n*{plain(caption)}*"
        case Code(text, language):
            longest = max((len(found) for found in _FENCES.findall(text)), default=2)
            fence = "`" * (longest + 1)
            return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _line(cells: object, raw: bool = False) -> str:
    assert isinstance(cells, (list, tuple))
    return "| " + " | ".join(cell if raw else plain(cell) for cell in cells) + " |"
