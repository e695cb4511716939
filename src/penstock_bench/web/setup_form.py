"""The part of the controller where a setup is chosen, its parameters are given and its text is edited.

The text is checked as it is typed, a moment after the last key, in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from nicegui import events, ui

from penstock.errors import InputError
from penstock.web.kit import Text, button
from penstock_bench.measure.adapters.adapter import adapters
from penstock_bench.measure.setup.generators import Scalar
from penstock_bench.web.bench import Bench, Draft
from penstock_bench.web.setups import Checked

_AFTER_SECONDS = 0.25
_LARGEST_UPLOAD = 1_000_000


class SetupForm:
    """`on_checked` is told whenever the setup has been looked through."""

    def __init__(self, bench: Bench, on_checked: Callable[[Checked], None]) -> None:
        self._bench = bench
        self._on_checked = on_checked
        self._changes = 0
        self._loading = False
        self._declared: dict[str, Scalar] = {}
        self.draft: Draft | None = None
        with ui.element("div").classes("controls").style("margin-bottom:.6rem"):
            self._file = _select("Setup file", self._unless_loading(self._choose)).style("flex:2;min-width:14rem")
            self._adapter = _select("Adapter", self._unless_loading(self._choose_adapter)).style(
                "flex:1;min-width:9rem"
            )
            self._upload = ui.upload(
                on_upload=self._uploaded, auto_upload=True, max_file_size=_LARGEST_UPLOAD, on_rejected=_too_large
            ).style("display:none")
            picker = Text("button", "Upload …").classes("plain-button").props('type="button"')
            picker.on("click", js_handler=f"() => getElement({self._upload.id}).pickFiles()")
            button("Download", self._download)
        self._description = Text("p").classes("empty").style("margin:0 0 .5rem")
        self._parameters = ui.element("div").classes("parameters").props('role="group" aria-label="Parameters"')
        self._message = Text("div").props('role="status" aria-live="polite" data-check')
        self._message.style("margin:.6rem 0")
        with ui.element("div").classes("editor"):
            self._editor = ui.codemirror(
                "", language="TOML", theme="githubLight", on_change=self._unless_loading(self._typed)
            )
        ui.timer(0, self._begin, once=True)

    def _unless_loading(self, handler: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None] | None]:
        """What we set ourselves is no choice of the user's."""
        return lambda event: None if self._loading else handler(event)

    async def _begin(self) -> None:
        """With what was worked on last, or the first setup there is."""
        files = list(await asyncio.to_thread(self._bench.setups.files))
        self._file.set_options(files)
        self._adapter.set_options(list(await asyncio.to_thread(adapters)))
        ui.run_javascript(
            "document.querySelectorAll('.editor .cm-content').forEach(e => e.setAttribute('aria-label', 'Setup text'))"
        )
        if self._bench.draft is None and files:
            await asyncio.to_thread(self._bench.open, files[0])
        if self._bench.draft is not None:
            await self._show(self._bench.draft)

    async def _show(self, draft: Draft) -> None:
        self.draft = draft
        self._loading = True
        self._file.value = draft.name if draft.name in (self._file.options or ()) else None
        self._editor.value = draft.text
        self._loading = False
        await self._check()

    async def _choose(self, event: events.ValueChangeEventArguments[str]) -> None:
        try:
            draft = await asyncio.to_thread(self._bench.open, event.value)
        except InputError as error:
            ui.notify(str(error), type="negative")
            return
        await self._show(draft)

    async def _choose_adapter(self, event: events.ValueChangeEventArguments[str]) -> None:
        if self.draft is not None:
            self.draft.adapter = event.value
            await self._check()

    async def _uploaded(self, event: events.UploadEventArguments) -> None:
        self._upload.reset()
        try:
            text = await event.file.text()
        except UnicodeDecodeError:
            ui.notify(f"{event.file.name} is not UTF-8 text", type="negative")
            return
        await self._show(self._bench.take(event.file.name, text))

    def _download(self) -> None:
        if self.draft is not None:
            ui.download.content(self.draft.text, f"{self.draft.name.rpartition('/')[2].removesuffix('.toml')}.toml")

    async def _typed(self, event: events.ValueChangeEventArguments[str]) -> None:
        if self.draft is None:
            return
        self.draft.text = event.value or ""
        self._bench.draft = self.draft
        self._changes += 1
        mine = self._changes
        await asyncio.sleep(_AFTER_SECONDS)
        if mine == self._changes:
            await self._check()

    async def _give(self, name: str, value: str) -> None:
        draft = self.draft
        if draft is not None:
            if value == str(self._declared.get(name)):
                draft.parameters.pop(name, None)
            else:
                draft.parameters[name] = value
            await self._check()

    async def _check(self) -> None:
        draft = self.draft
        assert draft is not None
        checked = await asyncio.to_thread(self._bench.check, draft)
        if draft is not self.draft:
            return
        self._tell(checked)
        self._ask_parameters(draft, checked)
        self._on_checked(checked)

    def _tell(self, checked: Checked) -> None:
        if checked.setup is None:
            self._message.text = checked.error
            self._message.classes(replace="message bad")
        else:
            setup = checked.setup
            copies = sum(driver.copies for driver in setup.drivers)
            self._message.text = (
                f"The setup is complete: {_many(len(setup.streams), 'stream')}, {_many(copies, 'driver')}, "
                f"{_many(len(setup.queries), 'query', 'queries')}, {_many(len(setup.sinks), 'sink')}."
            )
            self._message.classes(replace="message good")
            self._description.text = setup.description
            self._loading = True
            # One may be named that is not in the list: a class of the user's own.
            known = dict.fromkeys([*(self._adapter.options or ()), setup.system.adapter])
            self._adapter.set_options(list(known), value=setup.system.adapter)
            self._loading = False
        marks = [] if checked.line is None else [{"kind": "line", "line": checked.line, "class": "wrong-line"}]
        if marks != self._editor.decorations:
            self._editor.decorations = marks

    def _ask_parameters(self, draft: Draft, checked: Checked) -> None:
        """A field for each parameter; those of a text that cannot be read stay."""
        declared = dict(checked.declared)
        if declared == self._declared or (checked.setup is None and not declared):
            return
        self._declared = declared
        self._parameters.clear()
        with self._parameters:
            for name, value in declared.items():
                given = draft.parameters.get(name, value)
                field = ui.input(name, value=str(given)).props("outlined dense debounce=300")
                field.on_value_change(lambda event, name=name: self._give(name, str(event.value)))


def _select(label: str, on_change: Callable[..., object]) -> ui.select:
    return ui.select([], label=label, on_change=on_change).props("outlined dense options-dense")


def _many(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def _too_large() -> None:
    ui.notify(f"A setup has at most {_LARGEST_UPLOAD:,} bytes", type="negative")
