"""What a checkpoint holds of an app: streams, queries, stores, calls and rejects, at a moment between two pushes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.engine.checkpoint import Checkpoint, CheckpointDirectory
from penstock.engine.flow import Flow
from penstock.engine.inputs import Inputs
from penstock.engine.rejects import Rejects
from penstock.engine.rule_calls import RuleCalls
from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import StreamDef
from penstock.store.manager import StoreManager


class SavedApp:
    def __init__(
        self,
        directory: CheckpointDirectory,
        stores: StoreManager,
        inputs: Inputs,
        flow: Flow,
        calls: RuleCalls,
        rejects: Rejects,
    ) -> None:
        self._directory = directory
        self._stores = stores
        self._inputs = inputs
        self._flow = flow
        self._calls = calls
        self._rejects = rejects

    def read(self, streams: Iterable[StreamDef]) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """The state of the last checkpoint and its extra, for an app with these streams; None without a checkpoint.

        Queries that are started from now on take up what the state has of them.
        """
        saved = self._directory.read()
        if saved is None:
            return None, None
        state, extra = saved
        self._directory.check_streams(state["fingerprint"], _fingerprints(streams))
        self._flow.expect(state["flow"])
        return state, extra

    def restore(self, state: dict[str, Any]) -> None:
        """After the streams are declared, the queries started and, if there were input buffers, dispatching begun."""
        self._stores.restore(state["stores"])
        self._inputs.restore(state)
        self._flow.restore()
        self._rejects.count = state["rejected"]
        self._flow.tables.resumed(self._directory.epoch, state["flow"]["tables"])
        if "calls" in state:
            rules = [(r.query.rule.name, r.outlet) for r in self._flow.running.values() if r.query.rule is not None]
            self._calls.restore(state["calls"], dict(rules))

    def write(self, extra: dict[str, Any] | None, finished: bool) -> Checkpoint:
        state = {
            "fingerprint": _fingerprints(s.definition for s in self._inputs.streams.values()),
            **self._inputs.snapshot(),
            "flow": self._flow.snapshot(),
            "calls": self._calls.snapshot(),
            "rejected": self._rejects.count,
            "finished": finished,
            "stores": self._stores.snapshot(),
        }
        self._stores.sync()
        epoch = self._directory.write(state, extra)
        self._stores.commit()
        self._flow.committed()
        self._flow.tables.committed(epoch)
        return Checkpoint(epoch, self._inputs.positions)


def _fingerprints(streams: Iterable[StreamDef]) -> dict[str, str]:
    return {stream.name: fingerprint(stream) for stream in streams}
