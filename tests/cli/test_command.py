"""The command: what goes to standard output and standard error, exit codes, Ctrl-C, and how errors are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from penstock.errors import PenstockError

APP = """
    CREATE STREAM s (t BIGINT, n INT, EVENT TIME t UNIT SECONDS) FROM '{source}';
    SELECT SUM(n) AS total FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS];
"""


EMBEDDED = ("--engine", "embedded")
"""In this process, which starts at once."""


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "penstock", *map(str, args)]


@pytest.fixture
def app_file(tmp_path: Path) -> Path:
    (tmp_path / "in.csv").write_text("t,n\n1,1\n2,x\n3,2\n11,5\n")
    file = tmp_path / "app.sql"
    file.write_text(APP.format(source=tmp_path / "in.csv"))
    return file


def test_run_prints_results_and_nothing_else(penstock, app_file: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, err = penstock("run", app_file, *EMBEDDED)
    assert code == 0
    assert [json.loads(line)["total"] for line in out.splitlines()] == [3, 5]
    assert "finished" in err
    assert "app.rejects.jsonl" in err
    rejects = [json.loads(line) for line in Path("app.rejects.jsonl").read_text().splitlines()]
    assert [(r["row"], r["raw"]) for r in rejects] == [(3, "2,x")]


def test_every_without_a_checkpoint_is_how_often_results_are_committed(penstock, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "in.csv").write_text("t,n\n" + "".join(f"{t},1\n" for t in range(40)))
    file = tmp_path / "app.sql"
    text = APP.format(source=tmp_path / "in.csv").replace(
        "SELECT", f"CREATE SINK o TO '{tmp_path}/o'; INSERT INTO o SELECT"
    )
    file.write_text(text)
    for every, parts in (("0", 4), ("3600", 2)):
        assert penstock("run", file, *EMBEDDED, "--batch", 11, "--every", every)[0] == 0
        assert len(list((tmp_path / "o").iterdir())) == parts


def test_quiet_and_limit(penstock, app_file: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, err = penstock(
        "run",
        app_file,
        *EMBEDDED,
        "--quiet",
        "--limit",
        1,
        "--memory",
        "8MB",
        "--block-size",
        "16KB",
        "--compression",
        "zstd",
    )
    assert (code, err) == (0, "")
    assert [json.loads(line)["total"] for line in out.splitlines()] == [1]


@pytest.mark.parametrize("name", ["late", "chained", "callcentre", "vwap", "slides", "patterns", "rate_sizing"])
def test_the_examples_run(penstock, name: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    examples = Path(__file__).parents[2] / "examples"
    (tmp_path / "examples").symlink_to(examples)
    code, _, err = penstock("run", f"examples/{name}.sql", *EMBEDDED, "--limit", 200_000, "--memory", "16MB")
    assert code == 0, err
    code, out, _ = penstock("explain", f"examples/{name}.sql")
    assert code == 0
    assert "RANGE" in out or "pattern within" in out or "RATE SIZED" in out


def test_explain_shows_the_stages_that_run(penstock, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    app = tmp_path / "app.sql"
    app.write_text(
        "CREATE STREAM s (t TIMESTAMP, x DOUBLE, EVENT TIME t);"
        "CREATE QUERY a AS SELECT SUM(x) AS n FROM s [ROWS 5];"
        "CREATE QUERY b AS SELECT AVG(x) AS n FROM s [ROWS 5];"
    )
    code, out, _ = penstock("explain", app, "--stages")
    assert code == 0
    assert [line.strip() for line in out.splitlines()] == [
        "0  stored window over s",
        "aggregation of [ROWS 5]: row count, SUM of x; looks at the group of the arriving event",
        "0.0  a",
        "0.1  b",
        "a  from 0.0; on Spark one place: there is no GROUP BY to split by",
        "b  from 0.1; on Spark one place: there is no GROUP BY to split by",
    ]


def test_explain_opens_nothing(  # type: ignore[no-untyped-def]
    penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("explain speaks to somebody"))
    monkeypatch.setattr("tempfile.mkdtemp", lambda *_, **__: pytest.fail("explain makes a directory"))
    (tmp_path / "app.sql").write_text("""
        CREATE STREAM s (t BIGINT, k INT, x DOUBLE, EVENT TIME t UNIT SECONDS) FROM 'no such file.csv';
        CREATE TABLE zones (k INT, name STRING, PRIMARY KEY (k)) FROM 'postgresql://127.0.0.1:1/nowhere';
        CREATE TABLE files (k INT, name STRING, PRIMARY KEY (k)) FROM 'no such table.csv';
        SELECT s.k, zones.name, files.name AS other FROM s, zones, files WHERE s.k = zones.k AND s.k = files.k;
        SELECT k, AVG(x) AS m FROM s [RANGE 1 HOUR SLIDE 1 SECOND] GROUP BY k;
    """)
    code, out, err = penstock("explain", "app.sql", "--block-size", "4KiB", "--memory", "1KB")
    assert (code, err) == (0, "")
    assert "blocks of 4 KB" in out
    assert "zones" in out


def test_a_finished_run_can_be_repeated(penstock, app_file: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    app_file.write_text(
        app_file.read_text().replace("SELECT", f"CREATE SINK o TO '{tmp_path}/o.csv'; INSERT INTO o SELECT")
    )
    first, second = (
        (
            penstock("run", app_file, *EMBEDDED, "--checkpoint", tmp_path / "state", "-q"),
            (tmp_path / "o.csv").read_text(),
        )
        for _ in range(2)
    )
    assert first == second
    assert first[1].count("\n") == 3


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "nowhere.sql"], "nowhere.sql: cannot be read: No such file"),
        (["run", "app.sql", *EMBEDDED, "--memory", "lots"], "'lots' is not a size"),
        (["run", "large.sql", *EMBEDDED, "--memory", "1KB"], "the least budget that this plan can start with is"),
        (["run", "app.sql", *EMBEDDED, "--limit", "5", "--checkpoint", "d"], "give one of them"),
        (["run", "gone.sql", *EMBEDDED], "file 'gone.csv' does not exist"),
        (["run", "bad.sql"], "unknown column 'm'"),
        (["run", "app.sql", "--limit", "5"], "--limit has no meaning on Spark: its tasks read the input side by side"),
        (["run", "app.sql", "--every", "5"], "--every has no meaning on Spark: every micro-batch is a checkpoint"),
        (["run", "app.sql", "--batch", "5"], "--batch has no meaning on Spark"),
        (["run", "app.sql", "--block-size", "1MB"], "--block-size has no meaning on Spark"),
        (["run", "app.sql", "--compression", "lz4"], "--compression has no meaning on Spark"),
        (["run", "app.sql", *EMBEDDED, "--trigger", "1 second"], "--trigger is for Spark"),
        (["run", "app.sql", *EMBEDDED, "--master", "local"], "--master is for Spark"),
        (["run", "app.sql", "--available-now", "--follow"], "--follow and --trigger never do: choose"),
        (["run", "app.sql", "--conf", "spark.executor.memory"], "write KEY=VALUE"),
        (["run", "endless.sql", "--available-now"], "stream s has no end"),
        (["run", "app.sql", "--checkpoint", "embedded"], "is the checkpoint of an embedded run; add --engine embedded"),
        (["run", "app.sql", *EMBEDDED, "--checkpoint", "spark"], "is the checkpoint of a run on Spark"),
    ],
)
def test_errors_are_told_without_a_traceback(penstock, app_file: Path, args: list[str], message: str) -> None:  # type: ignore[no-untyped-def]
    Path("gone.sql").write_text(APP.format(source="gone.csv"))
    Path("bad.sql").write_text(APP.format(source="gone.csv").replace("SUM(n)", "SUM(m)"))
    Path("large.sql").write_text(APP.format(source="in.csv").replace("[RANGE 10 SECONDS", "[RANGE 1 HOUR"))
    Path("endless.sql").write_text(APP.format(source="generate:stock?seconds=0"))
    Path("embedded/blocks").mkdir(parents=True)
    Path("spark/offsets").mkdir(parents=True)
    code, out, err = penstock(*args)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_a_query_error_keeps_its_caret_and_brackets(penstock) -> None:  # type: ignore[no-untyped-def]
    Path("bad.sql").write_text("CREATE STREAM s (t TIMESTAMP, EVENT TIME t);\nSELECT oops FROM s [ROWS 1];")
    _, _, err = penstock("run", "bad.sql")
    assert "  | SELECT oops FROM s [ROWS 1];\n  |        ^^^^" in err


def test_bench_hands_over(penstock, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    ran: list[tuple[str, bool]] = []
    monkeypatch.setattr("penstock_bench.benches.run", lambda name, quick, output: ran.append((name, quick)))
    code, out, _ = penstock("bench")
    assert code == 0
    assert {"vwap", "latency"} <= {line.split()[0] for line in out.splitlines()}
    assert penstock("bench", "latency", "--quick")[0] == 0
    assert ran == [("latency", True)]
    code, _, err = penstock("bench", "nothing")
    assert code == 2
    assert "unknown bench 'nothing'; there are vwap" in err


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    text = """
        CREATE STREAM Stock (Timestamp TIMESTAMP, Price DOUBLE, EVENT TIME Timestamp) FROM 'generate:stock?seconds=60';
        SELECT SUM(Price) AS total FROM Stock [ROWS 10];
    """
    (tmp_path / "app.sql").write_text(text)
    with subprocess.Popen(
        command("run", tmp_path / "app.sql", *EMBEDDED), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "total" in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 1


def test_without_java_one_line_says_what_to_install(  # type: ignore[no-untyped-def]
    penstock, app_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_module("penstock.spark")
    from penstock.java import NOT_FOUND

    def no_java() -> Path:
        raise PenstockError(NOT_FOUND)

    monkeypatch.setattr(sys.modules["penstock.spark.session"], "java_home", no_java)
    code, out, err = penstock("run", app_file)
    assert (code, out) == (2, "")
    assert err == NOT_FOUND + "\n"


def test_help_and_version(penstock) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = penstock("--help")
    assert code == 0
    assert "penstock run examples/callcentre.sql" in out
    assert all(name in out for name in ("run", "explain", "bench"))
    assert penstock("--version")[1].startswith("penstock 0.")


def test_a_second_process_on_the_same_checkpoint_is_refused(tmp_path: Path, app_file: Path) -> None:
    arguments = ("run", app_file, *EMBEDDED, "--checkpoint", tmp_path / "state", "-q", "--follow")
    first = subprocess.Popen(command(*arguments), cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        wait_for(tmp_path / "state" / "blocks" / ".lock")
        second = subprocess.run(command(*arguments), cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert second.returncode == 2
        assert "another process" in second.stderr
    finally:
        first.send_signal(signal.SIGINT)
        assert first.wait(60) == 130


def test_ctrl_c_stops_at_a_checkpoint(tmp_path: Path) -> None:
    """An endless generator is stopped twice; both parts together are the uninterrupted results."""
    text = f"""
        CREATE STREAM Stock (Timestamp TIMESTAMP, Price DOUBLE, EVENT TIME Timestamp)
        FROM 'generate:stock?seconds=0&rate=1000';
        CREATE SINK o TO '{tmp_path}/o.csv';
        INSERT INTO o SELECT SUM(Price) AS total FROM Stock [RANGE 1 HOUR SLIDE 1 MINUTE];
    """
    (tmp_path / "app.sql").write_text(text)
    arguments = command("run", tmp_path / "app.sql", *EMBEDDED, "--checkpoint", tmp_path / "state", "--every", "0.2")
    kept = b""
    for _ in range(2):
        process = subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        wait_for(tmp_path / "o.csv", len(kept) + 2000)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "stopped" in err
        written = (tmp_path / "o.csv").read_bytes()
        assert written.startswith(kept)
        kept = written
    minutes = [line.split(b",")[1] for line in kept.splitlines()[1:]]
    assert minutes == sorted(set(minutes))


def test_following_a_directory_through_a_stop(tmp_path: Path) -> None:
    """Files that come while it runs, while it is stopped and after that: each is read once."""
    (tmp_path / "in").mkdir()
    text = APP.format(source=tmp_path / "in").replace(
        "SELECT", f"CREATE SINK o TO '{tmp_path}/o.csv'; INSERT INTO o SELECT"
    )
    (tmp_path / "app.sql").write_text(text)
    arguments = command(
        "run", tmp_path / "app.sql", *EMBEDDED, "--checkpoint", tmp_path / "state", "--every", "0.1", "-q", "--follow"
    )

    def deliver(number: int) -> None:
        draft = tmp_path / "in" / f".{number}"
        draft.write_text(f"t,n\n{number * 10},{number}\n{number * 10 + 9},100\n")
        draft.rename(tmp_path / "in" / f"{number}.csv")

    header = len("window_start,window_end,total\n")
    row = len("1970-01-01T00:00:00.000000Z,1970-01-01T00:00:10.000000Z,101\n")
    deliver(1)
    for last in (3, 5):
        process = subprocess.Popen(arguments, cwd=tmp_path)
        deliver(last - 1)
        deliver(last)
        wait_for(tmp_path / "o.csv", header + row * (last - 1))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    totals = [int(line.split(",")[2]) for line in (tmp_path / "o.csv").read_text().splitlines()[1:]]
    assert totals == [101, 102, 103, 104]


def test_standard_input_flows_through(tmp_path: Path) -> None:
    (tmp_path / "app.sql").write_text(APP.format(source="-"))
    process = subprocess.Popen(
        command("run", tmp_path / "app.sql", *EMBEDDED, "-q"),
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"t":1,"n":1}\n{"t":12,"n":2}\n')
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["total"] == 1
    far_ahead = int(time.time()) + 10_000_000
    process.stdin.write(b'{"t":%d,"n":9}\n{"t":13,"n":3}\n' % far_ahead)
    process.stdin.close()
    assert json.loads(process.stdout.readline())["total"] == 5
    assert process.stdout.read() == b""
    assert process.wait(60) == 0
    rejects = (tmp_path / "app.rejects.jsonl").read_text().splitlines()
    assert len(rejects) == 1
    assert "ahead of the clock" in rejects[0]


def wait_for(path: Path, size: int = 0) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or os.path.getsize(path) < size:
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.02)


def test_without_pyspark_a_run_is_embedded_and_says_so(  # type: ignore[no-untyped-def]
    penstock, app_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    code, out, err = penstock("run", app_file, "--limit", 4)
    assert code == 0
    assert [json.loads(line)["total"] for line in out.splitlines()] == [3, 5]
    assert "PySpark is not installed: running in this process" in err
    for options in (["--engine", "spark"], ["--master", "local[2]"]):
        code, _, err = penstock("run", app_file, *options)
        assert code == 2
        assert f"{options[0]}" in err
        assert "needs PySpark" in err


def test_an_application_with_a_byte_order_mark(penstock, app_file: Path) -> None:  # type: ignore[no-untyped-def]
    app_file.write_bytes(b"\xef\xbb\xbf" + app_file.read_bytes())
    code, out, _ = penstock("run", app_file, *EMBEDDED)
    assert (code, len(out.splitlines())) == (0, 2)
