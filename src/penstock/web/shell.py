"""What all pages have: the bar with its links, theme, keyboard shortcuts and their help, and the main part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import context, ui

from penstock import __version__
from penstock.web.parts import Text, button
from penstock.web.site import STATIC, Site

KEYS = {"t": "light or dark", "?": "this list"}
"""What the keys of every page do."""


@contextmanager
def page(site: Site, path: str) -> Iterator[None]:
    """The frame of a page; what is made inside is its main part."""
    title = next(known.title for known in site.pages if known.path == path)
    request = context.client.request
    theme = None if request is None else request.cookies.get("penstock_theme")
    ui.dark_mode({"dark": True, "light": False}.get(theme or ""))
    ui.page_title(f"{title} · Penstock")
    of = f"?v={__version__}"
    ui.add_head_html(
        f'<link rel="stylesheet" href="{STATIC}/penstock.css{of}"><script src="{STATIC}/penstock.js{of}"></script>'
    )
    shortcuts = _shortcuts(site)
    with ui.element("header").classes("bar"):
        with ui.element("a").props('href="/"').classes("brand"):
            ui.element("img").props(f'src="{STATIC}/penstock.svg" alt=""')
            Text("span", "Penstock")
        with ui.element("nav").props('aria-label="Pages"'):
            for known in site.pages:
                link = Text("a", known.title).props(f'href="{known.path}" data-key="{known.key}"')
                if known.path == path:
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


def _shortcuts(site: Site) -> ui.dialog:
    pages = {" ".join(page.key for page in site.pages): ", ".join(page.title.lower() for page in site.pages)}
    of_pages = {key: does for page in site.pages for key, does in page.keys.items()}
    with ui.dialog().props('aria-label="Keyboard"') as dialog, ui.card():
        Text("h2", "Keyboard")
        with ui.element("div").classes("help-list"):
            for keys, does in (pages | of_pages | KEYS).items():
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
