"""`penstock bench all`: every bench and every microbenchmark, one after the other, and the pages made of them.

    DIR/NAME.json                    figures of our own benches
    DIR/micro/NAME/ADAPTER/          sweeps and runs of microbenchmarks, on the systems that are there
    DIR/sustainable/NAME/ADAPTER/    searches of the rates that some of these need
    DIR/logs/                        what each said
    DIR/report.html, reproduction.md what came of it

Each is a process of its own, so that none meets what another left behind. What is done is not done again; what fails
is told, and the rest goes on. What another system than ours cannot do is a finding and no failure.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from penstock.errors import InputError
from penstock_bench import benches as benches
from penstock_bench.measure.adapters.adapter import adapter_class
from penstock_bench.measure.report.writing import write_report
from penstock_bench.measure.reproduction import write as write_reproduction
from penstock_bench.measure.running.sustainable import SUSTAINABLE
from penstock_bench.measure.setup.read import read_setup
from penstock_bench.workloads import micro

SYSTEMS = ("embedded", "spark-streaming", "esper", "flink")
"""The adapters that microbenchmarks are run on, if what they need is there."""

_BURST = "adaptivity"
_BUSY = 0.75
"""Before the burst a system is given this part of what it sustains (thesis, 4.5.5)."""

_LIMIT = {True: 1800, False: 8 * 3600}
"""Seconds after which a quick, or a full, one is given up."""


@dataclass(frozen=True)
class Task:
    """`problem` says after the run, or before it, why it is not done; None if it is."""

    name: str
    arguments: Sequence[str]
    problem: Callable[[], str | None]
    leftover: Path | None = None
    """What an attempt that was stopped leaves in the way of the next."""
    more: Callable[[], Sequence[str]] = list
    """Arguments that follow from what was measured before."""
    beyond: Callable[[], bool] = bool
    """Whether nothing is missing but what another system could not do: it was tried, and failed."""


def run_all(output: Path, *, quick: bool, only: Sequence[str], systems: Sequence[str]) -> bool:
    """Measures what is left; False if something failed."""
    console = Console(stderr=True, highlight=False)
    tasks = tasks_of(output, quick, only, systems, lambda text: console.print(Text(text, style="dim")))
    (output / "logs").mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    failed: list[str] = []
    beyond: list[str] = []
    for number, task in enumerate(tasks, 1):
        place = f"[dim]{number} of {len(tasks)}[/dim]  {task.name}"
        if task.problem() is None:
            console.print(f"{place}  [dim]is done already[/dim]")
            continue
        console.print(place)
        since = time.monotonic()
        problem = perform(task, output / "logs", _LIMIT[quick])
        if problem is not None:
            kind, names = ("not possible", beyond) if task.beyond() else ("failed", failed)
            names.append(task.name)
            console.print(Text(f"    {kind}: {problem}", style="yellow"))
        console.print(f"    [dim]{time.monotonic() - since:.0f} s[/dim]")
    pages = _pages(output)
    for page in pages:
        console.print(f"[dim]written: {page}[/dim]")
    seconds = round(time.monotonic() - began, 1)
    told = {"tasks": len(tasks), "failed": failed, "not_possible": beyond, "seconds": seconds}
    print(json.dumps({**told, "pages": [str(page) for page in pages]}), flush=True)
    return not failed


def tasks_of(
    output: Path, quick: bool, only: Sequence[str], systems: Sequence[str], tell: Callable[[str], None]
) -> list[Task]:
    """All that `only` names, or simply all; `tell` hears which systems are left out, and why."""
    unknown = [name for name in only if name not in benches.NAMES and name not in micro.names()]
    if unknown:
        raise InputError(f"unknown bench '{unknown[0]}'; there are {', '.join((*benches.NAMES, *micro.names()))}")
    wanted = only or (*benches.NAMES, *micro.names())
    tasks = [_own(name, output, quick) for name in benches.NAMES if name in wanted]
    setups = [name for name in micro.names() if name in wanted]
    there = [system for system in systems if _is_there(system, tell)] if setups else []
    for name in setups:
        told = [system for system in there if _is_told(name, system, tell)]
        if name == _BURST:
            tasks += [_search(name, system, output, quick) for system in told]
        tasks += [_micro(name, system, output, quick) for system in told]
    return tasks


def _own(name: str, output: Path, quick: bool) -> Task:
    file = output / f"{name}.json"
    size = "quick" if quick else "full"

    def problem() -> str | None:
        return None if _json(file).get("size") == size else "it gave no figures"

    return Task(name, [name, *(["--quick"] if quick else []), "--output", str(output)], problem)


def _micro(name: str, system: str, output: Path, quick: bool) -> Task:
    directory = output / "micro" / name / system
    series = micro.is_series(name)

    def problem() -> str | None:
        if not series:
            summary = _json(directory / "summary.json")
            if summary.get("state") != "done":
                return f"the run was {summary.get('state') or 'never begun'}"
            wanted = rate()
            fits = wanted is None or summary["parameters"]["rate"] == wanted
            return None if fits else f"the run was not at {wanted:,} events a second"
        points = _json(directory / "sweep.json").get("points")
        if not points:
            return "it has measured no point"
        left = [point for point in points if point.get("state") != "done"]
        told = [f"{point['name']}: {point.get('error') or point['state']}" for point in left]
        return f"{len(left)} of {len(points)} points: {told[0]}" if left else None

    ours = adapter_class(system).dialect == adapter_class("embedded").dialect

    def beyond() -> bool:
        points = _json(directory / "sweep.json").get("points") if series else [_json(directory / "summary.json")]
        return not ours and bool(points) and all(point.get("state") in ("done", "failed") for point in points or ())

    def rate() -> int | None:
        return _steady_rate(output, system) if name == _BURST else None

    def more() -> Sequence[str]:
        wanted = rate()
        return () if wanted is None else ("--set", f"rate={wanted}")

    command = ["sweep" if series else "run", name, "--adapter", system, *(["--quick"] if quick else [])]
    leftover = None if series else directory
    return Task(f"{name} on {system}", [*command, "--output", str(directory)], problem, leftover, more, beyond)


def _search(name: str, system: str, output: Path, quick: bool) -> Task:
    """The highest rate that a system sustains: a burst is given to one that is busy, and not to one that idles."""
    directory = output / "sustainable" / name / system

    seconds = 6 if quick else 10

    def problem() -> str | None:
        found = _json(directory / SUSTAINABLE)
        done = found.get("complete") and found.get("trial_seconds", 0) >= seconds
        return None if done else "the search has come to no end"

    command = ["sustainable", name, "--adapter", system, "--trial", f"{seconds} s", "--output", str(directory)]
    return Task(f"sustainable rate of {name} on {system}", command, problem, directory)


def _steady_rate(output: Path, system: str) -> int | None:
    """The rate before the burst, if it is known what the system sustains; else the setup has one."""
    held = _json(output / "sustainable" / _BURST / system / SUSTAINABLE).get("sustainable")
    return round(_BUSY * held) if held else None


def _is_there(system: str, tell: Callable[[str], None]) -> bool:
    """Whether an adapter has what it needs."""
    try:
        adapter_class(system)(read_setup(micro.setup_file("selection"), {}, system)).check()
    except InputError as error:
        tell(f"without {system}: {error}")
        return False
    return True


def _is_told(name: str, system: str, tell: Callable[[str], None]) -> bool:
    """Whether the setup has its queries in the system's own language."""
    dialect = adapter_class(system).dialect
    told = all(dialect in query.text for query in read_setup(micro.setup_file(name), {}, system).queries.values())
    if not told:
        tell(f"{name} without {system}: the setup has no query in its dialect, '{dialect}'")
    return told


