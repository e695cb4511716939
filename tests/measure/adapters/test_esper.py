"""Esper gives the answers of Penstock to the same questions; what goes wrong is told in its words."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from measure.adapters.answers import EPOCH, SECOND, answers, assert_same, events, ours, setup_of
from penstock.errors import InputError, PenstockError
from penstock_bench.measure.adapters.esper import Esper, EsperEngine


def esper(heap: str = "512m", arrays: bool = True) -> EsperEngine:
    return EsperEngine(heap, arrays)


QUESTIONS = {
    "filter": ("SELECT id, a1, ts FROM s WHERE id <= 3", "select id, a1, ts from s(id <= 3)"),
    "rows": (
        "SELECT id, STDDEV(a1) AS v FROM s [ROWS 500] GROUP BY id",
        "select id, stddev(a1) as v, ts as window_end from s#length(500) group by id",
    ),
    "tumbling rows": (
        "SELECT id, MEDIAN(a1) AS v FROM s [ROWS 500 SLIDE 500] GROUP BY id",
        "select id, median(a1) as v, current_timestamp() as window_end from s#length_batch(500) group by id",
    ),
    "range": (
        "SELECT id, MAX(a1) AS v FROM s [RANGE 750 MILLISECONDS SLIDE 100 MILLISECONDS] GROUP BY id",
        """select id, max(a1) as v, current_timestamp() as window_end from s#time(750 msec)
           group by id output snapshot every 100 msec""",
    ),
    "two levels": (
        """SELECT SUM(s1) / SUM(c1) AS v
           FROM (SELECT SUM(a1) AS s1, COUNT(a1) AS c1 FROM s [RANGE 100 MILLISECONDS SLIDE 100 MILLISECONDS])
                [RANGE 1 SECOND]""",
        """insert into parts select sum(a1) as s1, count(a1) as c1, current_timestamp() as at
           from s#time_batch(100 msec, 0L);
           select sum(s1) / sum(c1) as v from parts#ext_timed(at, 1 sec)""",
    ),
    "pattern": (
        """SELECT x.id, x.a1, y.a1 AS b1, y.ts AS ts FROM PATTERN SEQ(s x, s y)
           WHERE x.id = y.id AND y.a1 > 95 WITHIN 1 SECOND""",
        """select x.id as id, x.a1 as a1, y.a1 as b1, y.ts as ts
           from pattern [every x=s -> (every y=s(id = x.id and a1 > 95)) where timer:within(1 sec)]""",
    ),
}


@pytest.mark.parametrize("arrays", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", QUESTIONS)
def test_the_same_question_has_the_same_answer(name: str, arrays: bool) -> None:
    penstock, text = QUESTIONS[name]
    setup = setup_of({"penstock": penstock, "esper": text})
    batch = events(2_100)
    cut = [("s", batch.slice(start, 300)) for start in range(0, 2_100, 300)]
    assert_same(ours(setup, cut), answers(esper(arrays=arrays), setup, cut))


def test_a_join_of_two_windows() -> None:
    setup = setup_of(
        {
            "penstock": """SELECT x.id, x.a1, y.a1 AS b1 FROM one [ROWS 50] AS x, two [ROWS 50] AS y
                           WHERE x.id = y.id""",
            "esper": """select x.id as id, x.a1 as a1, y.a1 as b1, current_timestamp() as window_end
                        from one#length(50) as x, two#length(50) as y where x.id = y.id""",
        },
        streams=("one", "two"),
    )
    sides = {"one": events(150, 50, 1), "two": events(150, 50, 2, shift_us=500)}
    alternating = [(name, side.slice(i, 1)) for i in range(150) for name, side in sides.items()]
    assert_same(ours(setup, alternating), answers(esper(), setup, alternating))


def test_events_find_rows_of_a_table(tmp_path: Path) -> None:
    made = {"id": {"generator": "sequential"}, "b": {"generator": "constant", "value": "x"}}
    table = {"columns": {"id": "INT", "b": "STRING"}, "key": "id", "rows": 7, "fields": made}
    setup = setup_of(
        {
            "penstock": "SELECT s.id, a1, ts, b FROM s, t WHERE s.id = t.id",
            "esper": """select s.id as id, s.a1 as a1, s.ts as ts, t.b as b
                        from s unidirectional, t where s.id = t.id""",
        },
        tables={"t": table},
    )
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": pa.array(range(1, 8), pa.int32()), "b": [f"ä{i}" for i in range(7)]}), file)
    batches = [("s", events(500))]
    assert_same(ours(setup, batches, {"t": file}), answers(esper(), setup, batches, {"t": file}))


def test_every_type_passes_and_so_does_null() -> None:
    columns = {
        "ts": "TIMESTAMP", "f": "BOOLEAN", "t": "TINYINT", "s": "SMALLINT", "i": "INT", "l": "BIGINT", "r": "FLOAT",
        "d": "DOUBLE", "x": "STRING", "y": "DATE",
    }  # fmt: skip
    setup = setup_of({"esper": "select * from s"}, columns=columns)
    schema = setup.streams["s"].schema_.arrow
    time = datetime(2024, 3, 1, tzinfo=UTC)
    full = [time, True, -1, 300, -70_000, 1 << 40, 0.5, 0.1, "grüße", date(1969, 12, 31)]
    rows = [full, [time] + [None] * 9, [time, False, 1, -300, 5, -5, -0.5, -0.1, "", date(2024, 1, 1)]]
    batch = pa.RecordBatch.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema)
    got = answers(esper(), setup, [("s", batch.slice(1)), ("s", batch.slice(0, 1))])
    days = [None if row[-1] is None else (row[-1] - date(1970, 1, 1)).days for row in rows]  # type: ignore[attr-defined]
    wanted = [dict(zip(columns, [*row[:-1], day], strict=True)) for row, day in zip(rows, days, strict=True)]
    assert got.to_pylist() == [wanted[1], wanted[2], wanted[0]]


