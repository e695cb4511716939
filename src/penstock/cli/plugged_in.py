"""Commands that other packages plug into `penstock`, by entry points of the group `penstock.commands`.

The name of an entry point is the name of the command, and what it loads is a `typer.Typer`. A package is loaded when
one of its commands is run, or when all commands are listed.
"""

from __future__ import annotations

from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup

from penstock.errors import InputError

GROUP = "penstock.commands"
LABORATORY = ("bench", "linear-road", "pairs", "ui")
"""The commands of `penstock-bench`, which come with that package."""


class Commands(TyperGroup):
    """The engine's own commands, then those that are plugged in."""

    @cached_property
    def _plugged_in(self) -> dict[str, EntryPoint]:
        return {found.name: found for found in sorted(entry_points(group=GROUP), key=lambda found: found.name)}

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *self._plugged_in]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        if cmd_name in self._plugged_in:
            command = typer.main.get_command(self._plugged_in[cmd_name].load())
            command.name = cmd_name
            return command
        if cmd_name in LABORATORY:
            raise InputError(f"penstock {cmd_name} comes with a package of its own: pip install penstock-bench")
        return None
