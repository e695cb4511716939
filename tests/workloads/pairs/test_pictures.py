"""The pictures of Pairs and the page of its validation."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from penstock.errors import InputError
from penstock_bench.pictures.pairs import bands_picture, rate_picture
from penstock_bench.pictures.pairs_page import validation_page
from penstock_bench.workloads.pairs.answers import compared
from penstock_bench.workloads.pairs.rates import RateCurve
from penstock_bench.workloads.pairs.strategies import Strategy
from penstock_bench.workloads.pairs.validator import Answers

from .by_hand import validated

STRATEGY = Strategy("st_00001", 1_000_000, "AAA", "BBB", 5, 3, 1.0, 0.1)


@pytest.fixture(scope="module")
def expected() -> Answers:
    prices = [100, 110, 100, 130, 145, 90, 95, 99]
    rows = [row for i, price in enumerate(prices) for row in (("AAA", price, i * 5000), ("BBB", 100, i * 5000 + 2))]
    return validated(rows, [STRATEGY])


def test_the_bands_of_a_strategy_are_drawn_with_its_orders(expected: Answers) -> None:
    drawn = bands_picture(STRATEGY, expected)
    ElementTree.fromstring(drawn)
    for label in ("ratio", "upper band", "BUY AAA", "BUY BBB", "SELL", "st_00001: AAA / BBB"):
        assert label in drawn
    with pytest.raises(InputError, match="st_00001 has no Indicator there"):
        bands_picture(STRATEGY, expected, first=100)


def test_the_rate_is_drawn() -> None:
    drawn = rate_picture(RateCurve(5000, 7500))
    ElementTree.fromstring(drawn)
    assert "measurement interval" in drawn


def test_the_page_shows_what_is_not_correct_and_nothing_else(expected: Answers) -> None:
    passed = validation_page(compared(expected, expected), expected, [STRATEGY], "a run")
    assert "passed" in passed
    assert "Orders: wrong" not in passed
    orders = expected.orders.to_pylist()
    orders[0]["price"] += 1
    del orders[1]
    given = replace(expected, orders=pa.Table.from_pylist(orders, expected.orders.schema))
    failed = validation_page(compared(expected, given), expected, [STRATEGY], "<b>a run</b>")
    assert "<b>a run" not in failed
    for words in ("failed", "Orders: wrong", "Orders: missing", "sut_price", "BUY BBB"):
        assert words in failed
    assert "Orders: undue" not in failed