def test_slides_go_on_where_no_events_come() -> None:
    setup = setup_of(
        {
            "esper": """select count(*) as n, current_timestamp() as window_end from s#time(1 sec)
                     output snapshot every 1 sec"""
        }
    )
    far = events(2, every_us=3 * SECOND)
    got = answers(esper(), setup, [("s", far)]).to_pydict()
    ends = [int((end - datetime.fromtimestamp(EPOCH // SECOND, UTC)).total_seconds()) for end in got["window_end"]]
    assert dict(zip(ends, got["n"], strict=True)) == {1: 0, 2: 0, 3: 0, 4: 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("selec id from s", "queries.q.text.esper: Incorrect syntax near 'selec'"),
        ("select price from s", "'price' is not valid in any stream"),
        ("select x from pattern [every x=s]", "column 'x' is a .*name single values"),
    ],
)
def test_a_mistake_in_a_text_is_told_as_esper_tells_it(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        answers(esper(), setup_of({"esper": text}), [])


def test_a_query_needs_a_text_for_esper() -> None:
    with pytest.raises(InputError, match=r"queries\.q\.text\.esper: is missing"):
        answers(esper(), setup_of({"penstock": "SELECT id FROM s"}), [])


def test_what_fails_at_an_event_is_an_error() -> None:
    setup = setup_of({"esper": "select cast(cast(id, string) || 'x', int) as n from s"})
    with pytest.raises(PenstockError, match="Esper failed"):
        answers(esper(), setup, [("s", events(1))])


@pytest.mark.parametrize(
    ("options", "said"), [({"heap": "many"}, "heap = 'many'"), ({"events": "bean"}, "events = 'bean'")]
)
def test_options_are_checked(options: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Esper(setup_of({"esper": "select id from s"}, "esper", options=options)).check()


IN_A_PROCESS = """
import sys
sys.path.insert(0, {tests!r})
{before}
from measure.adapters.answers import answers, events, setup_of
from penstock.errors import PenstockError
from penstock_bench.measure.adapters.esper import Esper
setup = setup_of({{"esper": "select count(*) as n from s#keepall"}}, "esper", options={{"heap": "64m"}})
adapter = Esper(setup)
try:
    adapter.check()
    answers(adapter.engine(), setup, [("s", events(20_000))] * 100)
except PenstockError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("before", "said"),
    [
        pytest.param(
            "", "Esper is out of memory: the heap has 64m; system.options.heap gives more", marks=pytest.mark.slow
        ),
        ("sys.modules['jpype'] = None", "adapter 'esper' needs JPype: pip install 'penstock-bench[esper]'"),
    ],
)
def test_what_is_missing_is_named(before: str, said: str) -> None:
    root = str(Path(__file__).parents[2])
    program = IN_A_PROCESS.format(tests=root, before=before)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout.strip() == said, ran.stderr
