"""The process of the system under test: `python -m penstock_bench.measure.running.host RUN`."""

from __future__ import annotations

import threading
from typing import Any

from penstock_bench.measure.adapters.adapter import Adapter, adapter_class
from penstock_bench.measure.running.child import PROGRESS_EVERY, Child, run_child
from penstock_bench.measure.running.directory import RunDirectory


def host(child: Child, run: RunDirectory, _: list[str]) -> dict[str, Any]:
    setup = run.setup()
    clock = run.clock()
    adapter = adapter_class(setup.system.adapter)(setup)
    adapter.check()
    try:
        child.say("ready", place=dict(adapter.begin(run.path)))
        while True:
            command = child.command(PROGRESS_EVERY)
            child.say("progress", **adapter.progress())
            if command is not None and command["do"] == "stop":
                return {"finished_ns": 0}
            if command is not None and command["do"] == "finish":
                break
        _finish(adapter, child)
        child.say("progress", **adapter.progress())
        return {"finished_ns": clock.ns()}
    finally:
        adapter.end()


def _finish(adapter: Adapter, child: Child) -> None:
    """Finishing may take long: what is still accepted is told meanwhile; a stop does not wait for the rest."""
    failure: list[BaseException] = []

    def work() -> None:
        try:
            adapter.finish()
        except BaseException as error:
            failure.append(error)

    working = threading.Thread(target=work, name="finish", daemon=True)
    working.start()
    while working.is_alive():
        working.join(PROGRESS_EVERY)
        command = child.command(0)
        if command is not None and command["do"] == "stop":
            return
        if working.is_alive():
            child.say("progress", **adapter.progress())
    if failure:
        raise failure[0]


if __name__ == "__main__":
    run_child(host)
