"""What all pages have: the bar with its links, theme, keyboard shortcuts and their help, and the main part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

from nicegui import context, ui

from penstock.web.parts import Text, button
from penstock.web.site import STATIC, Site

_PAGES = (
    ("/controller", "Controller", "1"),
    ("/monitor", "Performance monitor", "2"),
    ("/app", "App", "3"),
    ("/roads", "Roads", "4"),
)

KEYS = {
    "1 2 3 4": "controller, performance monitor, app, roads",
    "s": "start a run",
    "p": "pause it, or go on",
    "x": "stop it",
    "t": "light or dark",
    "?": "this list",
}


@contextmanager
def page(site: Site, path: str, title: str) -> Iterator[None]:
    """The frame of a page; what is made inside is its main part."""
    request = context.client.request
    theme = None if request is None else request.cookies.get("penstock_theme")
    ui.dark_mode({"dark": True, "light": False}.get(theme or ""))
    ui.page_title(f"{title} · Penstock")
    of = f"?v={version('penstock')}"
    ui.add_head_html(
        f'<link rel="stylesheet" href="{STATIC}/penstock.css{of}"><script src="{STATIC}/penstock.js{of}"></script>'
    )
    shortcuts = _shortcuts()
    with ui.element("header").classes("bar"):
        with ui.element("a").props('href="/"').classes("brand"):
            ui.element("img").props(f'src="{STATIC}/penstock.svg" alt=""')
            Text("span", "Penstock")
        with ui.element("nav").props('aria-label="Pages"'):
            for target, name, key in _PAGES:
                if target in site.pages:
                    link = Text("a", name).props(f'href="{target}" data-key="{key}"')
                    if target == path:
                        link.props('aria-current="page"')
        ui.element("div").classes("rest")
        theme_button = Text("button", "Light / dark").classes("icon-button").props('type="button" data-key="t"')
        theme_button.on("click", js_handler="() => penstockTheme()")
        help_button = Text("button", "Keyboard").classes("icon-button").props('type="button" data-key="?"')
        help_button.on("click", shortcuts.open)
    main = ui.element("div").classes("page").props('tabindex="-1"')
    ui.skip_link(target=main)
    with main:
        yield


def _shortcuts() -> ui.dialog:
    with ui.dialog().props('aria-label="Keyboard"') as dialog, ui.card():
        Text("h2", "Keyboard")
        with ui.element("div").classes("help-list"):
            for keys, does in KEYS.items():
                with ui.element("span"):
                    for key in keys.split():
                        Text("kbd", key)
                Text("span", does)
        Text("p", "Tab goes through everything, Escape leaves a list or this dialog.").classes("empty")
        with ui.element("div").classes("controls"):
            switch = Text("button", "Single keys on or off").classes("plain-button").props('type="button"')
            switch.on("click", js_handler="() => penstockKeys()")
            button("Close", dialog.close, main=True)
    return dialog
