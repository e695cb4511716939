"""Every conformance case on every runtime that it names; embedded, in all the ways that must make no difference."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest

import penstock as ps
from conformance.cases import Case, load
from conformance.compare import assert_same
from conformance.runtimes import Drive, Run, run_embedded
from penstock.errors import QueryError

CASES = load()
ANSWERED = [case for case in CASES if case.expect]
REFUSED = [case for case in CASES if case.refused]


def check(case: Case, run: Run) -> None:
    for query, table in case.expect.items():
        assert_same(run.table(query), table, f"{case}: {query}")
    for stream, table in case.late.items():
        assert_same(run.late_table(stream), table, f"{case}: late events of {stream}")
    if case.rejects is not None:
        assert run.rejects == case.rejects, f"{case}: {run.rejects} rejects"


embedded = pytest.mark.parametrize("case", ANSWERED, ids=str)


@embedded
def test_in_one_batch(case: Case) -> None:
    check(case, run_embedded(case))


@embedded
def test_event_by_event(case: Case) -> None:
    check(case, run_embedded(case, Drive(batches=(1,) * len(case.arrivals))))


@embedded
def test_in_random_batches_and_small_blocks(case: Case) -> None:
    chance = random.Random(zlib.crc32(str(case).encode()))
    sizes = tuple(chance.randrange(0, 4) for _ in case.arrivals)
    check(case, run_embedded(case, Drive(batches=sizes, block_size=256)))


@embedded
def test_restarted_in_the_middle(case: Case, tmp_path: Path) -> None:
    """The events after the checkpoint are pushed, lost with the process, and pushed again."""
    middle = len(case.arrivals) // 2
    check(case, run_embedded(case, Drive(restart_at=middle, lost=2, directory=tmp_path)))


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_refused_before_the_first_event(case: Case) -> None:
    with pytest.raises(QueryError) as raised:
        ps.App(case.program)
    for words in case.refused:
        assert words in str(raised.value), f"'{words}' is not said in:\n{raised.value}"
