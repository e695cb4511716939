"""Flink: what passes between it and the framework, and what is told when something is missing or wrong."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from measure.adapters.answers import answers, events, setup_of
from penstock.errors import InputError
from penstock_bench.measure.adapters import flink_environment
from penstock_bench.measure.adapters.flink import Flink
from penstock_bench.measure.adapters.flink_frames import HEAD, decoded, encoded, type_of

COLUMNS = {
    "ts": "TIMESTAMP", "f": "BOOLEAN", "t": "TINYINT", "s": "SMALLINT", "i": "INT", "l": "BIGINT", "r": "FLOAT",
    "d": "DOUBLE", "x": "STRING", "y": "DATE",
}  # fmt: skip
TIME = datetime(2024, 3, 1, 0, 0, 0, 123456, tzinfo=UTC)
ROWS: list[list[Any]] = [
    [TIME, True, -1, 300, -70_000, 1 << 40, 0.5, 0.1, "grüße", date(1969, 12, 31)],
    [TIME] + [None] * 9,
    [TIME, False, 1, -300, 5, -5, -0.5, -0.1, "", date(2024, 1, 1)],
]


def every_type() -> pa.RecordBatch:
    schema = setup_of({"flink": ""}, columns=COLUMNS).streams["s"].schema_.arrow
    return pa.RecordBatch.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in ROWS], schema)


def adapter(text: str, options: dict[str, Any] | None = None, **more: Any) -> Flink:
    return Flink(setup_of({"flink": text}, "flink", options=options or {}, **more))


@pytest.mark.parametrize("part", [(0, 3), (1, 2), (2, 1), (1, 0)])
def test_a_frame_holds_a_batch(part: tuple[int, int]) -> None:
    batch = every_type().slice(*part)
    types = [type_of(kind, "q") for kind in COLUMNS.values()]
    frame = b"".join(encoded(batch, types))
    size, rows = HEAD.unpack(frame[: HEAD.size])
    assert (size, rows) == (len(frame) - HEAD.size, batch.num_rows)
    assert decoded(frame[HEAD.size :], rows, batch.schema, types).to_pylist() == batch.to_pylist()


def test_a_type_that_cannot_pass_is_refused() -> None:
    with pytest.raises(InputError, match=r"column 'n': its type DECIMAL\(10, 2\) cannot pass; CAST it"):
        type_of("DECIMAL(10, 2)", "column 'n'")


def test_a_missing_environment_is_named_with_what_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_FLINK", str(tmp_path / "none"))
    with pytest.raises(
        InputError, match=r"needs PyFlink: `python -m penstock_bench\.measure\.adapters\.flink_environment`"
    ):
        adapter("SELECT id FROM s").check()
    with pytest.raises(InputError, match=r"options\.python = 'nowhere': no such file"):
        adapter("SELECT id FROM s", {"python": "nowhere"}).check()


def test_a_python_without_pyflink_is_named() -> None:
    import sys

    with pytest.raises(InputError, match=f"{sys.executable} has no PyFlink"):
        adapter("SELECT id FROM s", {"python": sys.executable}).check()


@pytest.mark.parametrize(("name", "value"), [("parallelism", 0), ("watermarks", "often"), ("heap", "much")])
def test_options_are_checked(name: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"system\.options\.{name} = '{value}'"):
        adapter("SELECT id FROM s", {name: value}).check()


@pytest.mark.slow
def test_every_type_passes_through_flink() -> None:
    flink_environment.make()
    made = adapter("SELECT * FROM s WHERE `t` IS NULL OR `t` <> 7", {"parallelism": 2}, columns=COLUMNS)
    batch = every_type()
    got = answers(made.engine(), made.setup, [("s", batch.slice(0, 1)), ("s", batch.slice(1))])
    shown = got.drop_columns(["rowtime", "proctime"]).to_pylist()
    assert sorted(shown, key=repr) == sorted(batch.to_pylist(), key=repr)
    assert got.column("rowtime").to_pylist() == [TIME.replace(microsecond=123000)] * 3


@pytest.mark.slow
def test_a_batch_of_many_rows_passes_in_order() -> None:
    """The connector makes a thousand rows at a time."""
    flink_environment.make()
    made = adapter("SELECT * FROM s", columns=COLUMNS)
    few = pa.Table.from_batches([every_type()])
    batch = pa.concat_tables([few] * 900).combine_chunks().to_batches()[0]
    got = answers(made.engine(), made.setup, [("s", batch), ("s", batch.slice(0, 0)), ("s", batch.slice(1))])
    shown = got.drop_columns(["rowtime", "proctime"]).to_pylist()
    assert shown == [*batch.to_pylist(), *batch.slice(1).to_pylist()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT price FROM s", r"queries\.q\.text\.flink: .*Column 'price' not found"),
        ("SELECT id, COUNT(*) AS n FROM s GROUP BY id", "Flink failed: .*update changes"),
    ],
)
def test_a_mistake_in_a_text_is_told_as_flink_tells_it(text: str, said: str) -> None:
    flink_environment.make()
    made = adapter(text)
    with pytest.raises(Exception, match=said):
        answers(made.engine(), made.setup, [("s", events(10))])
