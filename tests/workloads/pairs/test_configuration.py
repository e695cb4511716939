"""The configuration file of the Pairs tools, and real data."""

from __future__ import annotations

from pathlib import Path

import pyarrow.csv as csv
import pytest

from penstock.errors import InputError
from penstock_bench.workloads.pairs.configuration import PROPERTIES, Configuration, read_configuration, sample
from penstock_bench.workloads.pairs.market import Arrivals, Market, MarketSettings
from penstock_bench.workloads.pairs.real_ticks import correlated, read_pairs, symbols_of
from penstock_bench.workloads.pairs.tick_files import TickFormat, write_ticks

THESIS = r"""# Folder where the Data Generator tool saves its output.
dGenFolder=./data/
qGenFolder=./queries/
translatorFolder=./impl/Esper/
validFolder=./valid/
scaleFactor=2
fileCount=1
sutFile=log\\SF=2.1.log
skipInputValidation=true
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "pairs.properties"
    path.write_text(text)
    return path


def test_the_file_of_the_thesis_is_read(tmp_path: Path) -> None:
    read = read_configuration(written(tmp_path, THESIS))
    assert read.data_folder == tmp_path / "data"
    assert read.translator_folder == tmp_path / "impl" / "Esper"
    assert read.scale_factor == 2
    assert read.skip_input_validation
    assert read.sut_file == tmp_path / r"log\SF=2.1.log"


def test_our_own_properties_reach_the_market(tmp_path: Path) -> None:
    text = (
        "seed=7\narrivals=CONSTANT\ntickFormat = csv\nphases=0.25\n! a comment\nbasisRate=1e3\nvarying\\\nRate=false\n"
    )
    read = read_configuration(written(tmp_path, text))
    assert read.tick_format is TickFormat.CSV
    assert read.market == MarketSettings(
        seed=7, arrivals=Arrivals.CONSTANT, shortened=0.25, basis_rate=1000.0, varying_rate=False
    )


def test_the_sample_has_every_property_and_says_the_defaults(tmp_path: Path) -> None:
    text = sample()
    assert all(f"{item.name}=" in text for item in PROPERTIES)
    read = read_configuration(written(tmp_path, text))
    assert read.market == Configuration().market
    assert read.data_folder == tmp_path / "data"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("scalefactor=2", "did you mean scaleFactor"),
        ("scaleFactor", "no value"),
        ("scaleFactor=x", "whole number from 1"),
        ("\n\nscaleFactor=-1", "line 3"),
        ("seed=1\nseed=2", "there twice"),
        ("skipInputValidation=yes", "true or false"),
        ("arrivals=often", "poisson or constant"),
        ("phases=nan", "a number"),
        ("dGenFolder=", "path"),
    ],
)
def test_what_is_wrong_is_told_with_the_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        read_configuration(written(tmp_path, text))


def test_pairs_that_move_together_are_found_in_real_data(tmp_path: Path) -> None:
    settings = MarketSettings(
        shortened=0.02, symbols=12, correlations=3, strategies=3, correlation=0.95, basis_rate=1000
    )
    market = Market(settings)
    (path,) = write_ticks(market.ticks(), market.symbols, tmp_path, 1, TickFormat.CSV)
    symbols, count = symbols_of(path)
    assert set(symbols) == set(market.symbols)
    assert count == csv.read_csv(path).num_rows
    found = correlated(path, symbols, 3)
    assert {frozenset(pair) for pair in found} == {frozenset(pair) for pair in market.correlations}


def test_pairs_of_real_data_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("AAA,BBB\nCCC,DDD\n")
    assert read_pairs(path, ["AAA", "BBB", "CCC", "DDD"]) == (("AAA", "BBB"), ("CCC", "DDD"))
    with pytest.raises(InputError, match="line 2: 'DDD' is no symbol"):
        read_pairs(path, ["AAA", "BBB", "CCC"])


def test_symbols_of_real_data_are_words(tmp_path: Path) -> None:
    path = tmp_path / "real.csv"
    path.write_text('"A,B",100,10,5\nCCC,100,10,5\n')
    with pytest.raises(InputError, match="'A,B' cannot be a symbol"):
        symbols_of(path)
