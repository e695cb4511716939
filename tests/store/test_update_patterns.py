"""Where update patterns follow from: every cell of the paper's Table 3, and its rules for several consumers."""

from __future__ import annotations

from itertools import product

import pytest

from penstock.errors import StorageError
from penstock.store.properties import UpdatePattern
from penstock.store.update_patterns import Consumption, Expiry, combined_consumption, update_pattern

NEVER, ORDERED, EAGER = Consumption.NEVER, Consumption.ORDERED, Consumption.EAGER

#                     Never Consume  Ordered Consume  Eager Consume
TABLE_3 = """
    Never Expire      NO-UPDATE      FIFO             FIFO/RANDOM
    Ordered Expire    FIFO           FIFO             FIFO/RANDOM
    Unordered Expire  RANDOM         RANDOM           RANDOM
    Replaced Expire   IN-PLACE       IN-PLACE         IN-PLACE
"""


def cells() -> list[tuple[Expiry, Consumption, str]]:
    found = []
    for line in TABLE_3.strip().splitlines():
        *expiry, never, ordered, eager = line.split()
        for consumption, cell in ((NEVER, never), (ORDERED, ordered), (EAGER, eager)):
            found.append((Expiry(" ".join(expiry)), consumption, cell))
    return found


def test_the_table_has_every_combination() -> None:
    assert {(expiry, consumption) for expiry, consumption, _ in cells()} == set(product(Expiry, Consumption))


@pytest.mark.parametrize(("expiry", "consumption", "cell"), cells())
def test_every_cell(expiry: Expiry, consumption: Consumption, cell: str) -> None:
    spare, short = (cell.split("/") * 2)[:2]
    assert update_pattern(expiry, [consumption], memory_to_spare=True) is UpdatePattern(spare)
    assert update_pattern(expiry, [consumption], memory_to_spare=False) is UpdatePattern(short)


@pytest.mark.parametrize("consumers", list(product(Consumption, repeat=3)))
def test_several_consumers(consumers: tuple[Consumption, ...]) -> None:
    combined = combined_consumption(consumers)
    if NEVER in consumers:
        assert combined is NEVER
    elif set(consumers) == {EAGER}:
        assert combined is EAGER
    else:
        assert combined is ORDERED


@pytest.mark.parametrize("expiry", list(Expiry))
@pytest.mark.parametrize("consumers", list(product(Consumption, repeat=2)))
def test_a_shared_store_is_that_of_the_combined_consumer(expiry: Expiry, consumers: tuple[Consumption, ...]) -> None:
    assert update_pattern(expiry, consumers) is update_pattern(expiry, [combined_consumption(consumers)])


def test_a_store_has_consumers() -> None:
    with pytest.raises(StorageError, match="at least one"):
        update_pattern(Expiry.NEVER, [])
