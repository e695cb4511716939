"""The checkpoint directory of an app: a state file, what has changed since, and the block files.

    directory/
      state            a whole checkpoint, in the one format of `store.state`
      changes-000007   what checkpoint 7 has changed since checkpoint 6 (`store.differences`), and so on
      begun            there as soon as there has been a checkpoint
      blocks/          the block files that the last checkpoint names, and the lock of the process that owns them

A checkpoint is a file of changes or, where `differences` says so, a new `state`.

Invariants:
1. `state` and the changes whose numbers follow on it give the last whole checkpoint. Each file is complete when it has
   its name. Files of changes with numbers up to that of `state` are left over, and are removed.
2. Where `begun` exists and `state` does not, `state` was removed from outside. Such a directory is refused: to begin
   anew would give results a second time.
3. All of it is for its owner alone.

Why: docs/decisions/checkpoints-by-difference.md
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from penstock.components import Component
from penstock.errors import CheckpointError, InputError, StorageError
from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import StreamDef
from penstock.store import state as state_format
from penstock.store.differences import Differences, joined
from penstock.store.parts import Part
from penstock.types import Schema


def _with_declarations(saved: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had one fingerprint of each declaration, with all columns: they must all be as they were."""
    declared = {name: {"properties": whole, "columns": None} for name, whole in saved["fingerprint"].items()}
    return {key: part for key, part in saved.items() if key != "fingerprint"} | {"declared": declared}


APP = Component("App", 2, (_with_declarations,))
"""The state of an app, which holds that of all others."""
_KIND = "app"
_BEGUN = "begun"
_CHANGES = "changes-"
_NUMBERED = re.compile(f"{_CHANGES}([0-9]{{6,}})")


class Checkpoint(NamedTuple):
    """`positions` is the number of events taken of each stream: where to go on pushing after a restart."""

    epoch: int
    positions: dict[str, int]


class Begun(NamedTuple):
    """A checkpoint to be written."""

    epoch: int
    part: Part


class CheckpointDirectory:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._epoch = 0
        self._differences = Differences()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{path} cannot be used for checkpoints: {error.strerror}") from None

    @property
    def epoch(self) -> int:
        """The number of the last checkpoint."""
        return self._epoch

    def begin(self, state: dict[str, Any], extra: dict[str, Any] | None) -> Begun:
        """The next checkpoint, of which nothing is written yet. In the end it `stands`, or is `lost`."""
        try:
            text = json.dumps(extra)
        except (TypeError, ValueError) as error:
            raise InputError(f"what is saved with a checkpoint must be JSON: {error}") from None
        epoch = self._epoch + 1
        return Begun(epoch, self._differences.part(_tree(epoch, text, state)))

    def write(self, begun: Begun) -> None:
        """Afterwards it is durable. Any thread may do it, one at a time."""
        epoch, part = begun
        state_format.write_atomically(self._path / ("state" if part.is_whole else _name(epoch)), *part.sealed())
        if not (self._path / _BEGUN).exists():
            state_format.write_atomically(self._path / _BEGUN, b"")
        if part.is_whole:
            self._sweep()

    def stands(self, begun: Begun) -> None:
        """It was written, and the next one follows it."""
        self._epoch = begun.epoch
        self._differences.keep()

    def lost(self) -> None:
        """It was not written: the next one has its number, and is whole."""
        self._differences.lose()

    def _sweep(self) -> None:
        """Removes changes up to the whole checkpoint, and files that were not written to their end."""
        left_over = [self._path / _name(number) for number in _numbers(self._path)]
        for file in (*left_over, *self._path.glob(f".{_CHANGES}*.tmp")):
            with contextlib.suppress(OSError):
                file.unlink()

    def read(self) -> tuple[dict[str, Any], dict[str, Any] | None] | None:
        """The last checkpoint and its extra, or None where there is none."""
        saved = read_state(self._path)
        if saved is None:
            return None
        self._differences.remember(saved.parts, saved.tree)
        self._epoch = saved.tree["epoch"]
        return APP.read(saved.tree["state"]), json.loads(saved.tree["extra"])

    def resumed(self, state: Callable[[], dict[str, Any]]) -> None:
        """What was read has been taken up, and the state is now this one: the next checkpoint saves what changes from
        here on."""
        self._differences.follow(lambda: _tree(self._epoch, "", state()))

    def check_streams(self, saved: dict[str, dict[str, Any]], mine: Iterable[StreamDef]) -> None:
        """Streams that were there must be as they were, but for columns that came; others may come and go, but not all
        of them."""
        streams = {stream.name: stream for stream in mine}
        changed = [told for name in saved.keys() & streams.keys() for told in changes_of(saved[name], streams[name])]
        if changed:
            raise CheckpointError(
                f"the checkpoint in {self._path} was written for other declarations: {'; '.join(sorted(changed))}. "
                "Declare the streams as they were, or start with a new directory"
            )
        if saved and not saved.keys() & streams.keys():
            raise CheckpointError(
                f"the checkpoint in {self._path} belongs to another app, with the streams {', '.join(saved)}; "
                "start with a new directory"
            )


