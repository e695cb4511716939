"""A report as one HTML file that needs no other: styles and figures are in it, light or dark as the reader likes."""

from __future__ import annotations

import re
from html import escape
from itertools import count

from penstock_bench.measure.report.charts import INK, PALE
from penstock_bench.measure.report.document import Block, Code, Document, Figure, Notes, Paragraph, Table, Tiles

_STYLE = """
:root { color-scheme: light dark; --ink: #24313d; --soft: #5b6b7a; --paper: #ffffff; --card: #f4f6f8; --line: #d5dbe1;
  --accent: #0072b2; --warn: #b45309; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --soft: #a3b1bf; --paper: #14191e; --card: #1e262d;
  --line: #3a4651; --accent: #56b4e9; --warn: #f0a35c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, 'Helvetica Neue', Arial,
  sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 2rem 1.5rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .75rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .75rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
p { margin: .5rem 0; max-width: 50rem; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: 1rem 0; font-size: .9rem; }
a { color: var(--accent); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .75rem; margin: 1.25rem 0; }
.tile { background: var(--card); border-radius: .6rem; padding: .8rem 1rem; }
.tile span { display: block; color: var(--soft); font-size: .85rem; overflow-wrap: anywhere; }
.tile strong { display: block; font-size: 1.45rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.notes { border-left: 4px solid var(--warn); background: var(--card); border-radius: 0 .6rem .6rem 0;
  padding: .6rem 1rem; margin: 1rem 0; }
.notes ul { margin: 0; padding-left: 1.1rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; min-width: 50%; }
th, td { padding: .35rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; }
th.name, td.name { text-align: left; white-space: normal; overflow-wrap: break-word; max-width: 26rem; }
tbody tr:hover { background: var(--card); }
figure { margin: 1.25rem 0; }
figure svg { display: block; width: 100%; height: auto; max-height: 85vh; }
figcaption { color: var(--soft); font-size: .9rem; margin-top: .25rem; }
pre { background: var(--card); border-radius: .6rem; padding: 1rem; overflow-x: auto; font-size: .85rem;
  line-height: 1.45; }
@media print { main { max-width: none; padding: 0; } figure, table { break-inside: avoid; } }
"""
_PROLOGUE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_ID = re.compile(r' id="([^"]*)"')
_REFERENCE = re.compile(r'(url\(#|href="#)([^)"]*)')
_SIZE = re.compile(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"')


def html(document: Document) -> str:
    numbers = count(1)
    lead = "".join(_block(block, numbers) for block in document.lead)
    links, sections = [], []
    for number, section in enumerate(document.sections, 1):
        links.append(f'<a href="#section-{number}">{escape(section.title)}</a>')
        blocks = "".join(_block(block, numbers) for block in section.blocks)
        sections.append(f'<section id="section-{number}">\n<h2>{escape(section.title)}</h2>\n{blocks}</section>\n')
    contents = f'<nav aria-label="Contents">{"".join(links)}</nav>\n' if len(links) > 1 else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(document.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(document.title)}</h1>\n{lead}{contents}{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def _block(block: Block, numbers: count[int]) -> str:
    match block:
        case Paragraph(text):
            return f"<p>{escape(text)}</p>\n"
        case Notes(items):
            listed = "".join(f"<li>{escape(item)}</li>" for item in items)
            return f'<div class="notes" role="note"><ul>{listed}</ul></div>\n'
        case Tiles(items):
            tiles = "".join(
                f'<div class="tile"><span>{escape(name)}</span><strong>{escape(value)}</strong>'
                f"<span>{escape(about)}</span></div>"
                for name, value, about in items
            )
            return f'<div class="tiles">{tiles}</div>\n'
        case Table():
            return _table(block)
        case Figure():
            drawn = inline(block, f"f{next(numbers)}")
            return f"<figure>\n{drawn}\n<figcaption>{escape(block.caption)}</figcaption>\n</figure>\n"
        case Code(text):
            return f"<pre><code>{escape(text)}</code></pre>\n"


def _table(table: Table) -> str:
    def row(cells: list[str], kind: str) -> str:
        return "".join(
            f"<{kind}{' class=' + chr(34) + 'name' + chr(34) if place < table.names else ''}>{cell}</{kind}>"
            for place, cell in enumerate(cells)
        )

    head = row([escape(heading) for heading in table.headings], "th")
    body = "".join(f"<tr>{row([escape(cell) for cell in cells], 'td')}</tr>\n" for cells in table.rows)
    return (
        f'<div class="wide" tabindex="0"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>'
        "</div>\n"
    )


def inline(figure: Figure, prefix: str) -> str:
    """An SVG file's text as a part of a page: ink and grid in the page's colours, ids that no other figure has."""
    text = _METADATA.sub("", _PROLOGUE.sub("", figure.svg, count=1))
    wanted = {name for _, name in _REFERENCE.findall(text)}
    text = _ID.sub(lambda found: f' id="{prefix}-{found[1]}"' if found[1] in wanted else "", text)
    text = _REFERENCE.sub(lambda found: f"{found[1]}{prefix}-{found[2]}", text)
    text = _SIZE.sub(
        rf'\1 role="img" aria-label="{escape(figure.caption).replace(chr(92), chr(92) * 2)}"', text, count=1
    )
    return text.replace(INK, f"var(--ink, {INK})").replace(PALE, f"var(--line, {PALE})").strip()
