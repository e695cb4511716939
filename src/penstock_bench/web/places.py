"""Where in a TOML text the field stands that an error names, to mark its line.

Errors name fields as `drivers[0].phases[1].rate`. TOML libraries keep no places, so headers and keys are read here by
their looks; a field inside an inline table has the line where that begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_PART = re.compile(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)")


def line_of(text: str, path: str) -> int | None:
    """The line, counted from 1, of the field or of the nearest one around it.

    >>> text = "[[drivers]]\\nname = 'a'\\n[[drivers.phases]]\\n[[drivers.phases]]\\nrate = -1\\nfields.s.k = {a = 1}"
    >>> line_of(text, "drivers[0].phases[1].rate"), line_of(text, "drivers[0].phases[1].fields.s.k.b")
    (5, 6)
    >>> line_of(text, "drivers[0].phases[0].duration"), line_of(text, "queries")
    (3, None)
    """
    wanted = path.replace("[", ".[").split(".")
    best, found = 0, None
    for number, parts in _places(text):
        same = len(parts)
        if parts == wanted[:same] and same > best:
            best, found = same, number
    return found


def _places(text: str) -> Iterator[tuple[int, list[str]]]:
    """Each header and key with its line, as the parts of a path."""
    counts: dict[str, int] = {}
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            names, repeated = _names(header[2]), header[1] == "[["
            table = []
            for place, name in enumerate(names):
                table.append(name)
                key = ".".join(table)
                if repeated and place == len(names) - 1:
                    counts[key] = counts.get(key, -1) + 1
                if key in counts:
                    table.append(f"[{counts[key]}]")
            yield number, list(table)
        elif written := _KEY.match(line):
            yield number, table + _names(written[1])


def _names(written: str) -> list[str]:
    return [a or b or c for a, b, c in _PART.findall(written)]
