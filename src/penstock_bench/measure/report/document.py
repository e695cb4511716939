"""A report before it is HTML or Markdown: sections of paragraphs, tables, figures and code. All text is plain; the
writers of HTML and Markdown escape it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Notes:
    """What a reader should know before the figures."""

    items: Sequence[str]


@dataclass(frozen=True)
class Tiles:
    """The few figures that matter most: a name, the figure, and what it is of."""

    items: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Table:
    """The first `names` columns are text, the others figures, which stand at the right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int = 1


@dataclass(frozen=True)
class Figure:
    """`name` becomes the name of a file; `svg` is the whole text of it."""

    name: str
    svg: str
    caption: str


@dataclass(frozen=True)
class Code:
    text: str
    language: str = ""


Block = Paragraph | Notes | Tiles | Table | Figure | Code


@dataclass
class Section:
    title: str
    blocks: list[Block] = field(default_factory=list)


@dataclass
class Document:
    title: str
    lead: Sequence[Block] = ()
    sections: list[Section] = field(default_factory=list)

    def figures(self) -> list[Figure]:
        blocks = [*self.lead, *(block for section in self.sections for block in section.blocks)]
        return [block for block in blocks if isinstance(block, Figure)]
