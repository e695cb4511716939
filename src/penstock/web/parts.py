"""The parts that pages are made of: text, buttons, panels, figures, states, tables, bars.

Whatever comes from setups, programs or data is text: it is set as text, or escaped where a part writes HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement


class Text(TextElement):
    """An element of any kind with text in it, which is never read as HTML."""

    def __init__(self, tag: str, text: str = "") -> None:
        super().__init__(tag=tag, text=text)


def button(label: str, does: Callable[..., Any], *, main: bool = False, key: str | None = None) -> Text:
    made = Text("button", label)
    made.classes("plain-button main" if main else "plain-button").props('type="button"')
    if key is not None:
        made.props(f'data-key="{key}" aria-keyshortcuts="{key}"')
    made.on("click", does)
    return made


def enable(element: ui.element, enabled: bool) -> None:
    """A button or field can be used, or not."""
    if enabled:
        element.props(remove="disabled")
    else:
        element.props("disabled")


@contextmanager
def panel(title: str, note: str = "") -> Iterator[Text]:
    """A box with a heading; gives what stands beside the heading."""
    with ui.element("section").classes("panel").props(f'aria-label="{escape(title)}"'):
        with ui.element("div").classes("panel-head"):
            Text("h2", title)
            beside = Text("span", note)
            beside.classes("note")
        yield beside


class Figures:
    """A row of figures with a name each, a value, and a few words more."""

    def __init__(self, names: Sequence[str]) -> None:
        self._values: dict[str, tuple[Text, Text]] = {}
        with ui.element("div").classes("figures"):
            for name in names:
                with ui.element("div").classes("figure"):
                    Text("div", name).classes("what")
                    value, more = Text("div", "–"), Text("div")
                    value.classes("value").props(f'data-figure="{escape(name)}"')
                    more.classes("more")
                    self._values[name] = (value, more)

    def set(self, name: str, value: str, more: str = "") -> None:
        shown, beside = self._values[name]
        shown.text, beside.text = value, more


_STATES = {
    "running": ("good", "▶"),
    "done": ("good", "✓"),
    "finished": ("good", "✓"),
    "paused": ("warn", "❚❚"),
    "starting": ("warn", "…"),
    "stopping": ("warn", "…"),
    "stopped": ("warn", "■"),
    "failed": ("bad", "✕"),
    "closed": ("", "■"),
}


class State:
    """What something is doing: a sign, a word and a colour."""

    def __init__(self, state: str = "") -> None:
        self._shown = Text("span")
        self._shown.props('role="status" data-state')
        self.set(state)

    def set(self, state: str) -> None:
        kind, sign = _STATES.get(state, ("", "○"))
        self._shown.text = f"{sign} {state}" if state else ""
        self._shown.classes(replace=f"state {kind}" if state else "visually-hidden")


class Table:
    """A table that is written anew when its rows change. Columns are (heading, kind): a kind is "n" for numbers,
    "name", "code", "quiet", "html" for what is already HTML, or nothing."""

    def __init__(self, caption: str, columns: Sequence[tuple[str, str]], empty: str, *, tall: bool = True) -> None:
        self._caption, self._columns, self._empty = caption, columns, empty
        self._html = ui.html("", sanitize=False).classes("table-box tall" if tall else "table-box")
        self._html.props(f'tabindex="0" role="region" aria-label="{escape(caption)}"')
        self.rows([])

    def rows(self, rows: Sequence[Sequence[str]]) -> None:
        if not rows:
            self._html.content = f'<p class="empty" style="padding:0 1rem .6rem">{escape(self._empty)}</p>'
            return
        heads = "".join(
            f'<th scope="col"{" class=n" if kind == "n" else ""}>{escape(name)}</th>' for name, kind in self._columns
        )
        body = "".join(f"<tr>{self._cells(row)}</tr>" for row in rows)
        caption = f'<caption class="visually-hidden">{escape(self._caption)}</caption>'
        self._html.content = (
            f'<table class="plain">{caption}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
        )

    def _cells(self, row: Sequence[str]) -> str:
        return "".join(
            f"<td>{cell}</td>" if kind == "html" else f'<td class="{kind}">{escape(cell)}</td>'
            for cell, (_, kind) in zip(row, self._columns, strict=True)
        )


def done_bar(fraction: float) -> str:
    """How far something has come, as HTML for a table."""
    percent = round(100 * min(max(fraction, 0.0), 1.0))
    return f'<div class="done-bar" role="img" aria-label="{percent} %"><i style="width:{percent}%"></i></div>'


def share_bar(parts: Sequence[tuple[str, int]], whole: int, shown: Callable[[int], str]) -> str:
    """How a whole is divided, as HTML: a bar and its legend; what no part has is left free."""
    total = max(whole, sum(size for _, size in parts), 1)
    bars, legend = [], []
    for number, (name, size) in enumerate(parts):
        colour = f"var(--s{number % 5 + 1})"
        bars.append(f'<i style="width:{100 * size / total:.2f}%;background:{colour}" title="{escape(name)}"></i>')
        legend.append(f'<span><i style="background:{colour}"></i>{escape(name)} <b>{escape(shown(size))}</b></span>')
    free = total - sum(size for _, size in parts)
    legend.append(f'<span><i style="background:var(--sunk)"></i>free <b>{escape(shown(free))}</b></span>')
    return f'<div class="share" aria-hidden="true">{"".join(bars)}</div><div class="legend">{"".join(legend)}</div>'
