"""The fields of a setup for people: the tables of `docs/setup-files.md`, from the descriptions in the model.

`python -m penstock_bench.measure.setup.describe docs/setup-files.md` puts them into the page, between its two marks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from penstock_bench.measure.setup import generators, model
from penstock_bench.measure.setup.durations import microseconds

BEGIN, END = "<!-- fields -->\n", "<!-- end of fields -->\n"

_SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("top level", model.Setup),
    ("[streams.NAME]", model.Stream),
    ("[tables.NAME]", model.Table),
    ("[[drivers]]", model.Driver),
    ("[[drivers.phases]]", model.Phase),
    ("[drivers.replay]", model.Replay),
    ("[[sinks]]", model.Sink),
    ("[queries.NAME]", model.Query),
    ("[system]", model.System),
    ("[measuring]", model.Measuring),
    ("[[series]]", model.Series),
)
_GENERATORS: tuple[type[BaseModel], ...] = (
    generators.Sequential,
    generators.Uniform,
    generators.Normal,
    generators.Zipf,
    generators.RandomWalk,
    generators.Constant,
    generators.Listed,
)


def described() -> str:
    """All sections as Markdown."""
    parts = [f"### `{heading}`\n\n{_said(section)}\n\n{_table(section)}" for heading, section in _SECTIONS]
    rows = [f"| `{_tag(kind)}` | {_said(kind)} | {_options(kind)} |" for kind in _GENERATORS]
    table = "\n".join(["| `generator =` | makes | fields |", "|---|---|---|", *rows])
    return "\n\n".join([*parts, f"### Generators of fields\n\n{table}"]) + "\n"


def _said(section: type[BaseModel]) -> str:
    return re.sub(r"\s*\n\s*", " ", (section.__doc__ or "").strip()).replace("|", "\\|")


def _table(section: type[BaseModel]) -> str:
    rows = [f"| `{name}` | {default} | {text} |" for name, default, text in _fields(section)]
    return "\n".join(["| field | by default | meaning |", "|---|---|---|", *rows])


def _fields(section: type[BaseModel]) -> Iterator[tuple[str, str, str]]:
    for name, field in section.model_fields.items():
        if name != "generator":
            yield name, _default(field), (field.description or "").replace("|", "\\|")


def _default(field: Any) -> str:
    if field.is_required():
        return "needed"
    value = field.default
    if value is PydanticUndefined or value is None or value in ((), "") or isinstance(value, (BaseModel, tuple)):
        return ""
    if _is_time(field):
        return f"`{value / 1_000_000:g} s`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _is_time(field: Any) -> bool:
    return any(getattr(mark, "func", None) is microseconds for mark in field.metadata)


def _options(kind: type[BaseModel]) -> str:
    return ", ".join(f"`{name}`" + (f" ({default})" if default else "") for name, default, _ in _fields(kind))


def _tag(kind: type[BaseModel]) -> str:
    (tag,) = kind.model_fields["generator"].annotation.__args__  # type: ignore[union-attr]
    return str(tag)


def main(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    page.write_text(f"{before}{BEGIN}{described()}{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
