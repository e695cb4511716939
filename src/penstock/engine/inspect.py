"""What a checkpoint directory holds, and that of an embedded app in particular; nothing in it is changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.engine.checkpoint import APP, read_state
from penstock.engine.saved_state import SavedState, read_saved
from penstock.engine.verify import Verified, verify_app
from penstock.errors import CheckpointError
from penstock.store.manager import block_file
from penstock.store.state import components_of, version_of


@dataclass(frozen=True)
class Files:
    number: int = 0
    nbytes: int = 0


@dataclass(frozen=True)
class SavedShare:
    """Queries that run together in the same buckets of Spark."""

    name: str
    spread: str
    buckets: int
    queries: tuple[str, ...]


@dataclass(frozen=True)
class SavedBucket:
    """Where the state of a bucket of Spark is: `files` with their bytes, and so many bytes that are committed with the
    micro-batch, the names of the files among them."""

    name: str
    files: dict[str, int]
    committed_bytes: int


@dataclass(frozen=True)
class CheckpointState:
    """`number` is that of the checkpoint, or of Spark's micro-batch. Files are `in_use`; `retired`, which are kept as
    long as Spark may go back to them; `orphans`, which no state names; or `gone`, of shares that are there no more.
    `missing` are files that the state needs and that are not there. `texts` are those of the queries, where known."""

    engine: str
    directory: str
    number: int
    format_version: int
    ended: bool
    saved: SavedState
    state_bytes: int
    in_use: Files
    orphans: Files
    retired: Files = Files()
    gone: Files = Files()
    missing: tuple[str, ...] = ()
    shares: tuple[SavedShare, ...] = ()
    buckets: tuple[SavedBucket, ...] = ()
    texts: dict[str, str] | None = None
    components: dict[str, int] = field(default_factory=dict)
    """The versions of the components that the state has; empty if it names none, in format 7."""
    verified: Verified | None = None


def inspect_app(directory: Path, *, verify: bool = False) -> CheckpointState:
    """The last checkpoint of an embedded app; with `verify` all blocks that it names are read."""
    files = read_state(directory)
    if files is None:
        raise CheckpointError(f"{directory} has no checkpoint yet; its app was started and has not saved anything")
    state = APP.read(files.tree["state"])
    saved = read_saved(state)
    named = {block_file(name) for name in state["stores"]}
    blocks = {path.name: path.stat().st_size for path in (directory / "blocks").glob("*.blocks")}
    return CheckpointState(
        engine="embedded",
        directory=str(directory),
        number=files.tree["epoch"],
        format_version=version_of(files.parts[-1]),
        ended=state["finished"],
        components=components_of(files.tree),
        saved=saved,
        state_bytes=sum(map(len, files.parts)),
        in_use=_sum(blocks, named),
        orphans=_sum(blocks, blocks.keys() - named),
        missing=tuple(
            sorted(block_file(n) for n, s in saved.stores.items() if s.blocks and block_file(n) not in blocks)
        ),
        verified=verify_app(directory, state["stores"], saved.queries) if verify else None,
    )


def _sum(files: dict[str, int], names: set[str]) -> Files:
    chosen = [size for name, size in files.items() if name in names]
    return Files(len(chosen), sum(chosen))
