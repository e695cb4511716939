"""`penstock bench all` measures what is left, goes on after what fails, and says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import InputError
from penstock_bench import benches as benches
from penstock_bench.cli.bench_all import Task, perform, run_all, tasks_of
from penstock_bench.workloads import micro


def result(output: Path, name: str, size: str) -> None:
    (output / f"{name}.json").write_text(json.dumps({"bench": name, "size": size}))


def problems(tasks: list[Task]) -> dict[str, str | None]:
    return {task.name: task.problem() for task in tasks}


def test_every_bench_and_every_microbenchmark_is_a_task(tmp_path: Path) -> None:
    tasks = tasks_of(tmp_path, True, (), ("embedded",), print)
    setups = [f"{name} on embedded" for name in micro.names()]
    setups.insert(setups.index("adaptivity on embedded"), "sustainable rate of adaptivity on embedded")
    assert [task.name for task in tasks] == [*benches.NAMES, *setups]
    assert all({"--quick", "--trial"} & set(task.arguments) for task in tasks)
    assert all(problems(tasks).values())
    assert not any("--quick" in task.arguments for task in tasks_of(tmp_path, False, (), ("embedded",), print))


def test_what_is_done_is_known_by_its_files(tmp_path: Path) -> None:
    result(tmp_path, "vwap", "quick")
    result(tmp_path, "ssm", "full")
    for state, name in (("done", "selection"), ("failed", "projection")):
        sweep = tmp_path / "micro" / name / "embedded"
        sweep.mkdir(parents=True)
        points = [{"name": "a=1", "state": "done"}, {"name": "a=2", "state": state, "error": "it broke"}]
        (sweep / "sweep.json").write_text(json.dumps({"points": points}))
    run = tmp_path / "micro" / "adaptivity" / "embedded"
    run.mkdir(parents=True)
    (run / "summary.json").write_text(json.dumps({"state": "stopped"}))
    names = ("vwap", "ssm", "selection", "projection", "adaptivity")
    tasks = tasks_of(tmp_path, True, names, ("embedded",), print)
    found = problems(tasks)
    assert not any(task.beyond() for task in tasks)
    assert found == {
        "vwap": None,
        "ssm": "it gave no figures",
        "selection on embedded": None,
        "projection on embedded": "1 of 2 points: a=2: it broke",
        "sustainable rate of adaptivity on embedded": "the search has come to no end",
        "adaptivity on embedded": "the run was stopped",
    }


@pytest.mark.parametrize(("system", "beyond"), [("spark-streaming", True), ("embedded", False)])
def test_what_another_system_cannot_do_is_no_failure(tmp_path: Path, system: str, beyond: bool) -> None:
    (task,) = tasks_of(tmp_path, True, ("selection",), (system,), print)
    sweep = tmp_path / "micro" / "selection" / system
    sweep.mkdir(parents=True)
    for states, found in ((["done", "failed"], beyond), (["failed", "waiting"], False), ([], False)):
        (sweep / "sweep.json").write_text(json.dumps({"points": [{"name": "a", "state": state} for state in states]}))
        assert task.beyond() is found


def test_a_burst_begins_at_three_quarters_of_what_a_system_sustains(tmp_path: Path) -> None:
    search, burst = tasks_of(tmp_path, True, ("adaptivity",), ("embedded",), print)
    assert search.problem() is not None
    assert list(burst.more()) == []
    assert search.leftover is not None
    search.leftover.mkdir(parents=True)
    for complete in (False, True):
        found = {"complete": complete, "sustainable": 4_000_000.0, "trial_seconds": 6.0}
        (search.leftover / "sustainable.json").write_text(json.dumps(found))
        assert (search.problem() is None) is complete
    assert list(burst.more()) == ["--set", "rate=3000000"]
    assert burst.leftover is not None
    burst.leftover.mkdir(parents=True)
    for rate, said in ((100_000, "the run was not at 3,000,000 events a second"), (3_000_000, None)):
        (burst.leftover / "summary.json").write_text(json.dumps({"state": "done", "parameters": {"rate": rate}}))
        assert burst.problem() == said


def test_a_system_that_is_not_there_is_left_out_and_named(tmp_path: Path) -> None:
    told: list[str] = []
    assert not tasks_of(tmp_path, True, ("selection",), ("nobodys",), told.append)
    assert told[0].startswith("without nobodys: ")
    with pytest.raises(InputError, match="unknown bench 'nonsense'"):
        tasks_of(tmp_path, True, ("nonsense",), ("embedded",), told.append)


def test_one_that_fails_does_not_end_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benches, "NAMES", {"nonsense": "no such bench", "vwap": "is done already"})
    result(tmp_path, "vwap", "quick")
    assert not run_all(tmp_path, quick=True, only=("nonsense", "vwap"), systems=())
    printed = capsys.readouterr()
    told: dict[str, Any] = json.loads(printed.out.splitlines()[-1])
    assert (told["tasks"], told["failed"]) == (2, ["nonsense"])
    assert "unknown bench 'nonsense'" in " ".join(printed.err.split())
    assert "vwap  is done already" in printed.err
    assert "unknown bench" in (tmp_path / "logs" / "nonsense.txt").read_text()
    assert told["pages"] == [str(tmp_path / "reproduction.md")]
    assert (tmp_path / "reproduction.md").is_file()
    monkeypatch.setattr(benches, "NAMES", {"vwap": "is done already"})
    assert run_all(tmp_path, quick=True, only=("vwap",), systems=())


def test_one_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    task = Task("slow", ["vwap", "--quick"], lambda: "it gave no figures")
    assert perform(task, tmp_path, limit=0.05) == f"it took longer than 0 s; see {tmp_path / 'slow.txt'}"
