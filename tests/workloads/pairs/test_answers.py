"""The report of the validator: what is correct, missing, undue and wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pytest

from penstock.errors import InputError
from penstock_bench.workloads.pairs.answer_files import read_answers, read_expected, write_answers
from penstock_bench.workloads.pairs.answers import compared
from penstock_bench.workloads.pairs.market import Market, MarketSettings
from penstock_bench.workloads.pairs.strategies import strategies
from penstock_bench.workloads.pairs.validator import INDICATOR, MARKET_ORDER, Answers, expected_answers


@pytest.fixture(scope="module")
def expected() -> Answers:
    market = Market(MarketSettings(1, shortened=0.04))
    return expected_answers(market.ticks(), lambda: market.symbols, strategies(market.correlations, 25, 1))


def changed(table: pa.Table, row: int, column: str, value: object) -> pa.Table:
    rows = table.to_pylist()
    rows[row][column] = value
    return pa.Table.from_pylist(rows, table.schema)


def test_the_same_answers_pass_in_any_order(expected: Answers) -> None:
    reversed_ = pa.array(range(expected.indicators.num_rows - 1, -1, -1))
    report = compared(expected, replace(expected, indicators=expected.indicators.take(reversed_)))
    assert report.passed
    assert report.bad_answers == 0
    assert report.text().startswith("Validation result: PASSED\n- Indicators:\n  # validator answers: ")


def test_missing_undue_and_wrong_are_told_apart(expected: Answers) -> None:
    indicators = changed(expected.indicators, 2, "upperBand", expected.indicators["upperBand"][2].as_py() * (1 + 1e-8))
    indicators = changed(indicators, 3, "ratio", float("nan")).slice(1)
    orders = changed(expected.orders, 0, "size", 1)
    orders = changed(orders, 1, "strategy", "st_99999")
    orders = pa.concat_tables([orders, orders.slice(2, 1)])
    report = compared(expected, Answers(indicators, orders))
    assert not report.passed
    counts = [(s.missing.num_rows, s.undue.num_rows, s.wrong.num_rows) for s in (report.indicators, report.orders)]
    assert counts == [(1, 0, 2), (1, 2, 1)]
    assert report.bad_answers == 7
    assert report.orders.correct == expected.orders.num_rows - 2
    assert report.indicators.correct == expected.indicators.num_rows - 3
    names = ["strategy", "type", "inputTickTS", "val_symbol", "sut_symbol", "val_price", "sut_price"]
    assert report.orders.wrong.column_names == [*names, "val_size", "sut_size"]
    wrong = report.orders.wrong.to_pylist()[0]
    assert (wrong["val_size"], wrong["sut_size"]) == (expected.orders["size"][0].as_py(), 1)
    assert report.orders.undue["strategy"].to_pylist()[0] == "st_99999"
    assert "# undue answers: 2" in report.text()
    assert report.text().startswith("Validation result: FAILED!")


def test_last_digits_of_indicators_do_not_matter(expected: Answers) -> None:
    value = expected.indicators["avgRatio"][0].as_py()
    close = changed(expected.indicators, 0, "avgRatio", value * (1 + 1e-12))
    assert compared(expected, replace(expected, indicators=close)).passed


def test_two_orders_of_one_kind_at_one_tick_are_two_answers() -> None:
    rows = [("s", "SELL", "AAA", 1, 10, 5), ("s", "BUY", "BBB", 2, 10, 5), ("s", "SELL", "BBB", 2, 10, 5)]
    orders = pa.Table.from_pylist([dict(zip(MARKET_ORDER.names, row, strict=True)) for row in rows], MARKET_ORDER)
    both = Answers(INDICATOR.empty_table(), orders)
    assert compared(both, both).orders.correct == 3
    assert compared(both, replace(both, orders=orders.slice(0, 2))).orders.missing.num_rows == 1


def test_nothing_given_is_all_missing(expected: Answers) -> None:
    report = compared(expected, Answers(INDICATOR.empty_table(), MARKET_ORDER.empty_table()))
    assert report.orders.missing.num_rows == expected.orders.num_rows
    assert report.orders.correct == report.orders.wrong.num_rows == 0


def test_files_of_answers_come_back(tmp_path: Path, expected: Answers) -> None:
    write_answers(tmp_path, expected)
    assert read_expected(tmp_path) == expected
    (tmp_path / "Indicator.parquet").unlink()
    csv.write_csv(
        expected.indicators.append_column("inputTS", expected.indicators["inputTickTS"]), tmp_path / "Indicator.csv"
    )
    assert compared(expected, read_answers(tmp_path)).passed


def test_a_log_of_both_streams_is_read(tmp_path: Path, expected: Answers) -> None:
    lines = [",".join(map(str, ("Indicator", *row.values(), 7))) for row in expected.indicators.to_pylist()]
    lines += [",".join(map(str, ("MarketOrder", *row.values(), 7))) for row in expected.orders.to_pylist()]
    path = tmp_path / "run.log"
    path.write_text("\n".join(lines) + "\n")
    assert compared(expected, read_answers(path)).passed


def test_files_that_are_no_answers_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_answers(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"neither Indicator\.parquet"):
        read_answers(tmp_path)
    (tmp_path / "Indicator.csv").write_text("strategy,ratio\ns,1\n")
    with pytest.raises(InputError, match="no answers"):
        read_answers(tmp_path)
    (tmp_path / "run.log").write_text("Indicator,s,x,1,1,1,5,5\n")
    with pytest.raises(InputError, match="no log"):
        read_answers(tmp_path / "run.log")
