"""Leads a run: starts its processes, begins, pauses and stops the load, and gathers what is measured.

    host ready -> sinks and drivers ready -> drivers start … drivers done -> host finishes -> sinks end -> summary

Invariants:
1. The leading thread alone tells and hears the processes and writes the run's files; others ask (`pause`, `stop`) and
   look (`snapshot`).
2. However a run ends, its processes are ended, what they had logged is kept, and a summary says how it ended.
3. A system under test that fails takes the others with it: its error is the one that is told.
4. Every run ends: one whose system takes nothing any more, or does not work off the rest, fails after
   `measuring.patience`. One whose files cannot be written any more fails, and ends as well.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock_bench.measure.adapters.adapter import adapter_class
from penstock_bench.measure.clock import Clock
from penstock_bench.measure.load.tables import write_table
from penstock_bench.measure.machine import describe
from penstock_bench.measure.results.resources import ResourceSampler
from penstock_bench.measure.results.summary import summarise
from penstock_bench.measure.running.directory import RunDirectory
from penstock_bench.measure.running.live import Live, Snapshot, State
from penstock_bench.measure.running.process import Heard, Process
from penstock_bench.measure.setup.model import Setup

START_WITHIN = 600.0
"""Seconds for a system to become ready: the first start of one may load its parts."""
BEGIN_AFTER_NS = 100_000_000
"""The start is told so long before, so that no driver hears of it too late."""
END_WITHIN = 15.0
"""Seconds for a process to end that has been told to."""
BLAME_WITHIN = 1.0
"""Seconds to find out whether the system under test is to blame when another process fails."""


class RunError(PenstockError):
    """A run that failed; what was measured until then is kept."""


class Controller:
    """One run. `start` refuses what can be known at once; everything else happens in a thread of its own."""

    def __init__(self, setup: Setup, directory: Path, text: str = "") -> None:
        """`text` is the setup as it was written, and is kept beside the run."""
        self.setup = setup
        self.directory = directory
        self.summary: dict[str, Any] | None = None
        """When the run is over."""
        self.too_slow = False
        """Whether it failed because patience with the system came to an end."""
        self._text = text
        self._patience = setup.measuring.patience / 1e6
        self._clock = Clock.now_set()
        self._lock = threading.Lock()
        self._live = Live(setup)
        self._heard: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        self._wishes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._processes: list[Process] = []
        self._failures: list[tuple[Process, str]] = []
        self._stops_asked = 0
        self._given_up = False
        """Processes are being ended by force: that they end so is no failure of theirs."""
        self._cannot_write = False
        """The run's files: the disk is full, or they were removed."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._lead, name="controller", daemon=True)

    # What others ask for

    def start(self) -> None:
        """Begins the run and returns; raises what can be known at once to be wrong with it."""
        adapter_class(self.setup.system.adapter)(self.setup).check()
        self._run = RunDirectory.create(self.directory, self.setup, self._text)
        self._facts: dict[str, Any] = {
            "clock_offset_ns": self._clock.offset_ns,
            "place": {},
            "adapter": self.setup.system.adapter,
            "machine": describe(),
            "began_ns": 0,
        }
        self._run.write_facts(self._facts)
        self._sampler = ResourceSampler(self._run.resources, self._clock, self.setup.measuring.resources)
        self._happen("state", state=State.STARTING)
        self._thread.start()

    def pause(self) -> None:
        """The drivers rest; the rest of their schedules is shifted by the pause."""
        self._wishes.put("pause")

    def resume(self) -> None:
        self._wishes.put("resume")

    def stop(self) -> None:
        """Ends the load; the system works off what it has. Asked twice, it does not wait for that."""
        self._wishes.put("stop")

    def wait(self, timeout: float | None = None) -> bool:
        """Whether the run is over, at the latest after so many seconds."""
        return self._over.wait(timeout)

    def result(self) -> dict[str, Any]:
        """The summary, when the run is over; raises the error of a run that failed."""
        self.wait()
        if self._live.state is State.FAILED:
            raise RunError(self._live.error)
        return self.summary or {}

    def snapshot(self) -> Snapshot:
        resources = self._sampler.latest() if hasattr(self, "_sampler") else {}
        with self._lock:
            return self._live.snapshot(self._clock.ns(), resources)

    # The leading thread

    def _lead(self) -> None:
        try:
            self._sampler.start()
            self._start_all()
            if not self._ending:
                self._begin()
                self._hear_until(lambda: self._all_over("driver") or self._ending or self._stuck(), None)
            self._end_load()
            self._finish_system()
            self._end_sinks()
        except Exception as error:
            self._fail(_words_of(error))
        finally:
            self._end_run()

    @property
    def _ending(self) -> bool:
        return bool(self._stops_asked or self._failures or self.too_slow or self._cannot_write)

    def _end_run(self) -> None:
        """However that goes, no process is left and the run is over."""
        state = State.FAILED
        try:
            state = self._end_all()
        except Exception as error:
            self._fail(_words_of(error))
        finally:
            for process in self._processes:
                if not process.exited:
                    process.kill()
            with self._lock:
                self._live.state = State.FAILED if self._live.error is not None else state
            self._over.set()

    @property
    def _hurried(self) -> bool:
        return self._stops_asked > 1

    def _start_all(self) -> None:
        for name, table in self.setup.tables.items():
            write_table(name, table, self._run.tables / f"{name}.parquet")
        self._launch("system", "system under test", "penstock_bench.measure.running.host", [])
        self._hear_until(lambda: self._all_ready() or self._ending, START_WITHIN, "the system under test to be ready")
        if self._ending:
            return
        for sink in self.setup.sinks:
            for copy in range(sink.copies):
                self._launch(
                    "sink", f"{sink.name}-{copy}", "penstock_bench.measure.running.sink", [sink.name, str(copy)]
                )
        for driver in self.setup.drivers:
            for copy in range(driver.copies):
                self._launch(
                    "driver", f"{driver.name}-{copy}", "penstock_bench.measure.load.driver", [driver.name, str(copy)]
                )
        self._hear_until(lambda: self._all_ready() or self._ending, START_WITHIN, "drivers and sinks to be ready")

    def _launch(self, kind: str, name: str, module: str, arguments: list[str]) -> None:
        log = self._run.logs / ("host.txt" if kind == "system" else f"{kind}-{name}.txt")
        process = Process(kind, name, module, [str(self._run.path), *arguments], log, self._heard)
        self._processes.append(process)
        self._sampler.watch("system" if kind == "system" else process.title, process.pid)

    def _begin(self) -> None:
        began = self._clock.ns() + BEGIN_AFTER_NS
        self._facts["began_ns"] = began
        self._run.write_facts(self._facts)
        self._tell("driver", "start", at_ns=began)
        for process in self._processes:
            # One that was ready long ago has had nothing to say.
            process.heard_at = time.monotonic()
        with self._lock:
            self._live.began_ns = began
        self._enter(State.RUNNING)

    def _end_load(self) -> None:
        self._enter(State.STOPPING)
        if self._failures:
            # A broken connection is often the first that is heard of a system that died.
            self._hear_until(lambda: self._failed("system") or self._of("system").over, BLAME_WITHIN)
        self._tell("driver", "stop")
        # A driver may be held up by a system that takes nothing any more.
        self._hear_until(lambda: self._all_over("driver") or self._of("system").over or self._hurried, END_WITHIN)

    def _finish_system(self) -> None:
        system = self._of("system")
        if system.over:
            return
        if not system.ready:
            system.tell("stop")
        else:
            system.tell("finish")
            self._hear_until(lambda: system.over or self._hurried or self.too_slow, self._patience)
            if not system.over:
                if not self._ending:
                    self._lose_patience(
                        f"the system under test did not work off what it had within {self._patience:g} s of the last"
                        " event"
                    )
                self._note("the system under test did not work off what it had; it was ended")
                self._given_up = True
                system.tell("stop")
        self._hear_until(lambda: system.over, END_WITHIN)

    def _stuck(self) -> bool:
        """Whether a driver has been silent for too long. Drivers speak all the time, unless a send holds them up."""
        since = time.monotonic() - self._patience
        silent = [one for one in self._processes if one.kind == "driver" and not one.over and one.heard_at < since]
        if silent:
            self._lose_patience(f"{silent[0].title} could send nothing for {self._patience:g} s")
        return bool(silent)

    def _lose_patience(self, why: str) -> None:
        self.too_slow = True
        self._fail(f"{why}; measuring.patience gives more time")

    def _end_sinks(self) -> None:
        """One that is behind is waited for as long as it takes results, unless the run is to end soon."""
        self._tell("sink", "stop")
        before = -1
        while not self._all_over("sink") and self._live.results > before:
            before = self._live.results
            self._hear_until(lambda: self._all_over("sink"), END_WITHIN)
            if self._hurried or self._given_up or self._failures:
                return

    def _end_all(self) -> State:
        """Whatever still runs is ended, and the summary made; how the run has ended."""
        for process in self._processes:
            if not process.exited:
                process.tell("stop")
        self._hear_until(lambda: all(process.exited for process in self._processes), END_WITHIN / 3)
        for process in self._processes:
            if not process.exited and not self._given_up and process.kind != "system":
                self._note(f"{process.title} did not end and was killed: what it had not logged yet is missing")
        self._given_up = True
        for process in self._processes:
            process.kill()
        self._hear_until(lambda: all(process.exited for process in self._processes), END_WITHIN)
        self._sampler.stop()
        if self._failures and self._live.error is None:
            blamed = next((one for one in self._failures if one[0].kind == "system"), self._failures[0])
            self._fail(blamed[1])
        state = State.FAILED if self._live.error is not None else State.STOPPED if self._stops_asked else State.DONE
        self._happen("state", state=state)
        try:
            self.summary = summarise(self._run.path)
        except PenstockError as error:
            self._note(str(error))
        except Exception as error:
            self._fail(f"the summary cannot be made: {type(error).__name__}: {error}")
        return state

    # Hearing

    def _hear_until(self, reached: Callable[[], bool], timeout: float | None, waiting_for: str | None = None) -> None:
        """Until it is reached or the time is over; if that is an error, `waiting_for` says what did not come."""
        until = None if timeout is None else time.monotonic() + timeout
        while not reached():
            self._grant_wishes()
            left = 0.1 if until is None else min(0.1, until - time.monotonic())
            if left <= 0:
                if waiting_for is not None:
                    raise RunError(f"waited {timeout:.0f} s for {waiting_for}{self._processes[0].tail()}")
                return
            try:
                process, message = self._heard.get(timeout=left)
            except queue.Empty:
                continue
            self._take(process, message)

    def _grant_wishes(self) -> None:
        while True:
            try:
                wish = self._wishes.get_nowait()
            except queue.Empty:
                return
            state = self._live.state
            if wish == "stop":
                self._stops_asked += 1
                self._happen("stop asked")
            elif (wish, state) in (("pause", State.RUNNING), ("resume", State.PAUSED)):
                self._tell("driver", wish)
                self._enter(State.PAUSED if wish == "pause" else State.RUNNING)

    def _take(self, process: Process, message: dict[str, Any]) -> None:
        kind, now = message["is"], self._clock.ns()
        process.heard_at = time.monotonic()
        if kind == "progress":
            with self._lock:
                if process.kind == "driver":
                    self._live.driver(process.name, message)
                elif process.kind == "sink":
                    self._live.sink(now, process.name, message)
                else:
                    self._live.host(now, message)
        elif kind == "ready":
            process.ready = True
            if process.kind == "system":
                self._facts["place"] = message["place"]
                self._run.write_facts(self._facts)
        elif kind == "note":
            self._note(f"{process.title}: {message['text']}")
        elif kind == "done":
            process.over = True
            self._happen("done", who=process.title, **{k: v for k, v in message.items() if k != "is"})
        elif kind == "failed":
            process.over = True
            self._failed_with(process, self._told(process, message))
        elif kind == "exit":
            if not process.over:
                process.over = True
                self._failed_with(process, process.death(message["code"]))
            process.exited = True

    def _told(self, process: Process, message: dict[str, Any]) -> str:
        """An error of the user's in its own words; any other with the process and the end of its log."""
        error = str(message["error"])
        if not message.get("told"):
            return f"{process.title}: {error}{process.tail()}"
        return error if process.kind == "system" else f"{process.title}: {error}"

    def _failed_with(self, process: Process, error: str) -> None:
        if not self._given_up:
            self._failures.append((process, error))
            self._happen("failed", who=process.title, error=error)

    # Small things

    def _of(self, kind: str) -> Process:
        return next(process for process in self._processes if process.kind == kind)

    def _all_ready(self) -> bool:
        return all(process.ready for process in self._processes)

    def _all_over(self, kind: str) -> bool:
        return all(process.over for process in self._processes if process.kind == kind)

    def _failed(self, kind: str) -> bool:
        return any(process.kind == kind for process, _ in self._failures)

    def _tell(self, kind: str, what: str, **more: Any) -> None:
        for process in self._processes:
            if process.kind == kind and not process.over:
                process.tell(what, **more)

    def _enter(self, state: State) -> None:
        with self._lock:
            self._live.state = state
        self._happen("state", state=state)

    def _note(self, text: str) -> None:
        with self._lock:
            self._live.notes.append(text)
        self._happen("note", text=text)

    def _fail(self, error: str) -> None:
        with self._lock:
            self._live.error = error
        self._happen("error", error=error)

    def _happen(self, what: str, **more: Any) -> None:
        try:
            with self._run.happenings.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"at_ns": self._clock.ns(), "what": what, **more}) + "\n")
        except OSError as error:
            self._cannot_write = True
            with self._lock:
                if self._live.error is None:
                    self._live.error = f"{self._run.happenings}: cannot be written: {error.strerror}"


def _words_of(error: Exception) -> str:
    return str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
