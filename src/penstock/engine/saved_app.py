"""What a checkpoint holds of an app: streams, queries, stores, calls and rejects, at a moment between two pushes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.components import read_as
from penstock.engine.checkpoint import Checkpoint, CheckpointDirectory, declared
from penstock.engine.flow import Flow
from penstock.engine.inputs import Inputs
from penstock.engine.rejects import Rejects
from penstock.engine.rule_calls import RuleCalls
from penstock.lang.query import StreamDef
from penstock.store.manager import StoreManager


@dataclass(frozen=True)
class SavedApp:
    directory: CheckpointDirectory
    stores: StoreManager
    inputs: Inputs
    flow: Flow
    calls: RuleCalls
    rejects: Rejects

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

    def write(self, extra: dict[str, Any] | None, finished: bool) -> Checkpoint:
        state = self.state(finished)
        self.stores.sync()
        epoch = self.directory.write(state, extra)
        self.stores.commit()
        self.flow.committed()
        self.flow.tables.committed(epoch)
        return Checkpoint(epoch, self.inputs.positions)
