"""What a checkpoint holds of an app: streams, queries, stores, calls and rejects, at a moment between two pushes.

    begin    state of all parts ─▶ what has changed in it ─▶ copies of that, if events go on
    write    blocks of stores durable ─▶ checksum ─▶ the checkpoint's file durable         (beside the events)
    settle   blocks that were freed before may be reused, and the next checkpoint follows this one

Events go on while it is written only where there is memory for the copies, and no table is copied to a database: such a
copy is of the moment of the checkpoint, and is made when that stands.

Why: docs/decisions/checkpoints-beside-the-events.md
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.components import read_as
from penstock.engine.checkpoint import Begun, Checkpoint, CheckpointDirectory, declared
from penstock.engine.checkpoint_writer import CheckpointWriter
from penstock.engine.flow import Flow
from penstock.engine.inputs import Inputs
from penstock.engine.rejects import Rejects
from penstock.engine.rule_calls import RuleCalls
from penstock.lang.query import StreamDef
from penstock.store.budget import Account
from penstock.store.manager import StoreManager

COPIES_SHARE = 16
"""Copies that are to be written get the memory that is unused, or this part of all of it from the pools of windows."""


@dataclass
class SavedApp:
    directory: CheckpointDirectory
    stores: StoreManager
    inputs: Inputs
    flow: Flow
    calls: RuleCalls
    rejects: Rejects
    writer: CheckpointWriter = field(default_factory=CheckpointWriter)
    last: Checkpoint | None = None
    """The last checkpoint of this app that is durable."""

    def read(self, streams: Iterable[StreamDef]) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """The state of the last checkpoint and its extra, for an app with these streams; None without a checkpoint.

        Queries that are started from now on take up what the state has of them.
        """
        saved = self.directory.read()
        if saved is None:
            return None, None
        state, extra = saved
        self.directory.check_streams(state["declared"], streams)
        self.flow.expect(state["flow"])
        return state, extra

    def restore(self, state: dict[str, Any]) -> None:
        """After the streams are declared, the queries started and, if there were input buffers, dispatching begun."""
        self.stores.restore(state["stores"])
        self.inputs.restore(state)
        self.flow.restore()
        self.rejects.count = state["rejected"]
        self.flow.tables.resumed(self.directory.epoch, read_as(Flow, state["flow"])["tables"])
        if "calls" in state:
            rules = [(r.query.rule.name, r.outlet) for r in self.flow.running.values() if r.query.rule is not None]
            self.calls.restore(state["calls"], dict(rules))
        self.directory.resumed(lambda: self.state(state["finished"]))

    def state(self, finished: bool) -> dict[str, Any]:
        return {
            "declared": {name: declared(source.definition) for name, source in self.inputs.streams.items()},
            **self.inputs.snapshot(),
            "flow": self.flow.snapshot(),
            "calls": self.calls.snapshot(),
            "rejected": self.rejects.count,
            "finished": finished,
            "stores": self.stores.snapshot(),
        }

    def begin(self, extra: dict[str, Any] | None, finished: bool, *, beside: bool) -> Checkpoint:
        """The checkpoint of this moment; `beside` has it written while events go on. The one before is settled."""
        begun = self.directory.begin(self.state(finished), extra)
        checkpoint = Checkpoint(begun.epoch, self.inputs.positions)
        copies = self._detached(begun) if beside and not self.flow.tables.has_copies else None
        written = _Written(self, begun, checkpoint, self.flow.store_names, copies)
        if copies is not None:
            copies.on_need(written.give_up)
        self.writer.begin(written, beside=copies is not None)
        if copies is None:
            self.writer.wait()
            self.flow.tables.committed(begun.epoch)
        return checkpoint

    def _detached(self, begun: Begun) -> Account | None:
        """The account of the copies that a part is now made of; None where memory is short."""
        budget, nbytes = self.stores.budget, begun.part.nbytes
        if budget.unused < nbytes <= budget.total // COPIES_SHARE:
            budget.call_in(nbytes)
        account = budget.account("checkpoint that is being written", is_spare=True)
        if not account.try_resize(nbytes):
            account.close()
            return None
        try:
            begun.part.detach()
        except BaseException:
            account.close()
            raise
        return account


@dataclass(frozen=True)
class _Written:
    """A checkpoint on its way. `copies` are what it holds, where events go on; `names` those of the queries' parts."""

    saved: SavedApp
    begun: Begun
    checkpoint: Checkpoint
    names: set[str]
    copies: Account | None

    def write(self) -> None:
        self.saved.stores.sync()
        self.saved.directory.write(self.begun)
        self.saved.last = self.checkpoint

    def stands(self) -> None:
        saved = self.saved
        saved.directory.stands(self.begun)
        self._let_go()
        saved.stores.commit()
        saved.flow.committed(self.names)

    def lost(self) -> None:
        self.saved.directory.lost()
        self._let_go()

    def _let_go(self) -> None:
        if self.copies is not None:
            self.copies.close()

    def give_up(self) -> bool:
        """The memory is needed for something else: once all is written, the copies are not."""
        assert self.copies is not None
        if not self.copies.nbytes:
            return False
        self.saved.writer.finish()
        self.begun.part.let_go()
        self.copies.resize(0)
        return True
