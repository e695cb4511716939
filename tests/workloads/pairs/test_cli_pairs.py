"""`penstock pairs`, from generated or real ticks to a report."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

from penstock.cli.command import app
from penstock.errors import InputError
from penstock_bench.benches.pairs_systems import STREAMS, SYSTEMS
from penstock_bench.measure.adapters.engine import Emit
from penstock_bench.workloads.pairs.answer_files import read_answers
from penstock_bench.workloads.pairs.setup_xml import read_strategies
from penstock_bench.workloads.pairs.strategies import Strategy
from penstock_bench.workloads.pairs.tick_files import read_auxiliary


def penstock(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["pairs", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.properties"
    text = penstock("configuration").replace("phases=1.0", "phases=0.02").replace("fileCount=1", "fileCount=2")
    path.write_text(text.replace("#basisRate=", "basisRate=1000"))
    return path


def test_from_ticks_to_a_report(tmp_path: Path, config: Path) -> None:
    penstock("generate", "-c", config, "--scale-factor", "2", "-q")
    assert read_auxiliary(tmp_path / "data").files == ("ticks-1.parquet", "ticks-2.parquet")
    penstock("queries", "-c", config, "-q")
    assert len(read_strategies(tmp_path / "queries" / "strategies.xml")) == 50
    penstock("validate", "-c", config, "-q")
    sut = tmp_path / "sut"
    shutil.copytree(tmp_path / "valid", sut)
    assert "Validation result: PASSED" in penstock("validate", "-c", config, "--sut", sut)
    orders = parquet.read_table(sut / "MarketOrder.parquet")
    parquet.write_table(orders.slice(1), sut / "MarketOrder.parquet")
    page = tmp_path / "page.html"
    told = penstock("validate", "-c", config, "--sut", sut, "--page", page, code=1)
    assert "Validation result: FAILED!" in told
    assert "# missing answers: 1" in told
    assert "Orders: missing" in page.read_text()
    assert (tmp_path / "valid" / "report.txt").read_text() in told + "\n"
    alias = orders["strategy"][0].as_py()
    penstock("picture", "-c", config, "--strategy", alias, "-o", tmp_path / "bands.svg")
    assert alias in (tmp_path / "bands.svg").read_text()
    with pytest.raises(InputError, match="no strategy of"):
        penstock("picture", "-c", config, "--strategy", "st_9", "-o", tmp_path / "bands.svg")


def test_real_ticks_are_taken_over(tmp_path: Path, config: Path) -> None:
    text = config.read_text().replace("tickFormat=parquet", "tickFormat=csv").replace("fileCount=2", "fileCount=1")
    config.write_text(text.replace("#symbols=", "symbols=8\nstrategies=6\ncorrelations=2"))
    penstock("generate", "-c", config, "-q")
    real = tmp_path / "real.csv"
    (tmp_path / "data" / "ticks.csv").rename(real)
    pairs = read_auxiliary(tmp_path / "data").correlations
    config.write_text(config.read_text() + "realTicks=real.csv\n")
    penstock("generate", "-c", config, "-q")
    assert (tmp_path / "data" / "ticks.csv").read_bytes() == real.read_bytes()
    found = read_auxiliary(tmp_path / "data").correlations
    assert {frozenset(pair) for pair in found} == {frozenset(pair) for pair in pairs}


def test_an_order_of_tools_that_cannot_work_is_told(config: Path) -> None:
    with pytest.raises(InputError, match="Run `penstock pairs generate` first"):
        penstock("queries", "-c", config)


class Echo:
    """A system whose only answer is an Indicator for each batch of ticks, and an order at the end."""

    def start(self, strategies: Sequence[Strategy], emit: Emit) -> None:
        self.alias, self.emit, self.ticks = strategies[0].alias, emit, 0

    def push(self, ticks: pa.RecordBatch) -> None:
        self.ticks += ticks.num_rows
        times = [ticks.column(name)[ticks.num_rows - 1].as_py() for name in ("tickTS", "TS")]
        self._say("Indicator", [self.alias, 1.0, 2.0, 3.0, 4.0, *times])

    def end(self, tick_ts: int, ts: int) -> None:
        self._say("MarketOrder", [self.alias, "SELL", "AAA", 1, self.ticks, tick_ts, ts])

    def close(self) -> None:
        self.emit = lambda *_: None

    def _say(self, stream: str, values: list[object]) -> None:
        row = dict(zip(STREAMS[stream].names, values, strict=True))
        self.emit(stream, pa.RecordBatch.from_pylist([row], STREAMS[stream]))


def test_the_ticks_go_to_a_system_and_its_answers_to_files(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SYSTEMS, "echo", Echo)
    penstock("generate", "-c", config, "-q")
    penstock("queries", "-c", config, "-q")
    penstock("run", "-c", config, "--system", "echo", "-q")
    answers = read_answers(tmp_path / "answers")
    (order,) = answers.orders.to_pylist()
    rows = sum(parquet.read_metadata(file).num_rows for file in (tmp_path / "data").glob("*.parquet"))
    assert order["size"] == rows
    assert answers.indicators["inputTickTS"].to_pylist()[-1] == order["inputTickTS"]
    told = penstock("validate", "-c", config, "-q", code=1)
    assert f"# undue answers: {answers.indicators.num_rows}" in told
    with pytest.raises(InputError, match="there is no system 'other'"):
        penstock("run", "-c", config, "--system", "other")
