"""Reports of runs and sweeps: they are well-formed, have what was measured, and show hostile names as they are."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from measure.results.handmade import T0, Handmade, setup
from penstock.errors import InputError
from penstock_bench.cli.bench import bench
from penstock_bench.measure.report.comparison import comparison
from penstock_bench.measure.report.document import Paragraph, Table
from penstock_bench.measure.report.outcomes import Outcome, failures
from penstock_bench.measure.report.writing import report, write_report
from penstock_bench.measure.results.summary import summarise

HOSTILE = "<script>alert(1)</script>\"'`|*[x](javascript:0)&amp;$x$"
VOID = {"meta", "br", "img"}
PHASES = [
    {"name": "warm-up", "duration": 1, "rate": 1000, "measured": False},
    {"name": "steady", "duration": 5, "rate": 1000},
    {"name": "peak", "duration": 1, "rate": 1500},
    {"name": "recovery", "duration": 5, "rate": 1000},
]


class Page(HTMLParser):
    """Checks that what is opened is closed, in order; gathers text, tags and references."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.outside: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.outside += [
            v or "" for name, v in attrs if name in ("src", "href", "xlink:href") and not (v or "").startswith("#")
        ]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def burst(path: Path, *, seconds: int = 12) -> Handmade:
    run = Handmade(path, setup(PHASES))
    sent, taken, used = [], [], []
    for second in range(seconds):
        phase = 0 if second < 1 else 1 if second < 6 else 2 if second < 7 else 3
        ms = (second + 1) * 1000
        sent.append(("s", phase, ms * 1000 - 1000, ms * 1000, 2, ms, ms, ms + 1))
        taken.append(("q", ms * 1000, ms + (90 if phase == 2 else 5), ms))
        used += [(ms, process, second / 2, 1_000_000, 0, 0) for process in ("system", "driver d-0")]
    run.sent(sent).taken(taken).used(used)
    return run.happened({"at_ns": T0, "what": "state", "state": "done"})


def test_of_a_run(tmp_path: Path) -> None:
    run = burst(tmp_path / "run")
    written = write_report(run.path)
    page = Page((run.path / "report.html").read_text())
    assert page.tags.count("svg") == 5
    assert page.outside == []
    assert len(page.ids) == len(set(page.ids))
    for words in (
        "made on embedded",
        "not measured",
        "Adaptivity to the burst",
        "driver d-0",
        "name = 'made'",
        "abacus",
    ):
        assert words in page.text
    text = (run.path / "report.md").read_text()
    for path in written[2:]:
        assert f"figures/{path.name}" in text
        assert ET.parse(path).getroot().tag.endswith("svg")
    assert "recovery time" in text
    # What is written again is the same.
    before = {path: path.read_bytes() for path in written}
    assert {path: path.read_bytes() for path in write_report(run.path)} == before


def test_hostile_names(tmp_path: Path) -> None:
    run = burst(tmp_path / "run")
    told = json.loads((run.path / "setup.json").read_text())
    told |= {"description": HOSTILE, "parameters": {HOSTILE: HOSTILE}, "system": {"adapter": HOSTILE}}
    told["drivers"][0]["phases"][3]["name"] = HOSTILE
    (run.path / "setup.json").write_text(json.dumps(told))
    (run.path / "setup.toml").write_text(f"name = '{HOSTILE}'\n</code></pre>\n````\n# not a heading\n")
    run.happened({"at_ns": T0, "what": "note", "text": f"{HOSTILE}\n# heading"})
    run.run.write_facts({**run.run.facts(), "machine": {HOSTILE: HOSTILE}})
    write_report(run.path, tmp_path / "out")
    page = Page((tmp_path / "out" / "report.html").read_text())
    assert "script" not in page.tags
    assert page.outside == []
    assert HOSTILE in page.text
    text = (tmp_path / "out" / "report.md").read_text()
    outside_code = text.split("`````toml")[0]
    assert "<script" not in outside_code.replace("\\<script", "")
    assert "\n# heading" not in outside_code
    assert text.count("`````") == 2
    for figure in (tmp_path / "out" / "figures").iterdir():
        assert "<script" not in figure.read_text()
        ET.parse(figure)


@pytest.mark.parametrize("left", [0, 3], ids=["nothing", "the warm-up and a little"])
def test_of_a_run_that_was_killed(tmp_path: Path, left: int) -> None:
    run = burst(tmp_path / "run", seconds=left) if left else Handmade(tmp_path / "run", setup(PHASES))
    run.run.happenings.unlink(missing_ok=True)
    write_report(run.path)
    assert "it was killed" in Page((run.path / "report.html").read_text()).text


def test_logs_were_removed_to_save_space(tmp_path: Path) -> None:
    run = burst(tmp_path / "run")
    summarise(run.path)
    for name in ("drivers", "sinks", "resources"):
        (run.path / name).rename(tmp_path / name)
    write_report(run.path)
    page = Page((run.path / "report.html").read_text())
    assert "90.0 ms" in page.text
    assert "svg" not in page.tags


