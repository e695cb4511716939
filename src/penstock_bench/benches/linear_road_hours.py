"""The three hours of Linear Road in real time, with different expressways.

A process makes the traffic, some seconds ahead, and leaves the rows of each second as files in memory, one for each
process of the engine: those of its expressways, and the balance questions of all. A process of the engine takes the
file of a second when it is due, and removes it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.feather as feather
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock_bench.benches.linear_road_embedded import PROCESSES, Arrivals
from penstock_bench.benches.linear_road_rating import LIMIT
from penstock_bench.benches.report import Report
from penstock_bench.workloads.linear_road.application import STREAM, embedded
from penstock_bench.workloads.linear_road.history import TOLL
from penstock_bench.workloads.linear_road.reports import BALANCE, EXPENDITURE, write_integers
from penstock_bench.workloads.linear_road.traffic import THREE_HOURS, Traffic

_AHEAD = 30
"""Seconds of traffic that wait."""
_POLL_SECONDS = 0.05
_TELL_EVERY = 600
_MICROSECONDS = 1_000_000
_SHARED_MEMORY = Path("/dev/shm")


def three_hours(roads: int, report: Report, *, seconds: int = THREE_HOURS, seed: int = 1) -> dict[str, Any]:
    """Response times over the whole run."""
    traffic = Traffic(roads=roads, seed=seed, seconds=seconds)
    memory = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    with TemporaryDirectory(prefix="penstock-bench-", dir=memory) as directory:
        place = Path(directory)
        report.step(f"what the cars that will ask have paid before, on {roads:,} expressways")
        write_integers(place / "tolls.csv", _asked(traffic), TOLL)
        report.step(f"{seconds:,} seconds of {roads:,} expressways, in real time")
        context = get_context("spawn")
        driver = context.Process(target=_drive, args=(traffic, directory), daemon=True)
        driver.start()
        pipes = [context.Pipe() for _ in range(PROCESSES)]
        engines = [
            context.Process(target=_answer, args=(theirs, directory, number, seconds), daemon=True)
            for number, (_, theirs) in enumerate(pipes)
        ]
        try:
            for engine in engines:
                engine.start()
            for ours, _ in pipes:
                ours.recv()
            began = time.monotonic() + 1
            for ours, _ in pipes:
                ours.send(began)
            found = [part for ours, _ in pipes for part in [_received(ours, report)]]
        finally:
            for process in (driver, *engines):
                process.kill()
                process.join()
    return _figures(roads, seconds, found)


def _received(process: Connection, report: Report) -> dict[str, Any]:
    while True:
        told = process.recv()
        if isinstance(told, dict):
            return told
        if isinstance(told, str):
            raise PenstockError(f"the run over three hours failed: {told}")
        second, slowest = told
        report.step(f"after {second:,} s the slowest answer took {slowest:.2f} s")


def _figures(roads: int, seconds: int, found: list[dict[str, Any]]) -> dict[str, Any]:
    answers = sum(one["answers"] for one in found)
    late = sum(one["late"] for one in found)
    return {
        "roads": roads,
        "seconds": seconds,
        "reports": sum(one["reports"] for one in found),
        "answers": answers,
        "late_answers": late,
        "held": late == 0,
        "max_ms": max(one["max"] for one in found) * 1e3,
        "slowest_by_minute_ms": (np.max([one["by_minute"] for one in found], axis=0) * 1e3).tolist(),
    }


def _asked(traffic: Traffic) -> Iterator[pa.Table]:
    """The rows of the ten weeks that the questions of a run are about: a run before the run finds them."""
    for table in traffic.tables():
        questions = table.filter(pa.array(table["type"].to_numpy() == EXPENDITURE))
        if not len(questions):
            continue
        wanted = np.unique(_keys(questions))
        tolls = traffic.tolls(np.unique(questions["vid"].to_numpy()))
        yield tolls.filter(pa.array(np.isin(_keys(tolls), wanted)))


def _keys(rows: pa.Table) -> NDArray[np.int64]:
    keys: NDArray[np.int64] = rows["vid"].to_numpy().astype(np.int64) * 100 + rows["day"].to_numpy()
    return keys


def _drive(traffic: Traffic, directory: str) -> None:
    place = Path(directory)
    for second, table in enumerate(traffic.tables(step=1)):
        while (place / f"{second - _AHEAD:06d}-0").exists():
            time.sleep(_POLL_SECONDS)
        road, kind = table["xway"].to_numpy(), table["type"].to_numpy()
        mine = road * PROCESSES // traffic.roads
        for number in range(PROCESSES):
            rows = table.filter(pa.array((mine == number) | (kind == BALANCE)))
            part = place / f"{second:06d}-{number}.part"
            feather.write_feather(rows, str(part), compression="uncompressed")
            os.rename(part, place / f"{second:06d}-{number}")


def _answer(connection: Connection, directory: str, number: int, seconds: int) -> None:
    try:
        connection.send(_measured(connection, Path(directory), number, seconds))
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")


def _measured(connection: Connection, place: Path, number: int, seconds: int) -> dict[str, Any]:
    by_minute = np.zeros(seconds // 60 + 1)
    reports = answers = late = 0
    with embedded(place / "tolls.csv", memory=psutil.virtual_memory().total // (2 * PROCESSES)) as app:
        connection.send(None)
        began = connection.recv()
        arrivals = Arrivals(app)
        for second in range(seconds):
            file = place / f"{second:06d}-{number}"
            time.sleep(max(0.0, began + second - time.monotonic()))
            while not file.exists():
                time.sleep(_POLL_SECONDS)
            rows = feather.read_table(file, memory_map=False)
            file.unlink()
            app.push(STREAM, rows)
            app.advance(STREAM, (second + 1) * _MICROSECONDS)
            _, responses = arrivals.responses(began, 0)
            arrivals.clear()
            reports += len(rows)
            answers += len(responses)
            late += int((responses > LIMIT).sum())
            by_minute[second // 60] = max(by_minute[second // 60], responses.max(initial=0.0))
            if number == 0 and second and second % _TELL_EVERY == 0:
                connection.send((second, float(by_minute.max())))
    return {
        "reports": reports,
        "answers": answers,
        "late": late,
        "max": float(by_minute.max()),
        "by_minute": by_minute,
    }