def declared(stream: StreamDef) -> dict[str, Any]:
    """What a checkpoint keeps of a declaration."""
    columns = {field.name: [field.type.name, field.nullable] for field in stream.schema}
    return {"properties": fingerprint(replace(stream, schema=Schema(()))), "columns": columns}


def changes_of(saved: dict[str, Any], stream: StreamDef) -> list[str]:
    """What of a saved declaration is not as it was. Columns that came are no change."""
    if saved["columns"] is None:
        return [] if saved["properties"] == fingerprint(stream) else [f"stream {stream.name} has changed"]
    now = declared(stream)
    told = [] if saved["properties"] == now["properties"] else [f"stream {stream.name} has other properties"]
    for name, kind in saved["columns"].items():
        if name not in now["columns"]:
            told.append(f"column {name} of stream {stream.name} is gone")
        elif now["columns"][name] != kind:
            told.append(f"column {name} of stream {stream.name} has another type")
    return told


def new_columns(saved: dict[str, Any], stream: StreamDef) -> list[str]:
    """The columns that a stream has got since."""
    before = saved["columns"]
    return [] if before is None else [name for name in stream.schema.names if name not in before]


class SavedFiles(NamedTuple):
    """The last checkpoint of a directory: the contents of its files, and the tree that they give together."""

    parts: tuple[bytes, ...]
    tree: dict[str, Any]


def _tree(epoch: int, extra: str, state: dict[str, Any]) -> dict[str, Any]:
    return {"kind": _KIND, "epoch": epoch, "extra": extra, "state": APP.saved(state)}


def read_state(directory: Path) -> SavedFiles | None:
    """The last checkpoint; None where there has been none. The app may be writing the next one meanwhile."""
    file = directory / "state"
    whole = _read_file(file)
    if whole is None:
        if (directory / _BEGUN).exists():
            raise CheckpointError(
                f"{directory} had a checkpoint and its file 'state' is gone; put it back, or start with a new directory"
            )
        return None
    tree = state_format.decode(whole)
    if tree.get("kind") != _KIND:
        raise CheckpointError(f"{file} is not a checkpoint of an app; choose another directory")
    epoch = tree["epoch"]
    names = [_name(number) for number in range(epoch + 1, max(_numbers(directory), default=epoch) + 1)]
    later = {name: _read_file(directory / name) for name in names}
    if _read_file(file) != whole:
        return read_state(directory)  # a new whole checkpoint has come, and its changes are others
    for name, data in later.items():
        if data is None:
            raise CheckpointError(
                f"{directory / name} is gone, and later changes are there; put it back, or start with a new directory"
            )
    parts = (whole, *(data for data in later.values() if data is not None))
    return SavedFiles(parts, joined(parts) if later else tree)


def _name(number: int) -> str:
    """The file with what checkpoint `number` has changed."""
    return f"{_CHANGES}{number:06}"


def _numbers(directory: Path) -> list[int]:
    """The numbers of the files of changes that there are."""
    found = [_NUMBERED.fullmatch(file.name) for file in directory.glob(f"{_CHANGES}*")]
    return [int(name[1]) for name in found if name is not None]


def _read_file(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{file} cannot be read: {error.strerror}") from None
