"""The query generator of Pairs and the neutral XML."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from penstock.errors import InputError
from penstock_bench.workloads.pairs.market import Market, MarketSettings
from penstock_bench.workloads.pairs.setup_xml import read_strategies, write_strategies
from penstock_bench.workloads.pairs.strategies import Strategy, strategies, user_of

GOOD = (
    '<PairsStrategy alias="st_00001" availableFunds="1000000" symbol1="MCBEIV" symbol2="AYFBLW" '
    'periodLength="20" numPeriods="5" bandsMultiplier="1.25" stopLossPerc="0.3"></PairsStrategy>'
)


def test_each_correlation_is_covered_once_then_again_up_to_ten_then_the_next_market() -> None:
    market = Market(MarketSettings(15))
    made = strategies(market.correlations, 375, seed=1)
    pairs = [(strategy.symbol1, strategy.symbol2) for strategy in made]
    assert pairs[:25] == list(market.correlations[:25])
    assert set(Counter(pairs[:250]).values()) == {10}
    assert Counter(pairs[250:]) == dict.fromkeys(market.correlations[25:], 5)
    for pair in market.correlations:
        users = [user_of(number) for number, of in enumerate(pairs) if of == pair]
        assert len(set(users)) == len(users)
    assert user_of(374) == 74
    assert [made[0].alias, made[374].alias] == ["st_00001", "st_00375"]


def test_parameters_are_those_of_the_table_and_all_of_them() -> None:
    made = strategies(Market(MarketSettings(100)).correlations, 2500, seed=3)
    assert {s.available_funds for s in made} == {1_000_000, 2_000_000, 5_000_000}
    assert {s.period_length for s in made} == {5, 10, 20, 30, 60}
    assert {s.num_periods for s in made} == {5, 6, 7, 8, 9, 10, 15, 20, 25, 30}
    assert {s.bands_multiplier for s in made} == {1.2, 1.5, 1.8, 2.0}
    assert {s.stop_loss_perc for s in made} == {0.1, 0.2, 0.3}


def test_too_many_strategies_are_told() -> None:
    with pytest.raises(InputError, match="from 1 to 250"):
        strategies(Market(MarketSettings(1)).correlations, 251, seed=1)


def test_xml_comes_back(tmp_path: Path) -> None:
    made = strategies(Market(MarketSettings(4)).correlations, 100, seed=1)
    write_strategies(tmp_path / "s.xml", made)
    assert read_strategies(tmp_path / "s.xml") == made


def test_the_example_of_the_thesis_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.xml"
    path.write_text(f"<Strategies>{GOOD}</Strategies>")
    assert read_strategies(path) == [Strategy("st_00001", 1_000_000, "MCBEIV", "AYFBLW", 20, 5, 1.25, 0.3)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('<!DOCTYPE x [<!ENTITY a "b">]><Strategies/>', "document type"),
        ('<!DOCTYPE x SYSTEM "file:///etc/hostname"><Strategies/>', "document type"),
        ("<Strategies>", "not well-formed"),
        ("", "not well-formed"),
        ("<Strategies/>", "no <PairsStrategy>"),
        ("<Other/>", "<Other> is not expected"),
        ("<Strategies><x/></Strategies>", "<x> is not expected"),
        (f"<Strategies>{GOOD.replace('></', '><x/></')}</Strategies>", "<x> is not expected"),
        (f"<Strategies>{GOOD}{GOOD}</Strategies>", "st_00001 is there twice"),
        (f"<Strategies>text{GOOD}</Strategies>", "'text' is not expected"),
        (f"<Strategies>{GOOD.replace('alias=', 'name=')}</Strategies>", "no alias"),
        (f"<Strategies>{GOOD.replace('alias=', 'more=' + chr(34) * 2 + ' alias=')}</Strategies>", "more is not an"),
        (f"<Strategies>{GOOD.replace('st_00001', 'x; DROP')}</Strategies>", "alias is 'x; DROP'"),
        (f"<Strategies>{GOOD.replace('1000000', '-1')}</Strategies>", "availableFunds is '-1'"),
        (f"<Strategies>{GOOD.replace('1000000', '9' * 30)}</Strategies>", "availableFunds"),
        (f"<Strategies>{GOOD.replace('1.25', 'nan')}</Strategies>", "bandsMultiplier is 'nan'"),
        (f"<Strategies>{GOOD.replace('1.25', '1e9')}</Strategies>", "bandsMultiplier"),
        (f"<Strategies>{GOOD.replace('0.3', '0')}</Strategies>", "stopLossPerc is '0'"),
        (f"<Strategies>{GOOD.replace('AYFBLW', 'MCBEIV')}</Strategies>", "both MCBEIV"),
        ('<?xml version="1.0" encoding="nothing"?><Strategies/>', "XML"),
    ],
)
def test_hostile_or_wrong_xml_is_refused_with_the_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "s.xml"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        read_strategies(path)
