"""Drivers as processes, with a real host: what they are told, what they say, what they log."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock_bench.measure.clock import Clock
from penstock_bench.measure.running.directory import RunDirectory
from penstock_bench.measure.running.logs import read_log
from penstock_bench.measure.setup.model import Setup


def setup(**about: Any) -> Setup:
    raw = {
        "name": "test",
        "streams": {"s": {"columns": {"ts": "TIMESTAMP", "n": "BIGINT"}, "lateness": "1 s"}},
        "drivers": [{"name": "d", "fields": {"s": {"n": {"generator": "sequential"}}}, **about}],
        "queries": {"q": {"text": {"penstock": "SELECT ts, n FROM s WHERE n < 0"}}},
    }
    return Setup.model_validate(raw)


class Process:
    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"penstock_bench.measure.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def tell(self, do: str, **more: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._process.stdin.flush()

    def hear(self, *kinds: str) -> dict[str, Any]:
        """The next message of one of the kinds."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said: dict[str, Any] = json.loads(line)
            if said["is"] in kinds:
                return said
            assert said["is"] != "failed", said
        raise AssertionError(f"ended without {kinds}")

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(30)


class Run:
    """A directory with a host that takes events."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._processes: list[Process] = []
        self.clock = Clock.now_set()

    def host(self, about: Setup) -> RunDirectory:
        run = RunDirectory.create(self._path / "run", about, "")
        facts = {"clock_offset_ns": self.clock.offset_ns, "place": {}}
        run.write_facts(facts)
        place = self.process("running.host", str(run.path)).hear("ready")["place"]
        run.write_facts({**facts, "place": place})
        return run

    def process(self, module: str, *arguments: str) -> Process:
        self._processes.append(Process(module, *arguments))
        return self._processes[-1]

    def end(self) -> None:
        for process in reversed(self._processes):
            process.end()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    run.end()


@pytest.mark.slow
def test_two_copies_send_a_whole_schedule(runs: Run) -> None:
    phases = [{"rate": 20_000, "duration": "300 ms"}, {"rate": "max", "event_rate": 1_000_000, "events": 100_000}]
    run = runs.host(setup(phases=phases, copies=2))
    drivers = [runs.process("load.driver", str(run.path), "d", str(copy)) for copy in range(2)]
    for driver in drivers:
        driver.hear("ready")
    at_ns = runs.clock.ns() + 50_000_000
    for driver in drivers:
        driver.tell("start", at_ns=at_ns)
    for copy, driver in enumerate(drivers):
        done = driver.hear("done")
        assert done["sent"] == 3000 + 50_000
        log = read_log(run.driver("d", copy))
        assert log is not None
        rows = {name: log.column(name).to_numpy() for name in log.schema.names if name != "stream"}
        assert set(log.column("stream").to_pylist()) == {"s"}
        assert rows["events"][rows["phase"] == 0].sum() == 3000
        assert rows["events"][rows["phase"] == 1].sum() == 50_000
        assert np.all(rows["first_us"] % 2 == copy)
        assert np.all(rows["last_us"] % 2 == copy)
        assert np.all(rows["first_us"][1:] > rows["last_us"][:-1])
        assert np.all(rows["due_ns"] <= rows["sent_ns"])
        assert np.all(rows["sent_ns"] <= rows["done_ns"])
        paced = rows["phase"] == 0
        assert np.all(rows["due_ns"][paced] == rows["last_us"][paced] * 1000)
        assert 0 <= rows["first_us"][0] * 1000 - at_ns < 110_000


def test_pause_resume_and_stop(runs: Run) -> None:
    run = runs.host(setup(phases=[{"name": "long", "rate": 1000, "duration": "1 h"}]))
    driver = runs.process("load.driver", str(run.path), "d", "0")
    driver.hear("ready")
    driver.tell("start", at_ns=runs.clock.ns())
    first = driver.hear("progress")
    assert (first["phase"], first["name"], first["finished"]) == (0, "long", False)
    driver.tell("pause")
    while (second := driver.hear("progress"))["sent"] != first["sent"]:
        first = second
    driver.tell("resume")
    while driver.hear("progress")["sent"] == second["sent"]:
        pass
    driver.tell("stop")
    done = driver.hear("done")
    assert done["paused_us"] > 0
    log = read_log(run.driver("d", 0))
    assert log is not None
    assert sum(log.column("events").to_pylist()) == done["sent"] > second["sent"]


@pytest.mark.slow
def test_a_driver_whose_controller_is_gone_ends(runs: Run) -> None:
    run = runs.host(setup(phases=[{"rate": 1000, "duration": "1 h"}]))
    driver = runs.process("load.driver", str(run.path), "d", "0")
    driver.hear("ready")
    driver.tell("start", at_ns=runs.clock.ns())
    driver.hear("progress")
    driver.end()


@pytest.mark.slow
def test_a_replay_and_its_mistakes(runs: Run, tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text("n\n" + "\n".join(map(str, range(5000))))
    (tmp_path / "bad.csv").write_text("n\n1\nmany\n")
    about = {"stream": "s", "pace": "max"}
    run = runs.host(setup(replay={"file": str(tmp_path / "good.csv"), **about}, fields={}))
    good = runs.process("load.driver", str(run.path), "d", "0")
    good.hear("ready")
    good.tell("start", at_ns=runs.clock.ns())
    assert good.hear("done")["sent"] == 5000
    wrong = setup(replay={"file": str(tmp_path / "bad.csv"), **about}, fields={})
    (run.path / "setup.json").write_text(wrong.model_dump_json())
    error = runs.process("load.driver", str(run.path), "d", "0").hear("failed")["error"]
    assert error == f"drivers.d.replay.file: {tmp_path}/bad.csv, line 3: column 'n': 'many' is no BIGINT"
