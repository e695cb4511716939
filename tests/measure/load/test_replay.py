"""Files replayed: every format and pace, and files that are not as they should be."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from penstock.errors import InputError
from penstock_bench.measure.load.arrivals import Times
from penstock_bench.measure.load.replay import ReplayLeg
from penstock_bench.measure.load.share import Share
from penstock_bench.measure.setup.model import Replay, Stream

STREAMS = {
    "trades": Stream.model_validate({"columns": {"ts": "TIMESTAMP", "sym": "STRING", "price": "DOUBLE"}}),
    "news": Stream.model_validate({"columns": {"ts": "TIMESTAMP", "text": "STRING"}}),
}
NOON = 1_704_110_400_000_000
"""2024-01-01 12:00."""


def leg(file: Path, share: Share | None = None, **about: object) -> ReplayLeg:
    replay = Replay.model_validate({"file": file, **about})
    return ReplayLeg(replay, STREAMS, share or Share(), "drivers.d.replay")


def all_of(one: ReplayLeg, rows: int = 8192) -> tuple[Times, dict[str, list[tuple[object, ...]]], Times]:
    """Times, rows of each stream (place first), and stamps."""
    times, stamps, sent = [np.empty(0, np.int64)], [np.empty(0, np.int64)], {}
    before = 0
    while (stretch := one.take(rows)) is not None:
        assert 0 < len(stretch.times) <= rows
        for part in stretch.parts:
            count = len(next(iter(part.columns.values())))
            places = np.arange(count) if part.places is None else part.places
            columns = [column.to_pylist() for column in part.columns.values()]
            sent.setdefault(part.stream, []).extend(zip((places + before).tolist(), *columns, strict=True))
        before += len(stretch.times)
        times.append(stretch.times)
        if stretch.stamps is not None:
            stamps.append(stretch.stamps)
    return np.concatenate(times), sent, np.concatenate(stamps)


@pytest.fixture(params=["csv", "csv.gz", "jsonl", "parquet"])
def trades(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"trades.{request.param}"
    if request.param == "parquet":
        rows = {"price": [1.5, 2.0, 3.0], "sym": ["a", "b", "a"], "at": [NOON, NOON + 250_000, NOON + 1_000_000]}
        parquet.write_table(pa.table(rows), path)
        return path
    if request.param == "jsonl":
        lines = [f'{{"at": {NOON + d}, "sym": "{s}", "price": {p}, "more": 1}}' for d, s, p in _rows()]
    else:
        lines = ["at,more,sym,price", *(f"{NOON + d},x,{s},{p}" for d, s, p in _rows())]
    text = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def _rows() -> list[tuple[int, str, float]]:
    return [(0, "a", 1.5), (250_000, "b", 2.0), (1_000_000, "a", 3.0)]


SENT = [(0, "a", 1.5), (1, "b", 2.0), (2, "a", 3.0)]


def test_formats_at_their_own_times(trades: Path) -> None:
    times, sent, _ = all_of(leg(trades, stream="trades", time_column="at"))
    assert times.tolist() == [0, 250_000, 1_000_000]
    assert sent == {"trades": SENT}


def test_paces(trades: Path) -> None:
    about = {"stream": "trades", "time_column": "at"}
    assert all_of(leg(trades, **about, speed=10))[0].tolist() == [0, 25_000, 100_000]
    assert all_of(leg(trades, **about, speed=0.5))[0].tolist() == [0, 500_000, 2_000_000]
    fixed = leg(trades, stream="trades", pace="fixed", rate=4)
    assert fixed.paced
    assert all_of(fixed)[0].tolist() == [0, 250_000, 500_000]
    assert fixed.due(1_000_000) == 4
    closed = leg(trades, stream="trades", pace="max")
    assert not closed.paced
    assert all_of(closed)[0].tolist() == [0, 1, 2]
    closed = leg(trades, **about, pace="max", keep_times=True)
    assert all_of(closed)[2].tolist() == [NOON, NOON + 250_000, NOON + 1_000_000]


def test_repetitions_follow_by_the_mean_gap(trades: Path) -> None:
    times, sent, stamps = all_of(leg(trades, stream="trades", time_column="at", repeat=2, keep_times=True))
    assert times.tolist() == [0, 250_000, 1_000_000, 1_500_000, 1_750_000, 2_500_000]
    assert (stamps - NOON).tolist() == times.tolist()
    assert [row[1:] for row in sent["trades"]] == [row[1:] for row in SENT * 2]
    assert all_of(leg(trades, stream="trades", pace="fixed", rate=1, repeat=3))[0].tolist() == [
        i * 1_000_000 for i in range(9)
    ]


def test_remainder_of_a_driver_beside_others(trades: Path) -> None:
    times, _, _ = all_of(leg(trades, Share(0, 1, 2, 3), stream="trades", time_column="at"))
    assert times.tolist() == [2, 249_999 + 2, 999_999 + 2]
    assert np.all(times % 3 == 2)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("first", "second", "unit"),
    [
        ("1704110400", "1704110400.5", "s"),
        ("1704110400000", "1704110400500", "ms"),
        ("1704110400000000000", "1704110400500000000", "ns"),
        ("2024-01-01T12:00:00Z", "2024-01-01T12:00:00.500Z", "us"),
        ("2024-01-01 12:00:00", "2024-01-01 12:00:00.5", "us"),
        ("12:00:00", "12:00:00.500", "us"),
    ],
)
@pytest.mark.parametrize("quoted", [False, True], ids=["csv", "jsonl"])
def test_times_as_people_write_them(tmp_path: Path, first: str, second: str, unit: str, quoted: bool) -> None:
    if quoted:
        quote = "" if first.isdigit() else '"'
        lines = [f'{{"at": {quote}{t}{quote}, "text": "x"}}' for t in (first, second)]
        path = write(tmp_path / "n.jsonl", "\n".join(lines))
    else:
        path = write(tmp_path / "n.csv", f"at;text\n{first};x\n{second};y\n")
    about = {"delimiter": ";", "time_unit": unit, "time_column": "at", "keep_times": True}
    times, _, stamps = all_of(leg(path, stream="news", **about))
    assert times.tolist() == [0, 500_000]
    assert stamps[0] % 86_400_000_000 == NOON % 86_400_000_000


def test_types_by_a_column(tmp_path: Path) -> None:
    lines = ["kind,sym,price,text", "trades,a,1.0,", "news,,,hello", "trades,b,2.0,", "news,,,world"]
    path = write(tmp_path / "mixed.csv", "\n".join(lines * 1))
    for rows in (1, 3, 100):
        times, sent, _ = all_of(leg(path, type_column="kind", pace="fixed", rate=1000), rows)
        assert times.tolist() == [0, 1000, 2000, 3000]
        assert sent == {"trades": [(0, "a", 1.0), (2, "b", 2.0)], "news": [(1, "hello"), (3, "world")]}
    only = write(tmp_path / "only.jsonl", '{"kind": "news", "text": "hi"}\n')
    assert all_of(leg(only, type_column="kind", pace="max"))[1] == {"news": [(0, "hi")]}


def test_a_record_out_of_order_is_due_with_the_one_before(tmp_path: Path) -> None:
    path = write(tmp_path / "n.csv", "at,text\n1000,a\n3000,b\n2000,c\n4000,d\n")
    times, _, stamps = all_of(leg(path, stream="news", time_column="at", keep_times=True))
    assert times.tolist() == [0, 2000, 2000, 3000]
    assert stamps.tolist() == [1000, 3000, 2000, 4000]


def test_a_long_file_is_read_in_stretches(tmp_path: Path) -> None:
    count = 50_000
    rows = {"sym": pa.array(["a"] * count), "price": pa.array(np.arange(count) * 1.0)}
    parquet.write_table(pa.table(rows), tmp_path / "t.parquet", row_group_size=10_000)
    times, sent, _ = all_of(leg(tmp_path / "t.parquet", stream="trades", pace="fixed", rate=1_000_000), 777)
    assert np.array_equal(times, np.arange(count))
    assert [row[2] for row in sent["trades"]] == list(range(count))


@pytest.mark.parametrize(
    ("name", "text", "about", "message"),
    [
        ("gone.csv", None, {"stream": "news"}, r"replay\.file: there is no file .*gone\.csv"),
        ("n.txt", "text\nx\n", {"stream": "news"}, r"add format = 'csv', 'jsonl' or 'parquet'"),
        ("n.csv", "txt\nx\n", {"stream": "news"}, r"n\.csv: column 'text' is missing; there are txt"),
        ("t.csv", "sym,price\na,1\nb,dear\n", {"stream": "trades"}, r"line 3: column 'price': 'dear' is no DOUBLE"),
        ("n.csv", "at,text\n1,x\nsoon,y\n", {"stream": "news", "time_column": "at"}, r"line 3: .*'soon'"),
        ("n.csv", "at,text\n1,x\n,y\n", {"stream": "news", "time_column": "at"}, r"line 3: column 'at' is NULL"),
        ("n.csv", "at,text\n12:00:00,x\n25:00,y\n", {"stream": "news", "time_column": "at"}, r"has a bad time"),
        (
            "n.csv",
            "at,text\n1,x\nnan,y\n",
            {"stream": "news", "time_column": "at", "time_unit": "s"},
            r"has a bad time: nan",
        ),
        (
            "n.csv",
            "at,text\n1,x\n1e300,y\n",
            {"stream": "news", "time_column": "at", "time_unit": "s"},
            r"has a bad time: 1e\+300",
        ),
        ("n.csv", "at,text\n", {"stream": "news", "time_column": "at"}, r"has no records"),
        ("n.csv", "at,text\n1,x\n2,y\n", {"stream": "news", "time_column": "at", "speed": 1e-300}, r"are never due"),
        ("n.csv", "text\nx\n", {"stream": "news", "time_column": "at"}, r"time_column: .* has no 'at'; there are text"),
        ("n.csv", "text\n", {"stream": "news"}, r"has no records"),
        ("n.csv", "", {"stream": "news"}, r"has no records"),
        ("n.jsonl", '[{"text": "x"}]', {"stream": "news"}, r"line 1: is no JSON object"),
        ("n.jsonl", '{"text": "x"}\n{"text": 5}\n', {"stream": "news"}, r"line 2: "),
        ("n.parquet", "text\n", {"stream": "news"}, r"cannot be read as parquet"),
        ("n.csv", "kind,text\nnews,x\nrumour,y\n", {"type_column": "kind"}, r"record 2 of .* is of type 'rumour'"),
        ("n.csv", "kind,text\nnews,x\ntrades,y\n", {"type_column": "kind"}, r"of type 'trades'.*columns there: news"),
        ("n.csv", "kind,text\nnews,x\n,y\n", {"type_column": "kind"}, r"record 2 of .* is of type None"),
        ("n.csv", "kind,t\nnews,x\n", {"type_column": "kind"}, r"has the columns of no stream"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str | None, about: dict[str, object], message: str) -> None:
    path = tmp_path / name
    if text is not None:
        write(path, text)
    pace = {} if "time_column" in about else {"pace": "fixed", "rate": 1}
    with pytest.raises(InputError, match=message):
        all_of(leg(path, **about, **pace))


def test_a_type_that_does_not_fit(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"text": [1, 2]}), tmp_path / "n.parquet")
    with pytest.raises(InputError, match=r"column 'text' is int64 in .* and STRING in the stream"):
        leg(tmp_path / "n.parquet", stream="news", pace="max")
