"""The page is made from results alone: each item of the papers once, the same to the byte, what is missing said."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import InputError
from penstock_bench.measure.reproduction.page import IMAGES, PAGE, write
from penstock_bench.measure.reproduction.papers import PAPERS
from penstock_bench.measure.results.summary import summarise

from ..results.handmade import Handmade, setup

WANTED = {
    "slidem": ["Figure 10", "Table 1", "Figure 11"],
    "rs-algo": [*(f"Figure {n}" for n in (4, 5, 6, 7, 8, 9, 11)), "Table 1", "Table 2"],
    "sms": ["Figure 10", "Load level", "Table 6", "Table 7"],
    "sliding-graphs": [*(f"Figure {n}" for n in range(5, 10)), "Table I", "Table II"],
    "thesis": [
        *(f"Figure 4.{n}" for n in range(3, 19)),
        *(f"Figure 5.{n}" for n in range(8, 13)),
        *(f"Table {n}" for n in ("4.3", "4.4", "4.5", "5.1", "5.2", "5.3", "7.1")),
    ],
}
MACHINE = {"cpu": "a processor", "cores": 2, "load": 0.3, "libraries": {"numpy": "2.0", "polars": None}}


def bench(directory: Path, name: str, size: str = "quick", **figures: Any) -> None:
    found = {"bench": name, "size": size, **figures, "machine": MACHINE}
    (directory / f"{name}.json").write_text(json.dumps(found))


def micro_run(directory: Path, adapter: str, window: int, rate: float | None) -> None:
    parameters = {"window": window, "function": "AVG", "warm_up": 2, "seconds": 3}
    run_of(directory, "aggregation-sliding", adapter, parameters, rate)


def run_of(directory: Path, name: str, adapter: str, parameters: dict[str, Any], rate: float | None) -> None:
    run = directory / "micro" / name / adapter / "runs" / ",".join(map(str, parameters.values()))
    run.mkdir(parents=True)
    summary = {"adapter": adapter, "parameters": parameters, "state": "failed" if rate is None else "done"}
    (run / "summary.json").write_text(json.dumps({**summary, "throughput": {"events_per_second": rate}}))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some results: of a bench in full, of others quick, and a microbenchmark on two systems with a run that failed. No
    test changes them."""
    directory = tmp_path_factory.mktemp("results")
    row = {"rate": 50_000, "space_gb": 4.3215, "average_ms": 0.5, "max_ms": 6.25, "cpu_percent": 44.9}
    bench(directory, "vwap", "full", table_1=[row, {"rate": 300_000, "skipped": "the disk is too small"}])
    bench(directory, "remote-time", tables_1_and_2=[{"minutes": 3, "way": "algorithm_2", "slide_1": "03:48"}])
    bench(directory, "join-db", by_rows={"1000": {"single": 1.0, "batched": 654_321.0, "cached": 3.0}})
    bench(
        directory,
        "rate-sizing",
        saving_async=0.98,
        runs={"q3-async": dict.fromkeys(OWN_PARTS, 1.0)},
        series={"q3-async": {"waits": [[40, 1.5], [41, 2.5]], "sizes": {"q3.r": [[40, 10]]}}},
    )
    point = {"sf": 100, "p_score": 240_000.0, "sustained": True, "p99_ms": 5.0}
    counted = {"edges_ms": [1.0, 2.0, 5.0], "orders": [3.0, 4.0]}
    bench(directory, "pairs", series={"by_sf": {"penstock": [point]}, "histogram": {"penstock": counted}})
    micro_run(directory, "embedded", 500, 7_654_321)
    micro_run(directory, "flink", 500, 1234)
    micro_run(directory, "flink", 5000, None)
    run_of(directory, "selection", "esper", {"selectivity": 1}, 11)
    run_of(directory, "selection", "embedded", {"selectivity": 1}, 22)
    run_of(directory, "projection", "esper", {"attributes": 5}, 33)
    return directory


OWN_PARTS = ("sampling_us", "algorithm_us", "resizing_us", "wait_in_join_s", "service_s", "work_us", "held_r")