def sweep(directory: Path, summary: dict[str, Any], windows: list[object], adapters: list[str]) -> None:
    points = []
    for adapter in adapters:
        for window in windows:
            name = f"point-{len(points)}"
            run = directory / "runs" / name
            run.mkdir(parents=True)
            own = {**summary, "adapter": adapter, "parameters": {"window": window, "seed": 1}}
            (run / "summary.json").write_text(json.dumps(own))
            points.append({"name": name, "parameters": own["parameters"], "adapter": adapter, "state": "done"})
    points.append({**points[0], "name": "../../escape", "state": "failed", "error": f"out of memory {HOSTILE}"})
    points.append({**points[0], "name": "later", "state": "waiting"})
    (directory / "sweep.json").write_text(json.dumps({"setup": HOSTILE, "points": points}))


@pytest.mark.parametrize("windows", [[1000, 10_000, 100_000], ["10 s", "1 h"]], ids=["numbers", "words"])
def test_of_a_sweep(tmp_path: Path, windows: list[object]) -> None:
    summary = summarise(burst(tmp_path / "run").path)
    sweep(tmp_path / "sweep", summary, windows, ["embedded", HOSTILE])
    written = write_report(tmp_path / "sweep", tmp_path / "out")
    assert [path.name for path in written] == ["report.html", "report.md", "1-over-window.svg"]
    page = Page((tmp_path / "out" / "report.html").read_text())
    assert "script" not in page.tags
    assert page.tags.count("svg") == 1
    side_by_side = 1 + len(windows)
    assert page.tags.count("tr") == side_by_side + 1 + len(windows) * 2 + 2
    assert "out of memory" in page.text
    drawn = (tmp_path / "out" / "figures" / "1-over-window.svg").read_text()
    for words in ("Throughput", "99th percentile of latency", "embedded", "window"):
        assert words in drawn


def outcome(
    adapter: str, rate: float | None, *, window: int = 1, p99: float = 1e6, group: str = "joins", mb: float = 100
) -> Outcome:
    measured = {
        "throughput": {"events_per_second": rate},
        "latency_overall": {"p99": p99},
        "resources": {"system": {"max_rss_mb": mb}},
    }
    state, error = ("done", "") if rate is not None else ("failed", "out of memory")
    return Outcome(group, adapter, {"window": window}, state, measured, error)


def compared(*outcomes: Outcome) -> tuple[str, list[list[str]]]:
    section = comparison(outcomes)
    assert section is not None
    said, table = section.blocks
    assert isinstance(said, Paragraph)
    assert isinstance(table, Table)
    return said.text, [list(row) for row in table.rows]


def test_systems_side_by_side() -> None:
    said, rows = compared(
        outcome("ours", 900),
        outcome("ours", 1000),
        outcome("ours", 1100),
        outcome("theirs", 250, mb=2048),
        outcome("ours", 100, window=2),
        outcome("theirs", 150, window=2),
        outcome("ours", 10, window=3),
        outcome("theirs", None, window=3),
        outcome("ours", 10, window=4),
    )
    assert "At 2 of 3 points that several were asked, ours is the fastest." in said
    assert said.endswith("It is not at joins, window 2: theirs.")
    assert rows == [
        ["joins, window 1", "ours, 4.00 times", "1,000", "250", "100", "2,048"],
        ["joins, window 2", "theirs, 1.50 times", "100", "150", "100", "100"],
        ["joins, window 3", "ours, alone", "10.0", "failed", "100", "–"],
    ]


def test_systems_that_all_kept_a_rate_are_compared_by_latency() -> None:
    said, rows = compared(
        outcome("ours", 1000, p99=8e6), outcome("theirs", 990, p99=2e6), outcome("slow", 100, p99=1e6)
    )
    assert "theirs is the fastest" in said
    assert rows[0][:5] == [
        "joins",
        "theirs, 4.00 times by latency",
        "1,000, p99 8.00 ms",
        "990, p99 2.00 ms",
        "100, p99 1.00 ms",
    ]


def test_why_a_system_failed_is_said_once() -> None:
    failed = [outcome("theirs", None, window=window) for window in (1, 2)]
    assert failures([outcome("ours", 1), *failed]) == ["joins on theirs: out of memory"]


def test_one_system_alone_is_not_compared() -> None:
    assert comparison([outcome("ours", 1000), outcome("ours", 1000, window=2)]) is None
    assert comparison([outcome("ours", 1000), outcome("theirs", 1000, window=2)]) is None
    assert comparison([outcome("ours", None), outcome("theirs", None)]) is None


def test_of_a_directory_of_several(tmp_path: Path) -> None:
    several = tmp_path / "several"
    burst(several / "one")
    burst(several / "two")
    sweep(several / "three", summarise(burst(tmp_path / "run").path), [1, 2], ["embedded"])
    document = report(several)
    assert [section.title for section in document.sections] == ["made", HOSTILE]
    names = [figure.name for figure in document.figures()]
    assert names == ["1-adapters", "2-over-window"]


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such directory"):
        report(tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds no run"):
        report(tmp_path)
    (tmp_path / "sweep.json").write_text('{"points": [{"name": 1}]}')
    with pytest.raises(InputError, match="cannot be read"):
        report(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_report(burst(tmp_path / "run").path, tmp_path / "file")


def test_the_command(tmp_path: Path) -> None:
    run = burst(tmp_path / "run")
    done = CliRunner().invoke(bench, ["report", str(run.path), "--output", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [str(tmp_path / "out" / "report.html"), str(tmp_path / "out" / "report.md")]