def perform(task: Task, logs: Path, limit: float) -> str | None:
    """Runs it; what went wrong, or None."""
    if task.leftover is not None and task.leftover.exists():
        shutil.rmtree(task.leftover)
    log = logs / f"{task.name.replace(' ', '-')}.txt"
    with log.open("w", encoding="utf-8") as said:
        command = [sys.executable, "-m", "penstock", "bench", *task.arguments, *task.more()]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said)
        try:
            code = process.wait(limit)
        except KeyboardInterrupt:
            # The terminal has told the process, too: a sweep then ends its run and keeps what was measured.
            _end(process, told=True)
            raise
        except subprocess.TimeoutExpired:
            _end(process)
            return f"it took longer than {limit:,.0f} s; see {log}"
    problem = task.problem()
    if code == 0 or problem is None:
        return problem
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"{last[-1].strip() if last else f'it ended with {code}'}; see {log}"


def _end(process: subprocess.Popen[bytes], *, told: bool = False) -> None:
    """Waits until it has gone, and makes it go if it does not."""
    if not told:
        process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _pages(output: Path) -> list[Path]:
    """The report of all runs, if there are any, and the page of the papers."""
    pages = []
    if any((output / "micro").glob("*/*/**/setup.json")):
        pages.append(write_report(output / "micro", output)[0])
    return [*pages, write_reproduction(output, output)]


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
