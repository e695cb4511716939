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
from pathlib import Path
from typing import Any, NamedTuple

from penstock.components import Component
from penstock.errors import CheckpointError, InputError, StorageError
from penstock.store import state as state_format

APP = Component("App")
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

    def check_streams(self, saved: dict[str, str], mine: dict[str, str]) -> None:
        """Streams that were there must be as they were; others may come and go, but not all of them."""
        changed = [name for name in mine if name in saved and saved[name] != mine[name]]
        if changed:
            raise CheckpointError(
                f"the checkpoint in {self._path} was written for other declarations of {', '.join(changed)}; "
                "declare the streams as they were, or start with a new directory"
            )
        if saved and not saved.keys() & mine.keys():
            raise CheckpointError(
                f"the checkpoint in {self._path} belongs to another app, with the streams {', '.join(saved)}; "
                "start with a new directory"
            )


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
