"""A rehearsal leaves no trace: the run's answers are those without it, and mistakes are told as ever."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from measure.adapters.answers import answers, assert_same, events, ours, setup_of
from penstock.errors import QueryError
from penstock_bench.measure.adapters.embedded import Embedded, EmbeddedEngine
from penstock_bench.measure.adapters.rehearsal import Rehearsed, made_events
from penstock_bench.measure.setup.read import parse_setup

TEXT = {"penstock": "SELECT id, SUM(a1) AS total FROM s [ROWS 100] GROUP BY id"}


def test_the_answers_are_those_without_it() -> None:
    setup = setup_of(TEXT)
    batches = [("s", events(2_000))]
    assert_same(ours(setup, batches), answers(Rehearsed(EmbeddedEngine), setup, batches))


def test_the_engine_is_another_one_and_the_first_is_closed() -> None:
    calls: list[tuple[int, str]] = []

    class Engine(EmbeddedEngine):
        number = 0

        def __init__(self) -> None:
            super().__init__()
            Engine.number += 1
            self.own = Engine.number

        def push(self, stream: str, batch: pa.RecordBatch) -> None:
            calls.append((self.own, f"push {batch.num_rows}"))
            super().push(stream, batch)

        def close(self) -> None:
            calls.append((self.own, "close"))
            super().close()

    answers(Rehearsed(Engine), setup_of(TEXT), [("s", events(10))])
    assert calls == [(2, "push 1000"), (2, "close"), (1, "push 10"), (1, "close")]


def test_it_can_be_left_out() -> None:
    assert isinstance(Embedded(setup_of(TEXT)).engine(), Rehearsed)
    without = setup_of(TEXT, options={"warm_up": False})
    assert isinstance(Embedded(without).engine(), EmbeddedEngine)
    assert_same(ours(setup_of(TEXT), [("s", events(10))]), ours(without, [("s", events(10))]))


def test_a_mistake_in_a_query() -> None:
    with pytest.raises(QueryError, match="nothing"):
        answers(Rehearsed(EmbeddedEngine), setup_of({"penstock": "SELECT nothing FROM s"}), [])


def test_a_stream_that_is_replayed_has_one_event_with_a_time(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("id,a1\n1,2\n")
    told = setup_of(TEXT).model_dump(mode="json")
    replay = {"file": str(tmp_path / "s.csv"), "stream": "s", "pace": "max"}
    told["drivers"] = [{"name": "d", "replay": replay}]
    (row,) = made_events(parse_setup(told), "s", datetime.now(UTC)).to_pylist()
    assert row["ts"] is not None
    assert (row["id"], row["a1"]) == (None, None)
