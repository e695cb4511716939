"""The checkpoint directory of an app: one state file, replaced atomically, beside the block files.

    directory/
      state     the last checkpoint, in the one format of `store.state`
      begun     there as soon as there has been a checkpoint
      blocks/   the block files that it names, and the lock of the process that owns them

Invariants:
1. `state` is always a whole checkpoint, the last or the one before.
2. Where `begun` exists and `state` does not, `state` was removed from outside. Such a directory is refused: to begin
   anew would give results a second time.
3. All of it is for its owner alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from penstock.components import Component
from penstock.errors import CheckpointError, InputError, StorageError
from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import StreamDef
from penstock.store import state as state_format
from penstock.types import Schema


def _with_declarations(saved: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had one fingerprint of each declaration, with all columns: they must all be as they were."""
    declared = {name: {"properties": whole, "columns": None} for name, whole in saved["fingerprint"].items()}
    return {key: part for key, part in saved.items() if key != "fingerprint"} | {"declared": declared}


APP = Component("App", 2, (_with_declarations,))
"""The state of an app, which holds that of all others."""
_KIND = "app"
_BEGUN = "begun"


class Checkpoint(NamedTuple):
    """`positions` is the number of events taken of each stream: where to go on pushing after a restart."""

    epoch: int
    positions: dict[str, int]


class CheckpointDirectory:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._epoch = 0
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{path} cannot be used for checkpoints: {error.strerror}") from None

    @property
    def epoch(self) -> int:
        """The number of the last checkpoint."""
        return self._epoch

    def write(self, state: dict[str, Any], extra: dict[str, Any] | None) -> int:
        try:
            text = json.dumps(extra)
        except (TypeError, ValueError) as error:
            raise InputError(f"what is saved with a checkpoint must be JSON: {error}") from None
        self._epoch += 1
        whole = {"kind": _KIND, "epoch": self._epoch, "extra": text, "state": APP.saved(state)}
        state_format.write_atomically(self._path / "state", state_format.encode(whole))
        if not (self._path / _BEGUN).exists():
            state_format.write_atomically(self._path / _BEGUN, b"")
        return self._epoch

    def read(self) -> tuple[dict[str, Any], dict[str, Any] | None] | None:
        """The last checkpoint and its extra, or None where there is none."""
        data = read_state(self._path)
        if data is None:
            return None
        whole = decode_state(self._path, data)
        self._epoch = whole["epoch"]
        return APP.read(whole["state"]), json.loads(whole["extra"])

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


def read_state(directory: Path) -> bytes | None:
    """The last checkpoint as it is in its file; None where there has been none."""
    file = directory / "state"
    try:
        return file.read_bytes()
    except FileNotFoundError:
        if (directory / _BEGUN).exists():
            raise CheckpointError(
                f"{directory} had a checkpoint and its file 'state' is gone; put it back, or start with a new directory"
            ) from None
        return None
    except OSError as error:
        raise StorageError(f"{file} cannot be read: {error.strerror}") from None


def decode_state(directory: Path, data: bytes) -> dict[str, Any]:
    whole = state_format.decode(data)
    if whole.get("kind") != _KIND:
        raise CheckpointError(f"{directory / 'state'} is not a checkpoint of an app; choose another directory")
    return whole
