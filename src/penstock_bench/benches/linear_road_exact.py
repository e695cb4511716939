"""Are the answers of Linear Road right, to the last row?

Two expressways in both directions, a few segments of each near the peak of the three hours, with tolls and accidents,
are answered by the embedded engine, by two apps with an expressway each, whose balances are added, and by Spark.
All are compared with the validator. An input that is given is compared with its own answers, by the embedded engine and
by Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import InputError
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.workloads.linear_road import answers as kinds
from penstock_bench.workloads.linear_road.answers import Answers, compare, read_answers
from penstock_bench.workloads.linear_road.history import SEGMENT, TOLL
from penstock_bench.workloads.linear_road.reports import BALANCE, read_reports, write_integers, write_reports
from penstock_bench.workloads.linear_road.running import run_embedded, run_on_spark
from penstock_bench.workloads.linear_road.traffic import THREE_HOURS, Traffic
from penstock_bench.workloads.linear_road.validator import expected_answers

_ASKED = (kinds.NOTICE, kinds.WARNING, kinds.BALANCE, kinds.EXPENDITURE)

# An accident happens once in each segment, so there are few on a short stretch at the end of the three hours.
_TRAFFIC = {
    Size.TINY: Traffic(roads=2, begin=10_600, seconds=10_640, stretch=(49, 50)),
    Size.QUICK: Traffic(roads=2, seed=3, begin=10_300, seconds=THREE_HOURS, stretch=(47, 52)),
    Size.FULL: Traffic(roads=3, begin=7_200, seconds=THREE_HOURS, stretch=(45, 54)),
}


@dataclass(frozen=True)
class Given:
    """Files: an input, what was paid in the ten weeks before, and the answers that are right."""

    input: Path
    tolls: Path
    expected: Path


def given_files(reports: Path | None, tolls: Path | None, expected: Path | None) -> Given | None:
    """All three or none."""
    if reports is None and tolls is None and expected is None:
        return None
    if reports is None or tolls is None or expected is None:
        raise InputError("--input, --tolls and --expected go together: an input is checked against its right answers")
    for file in (reports, tolls, expected):
        if not file.is_file():
            raise InputError(f"{file}: there is no such file")
    return Given(reports, tolls, expected)


@dataclass(frozen=True)
class Checked:
    """How the answers of an engine to an input compare with the right ones; travel times count for themselves."""

    input: str
    engine: str
    expected: int
    missing: int
    extra: int
    wrong_travel_times: int

    @property
    def wrong(self) -> int:
        return self.missing + self.extra

    def figures(self) -> dict[str, Any]:
        return {**vars(self)}


class _Case(NamedTuple):
    name: str
    input: Path
    tolls: Path
    segments: Path | None
    expected: Answers


def check(size: Size, given: Given | None, place: Path, report: Report) -> list[Checked]:
    """Compares all answers; on Spark in the session that runs, or in one of its own."""
    place.mkdir(parents=True, exist_ok=True)
    case = _generated(_TRAFFIC[size], place)
    cases = [case] if given is None else [case, _given(given)]
    found = [_checked(case, "embedded in two parts", _in_parts, place, report)]
    for one in cases:
        found.append(_checked(one, "embedded", run_embedded, place, report))
        found.append(_checked(one, "Spark", run_on_spark, place, report))
    report.table(
        ("input", "engine", "answers", "missing", "undue", "wrong travel times"),
        [tuple(one.figures().values()) for one in found],
    )
    return found


def _generated(traffic: Traffic, place: Path) -> _Case:
    reports, tolls, segments = (place / f"{name}.csv" for name in ("input", "tolls", "segments"))
    write_reports(reports, traffic.tables())
    rows = read_reports(reports)
    paid, before = traffic.tolls(np.unique(rows["vid"].to_numpy())), traffic.segments()
    write_integers(tolls, [paid], TOLL)
    write_integers(segments, [before], SEGMENT)
    return _Case("generated", reports, tolls, segments, expected_answers(rows, paid, before))


def _given(given: Given) -> _Case:
    return _Case(str(given.input), given.input, given.tolls, None, read_answers(given.expected))


def _checked(case: _Case, engine: str, run: Callable[..., object], place: Path, report: Report) -> Checked:
    report.step(f"{case.name} input, {engine}")
    output = place / "answers.csv"
    run(case.input, output, case.tolls, segments=case.segments)
    answers = read_answers(output)
    found = compare(case.expected, answers, _ASKED)
    (travel,) = compare(case.expected, answers, [kinds.TRAVEL_TIME])
    expected = sum(one.expected for one in found)
    missing, extra = (sum(getattr(one, name) for one in found) for name in ("missing", "extra"))
    return Checked(case.name, engine, expected, missing, extra, travel.wrong)


def _in_parts(reports: Path, output: Path, tolls: Path, *, segments: Path | None) -> None:
    """An app for each expressway, which also gets all questions of balances. The parts of a balance are added."""
    rows = read_reports(reports)
    road, kind = rows["xway"].to_numpy(), rows["type"].to_numpy()
    parts = []
    for number in np.unique(road).tolist():
        own, answered = output.with_name(f"input-{number}.csv"), output.with_name(f"answers-{number}.csv")
        write_reports(own, [rows.filter(pa.array((road == number) | (kind == BALANCE)))])
        run_embedded(own, answered, tolls, segments=segments)
        parts.append(read_answers(answered))
    joined = {kind: np.concatenate([part.of(kind) for part in parts]) for kind in kinds.COLUMNS}
    joined[kinds.BALANCE] = _added(joined[kinds.BALANCE])
    kinds.write_answers(output, Answers(joined))


def _added(balances: kinds.Rows) -> kinds.Rows:
    """One row for each question, with the sum of its balances.

    >>> _added(np.array([[7, 1, 20], [8, 2, 5], [7, 1, 30]]))
    array([[ 7,  1, 50],
           [ 8,  2,  5]])
    """
    questions, place = np.unique(balances[:, :2], axis=0, return_inverse=True)
    totals = np.zeros(len(questions), np.int64)
    np.add.at(totals, place.ravel(), balances[:, 2])
    return np.column_stack([questions, totals])
