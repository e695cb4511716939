"""`watch(app)`: the app view of a running app, from a script or a notebook."""

from __future__ import annotations

import weakref
from html import escape

from penstock.engine.app import App
from penstock.web.embedded import look_at
from penstock.web.seen import Watched
from penstock.web.server import Serving, take_address
from penstock.web.site import Site

_serving: list[tuple[Site, Serving]] = []
"""The one server of this process, once there is one."""


class Watching:
    """Where the app can be seen. The pages go on until the program ends; `stop` takes the app from them before."""

    def __init__(self, watched: Watched, site: Site, url: str) -> None:
        self._watched = watched
        self._site = site
        self.url = url

    def stop(self) -> None:
        self._watched.stop()
        self._site.watched.pop(self._watched.name, None)

    def __repr__(self) -> str:
        return f"<penstock.web at {self.url}>"

    def _repr_html_(self) -> str:
        return f'<a href="{escape(self.url)}" target="_blank" rel="noopener">{escape(self._watched.name)}</a>'


def watch(
    app: App, name: str = "app", *, host: str = "127.0.0.1", port: int = 8080, token: str | None = None
) -> Watching:
    """Serves a read-only view of the app from a thread beside it; what the app does takes no longer for it.

    Several apps can be watched: the first call opens the port (0 is any free one), others add to its pages. A browser
    needs the token, which is made if none is given and is part of the `url`.
    """
    if not _serving:
        site = Site()
        serving = Serving(site, take_address(host, port, token))
        serving.beside()
        _serving.append((site, serving))
    site, serving = _serving[0]
    name = _unused(name, site)
    watched = Watched(name, look_at(weakref.ref(app))).start()
    site.watched[name] = watched
    return Watching(watched, site, serving.address.url_of("app"))


def _unused(name: str, site: Site) -> str:
    """
    >>> _unused("app", Site())
    'app'
    """
    number, tried = 1, name
    while tried in site.watched:
        number += 1
        tried = f"{name} {number}"
    return tried