def made(results: Path, docs: Path) -> str:
    docs.mkdir(exist_ok=True)
    return write(results, docs).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page of the results goes. A figure lies there already, of an item that is gone."""
    directory = tmp_path_factory.mktemp("docs")
    (directory / IMAGES).mkdir(parents=True)
    (directory / IMAGES / "of-an-item-that-is-gone.svg").write_text("<svg/>")
    return directory


@pytest.fixture(scope="module")
def page(results: Path, docs: Path) -> str:
    return made(results, docs)


def section(page: str, paper: str, name: str) -> str:
    title = next(known.title for known in PAPERS if known.key == paper)
    of_paper = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return of_paper.partition(f"### {name}: ")[2].partition("\n### ")[0]


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.key)
def test_every_table_and_figure_is_there_once(paper: Any, page: str) -> None:
    of_paper = page.partition(f"## {paper.title}\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^### ((?:Figure|Table|Load) [\w.]+):", of_paper, re.MULTILINE)) == sorted(
        WANTED[paper.key]
    )
    assert of_paper.count("**Differences**: ") == len(WANTED[paper.key])


def test_numbers_of_both_come_through(page: str) -> None:
    table = section(page, "slidem", "Table 1")
    assert "| 50,000 | 4.7 | 4.32 | 0.009 | 0.5 | 2.9 | 6.25 |" in table
    assert "| 300,000 | 28.2 | the disk is too small | 0.008 | – | 18.9 | – |" in table
    assert "`penstock bench vwap`" in table
    assert "| Algorithm 2, ours | 03:48 | – |" in section(page, "sliding-graphs", "Table I")
    assert "| 97.98 % | 98.00 % |" in section(page, "rs-algo", "Figure 7")
    assert "| Map | 0.8 | 5.5 | 51.4 | 511.5 | 5,112.9 | – |" in section(page, "thesis", "Table 5.1")
    assert "654,321" in section(page, "thesis", "Figure 4.13")
    counts = section(page, "thesis", "Figure 4.5")
    assert "| sliding, AVG, Penstock | 7,654,321 | – | – | – |" in counts
    assert "| sliding, AVG, Flink | 1,234 | – | – | – |" in counts
    filters = section(page, "thesis", "Figure 4.3")
    assert "| events/s | Penstock | Esper |" in filters
    assert "| selection, 1 % | 22 | 11 |" in filters
    assert "| projection, 5 attributes | – | 33 |" in filters
    pairs = section(page, "thesis", "Table 7.1")
    assert "| 2 | 50 | 175 | 24 | 34.29 | 250.0 | – | – | – |" in pairs
    assert "| 100 | 2,500 | – | – | – | – | 5 | 240,000 | yes |" in pairs
    assert "| thesis, X | Q3 | 187 | 1,553 | out of memory |" in section(page, "thesis", "Table 4.3")


def test_what_was_cut_down_is_said_by_the_size_of_the_run(page: str) -> None:
    assert "a minute instead of an hour" not in section(page, "slidem", "Table 1")
    assert "Two minutes of event time instead of three" in section(page, "rs-algo", "Figure 7")
    assert "Three seconds" in section(page, "thesis", "Figure 4.5")
    assert "`penstock bench sweep aggregation-sliding --quick`" in section(page, "thesis", "Figure 4.5")
    assert "As a microbenchmark J3 goes to 1 million rows" in section(page, "thesis", "Figure 4.13")


def test_a_busy_machine_is_said(results: Path, tmp_path: Path) -> None:
    busy = tmp_path / "busy"
    busy.mkdir()
    for name, load in (("join-db", 9.5), ("vwap", 0.3)):
        figures = json.loads((results / f"{name}.json").read_text())
        (busy / f"{name}.json").write_text(json.dumps({**figures, "machine": {**MACHINE, "load": load}}))
    page = made(busy, tmp_path / "docs")
    assert "**On a busy machine**" in section(page, "thesis", "Figure 4.13")
    assert page.count("**On a busy machine**") == 1


def test_what_is_missing_is_said(page: str) -> None:
    for paper, name, source in (("slidem", "Figure 11", "ssm"), ("sms", "Table 6", "stores")):
        assert f"**Not measured yet**: `penstock bench {source}`" in section(page, paper, name)
        assert "![" not in section(page, paper, name)
    assert "**Not measured yet**: `penstock bench join-table`" in section(page, "thesis", "Figure 4.13")
    assert "**Not measured yet**" not in section(page, "slidem", "Table 1")
    assert "| [slidem](" in page


def test_nothing_measured_is_a_page_as_well(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    page = made(tmp_path / "empty", tmp_path / "docs")
    assert "Machine: nothing" in page
    assert page.count("**Not measured yet**") == sum(bool(item.sources) for paper in PAPERS for item in paper.items)
    # Only the load that the thesis defines is drawn.
    assert [image.name for image in (tmp_path / "docs" / IMAGES).iterdir()] == ["thesis-figure-4-16.svg"]


def test_page_and_figures_are_the_same_to_the_byte_and_name_no_machine_but_once(
    results: Path, docs: Path, page: str, tmp_path: Path
) -> None:
    first, second = docs, tmp_path / "second"
    made(results, second)
    files = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(second) for path in second.rglob("*") if path.is_file())
    assert all((first / file).read_bytes() == (second / file).read_bytes() for file in files)
    assert page.count("a processor") == 1
    assert "Machine: cpu a processor; cores 2; libraries numpy 2.0.\n" in page
    assert not any(str(path) in page for path in (results, first, second))


def test_figures_are_svg_that_the_page_shows(docs: Path, page: str) -> None:
    shown = sorted(re.findall(rf"\]\({IMAGES}/([\w-]+\.svg)\)", page))
    assert shown == sorted(path.name for path in (docs / IMAGES).iterdir())
    assert "rs-algo-figure-4.svg" in shown
    for name in shown:
        drawn = (docs / IMAGES / name).read_text(encoding="utf-8")
        assert ET.fromstring(drawn).tag.endswith("svg")
        assert len(drawn) < 60_000
    assert "paper: average" in (docs / IMAGES / "rs-algo-figure-4.svg").read_text(encoding="utf-8")


def test_a_burst_is_drawn_from_the_logs_of_its_run(tmp_path: Path) -> None:
    """Three phases of a second each; results take 10 ms, in the peak 500."""
    phases = [{"name": name, "duration": 1, "rate": 1} for name in ("steady", "peak", "recovery")]
    made_run = Handmade(tmp_path / "results" / "micro" / "adaptivity" / "embedded", setup(phases))
    ends = [1000, 2000, 3000]
    made_run.sent([("s", i, end * 1000, end * 1000, 1, end, end, end) for i, end in enumerate(ends)])
    made_run.taken([("q", end * 1000, end + late, end + late) for end, late in zip(ends, (10, 500, 10), strict=True)])
    made_run.happened({"state": "done"})
    summarise(made_run.path)
    page = made(tmp_path / "results", tmp_path / "docs")
    table = section(page, "thesis", "Table 4.5")
    assert "| 4,725.0 | 1,262.0 | 1,483.0 | 500 |" in table
    assert "| peak latency degradation ratio | 82.8 | 57.4 | 5.9 | 50 |" in table
    assert "`penstock bench all --only adaptivity --full`" in table
    assert "images/reproduction/thesis-figure-4-17.svg" in section(page, "thesis", "Figure 4.17")
    drawn = (tmp_path / "docs" / IMAGES / "thesis-figure-4-17.svg").read_text(encoding="utf-8")
    assert all(name in drawn for name in ("steady", "peak", "recovery", "Penstock"))


def test_results_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.*no such directory"):
        write(tmp_path / "nowhere", tmp_path)
    (tmp_path / "vwap.json").write_text('{"bench": "vw')
    with pytest.raises(InputError, match=r"vwap\.json: is no JSON of results"):
        write(tmp_path, tmp_path)
    assert not (tmp_path / PAGE).exists()
