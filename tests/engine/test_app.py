"""The life of an app: names, results, late events, failures in the middle, what it prints, its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.lang import parse
from penstock.plan.explain import explain_program

SECOND = 1_000_000
STREAM = "CREATE STREAM Calls (t TIMESTAMP, k STRING, v BIGINT, EVENT TIME t{}){};"
SUMS = "CREATE QUERY Sums AS SELECT k, SUM(v) AS n FROM Calls [ROWS 3] GROUP BY k;"


def event(t: float, k: str = "a", v: int = 1) -> dict[str, Any]:
    return {"t": round(t * SECOND), "k": k, "v": v}


def number(data: pa.Table | pa.RecordBatch) -> tuple[str, int]:
    metadata = data.schema.metadata
    return metadata[b"penstock.query"].decode(), int(metadata[b"penstock.sequence"])


def test_names_are_found_whatever_their_case() -> None:
    with ps.App(STREAM.format("", "") + SUMS) as app:
        app.push("CALLS", event(1))
        assert app.results("sums").num_rows == 1
        assert app.queries == ("Sums",)
        assert app.streams == ("Calls",)


def test_unknown_names_come_with_a_suggestion() -> None:
    with ps.App(STREAM.format("", "") + SUMS) as app:
        for call, words in (
            (lambda: app.push("cals", event(1)), "no stream cals; there are: Calls\n  hint: did you mean 'Calls'?"),
            (lambda: app.late("zzz"), "no stream zzz; there are: Calls"),
            (lambda: app.results("sum"), "no query sum; there are: Sums\n  hint: did you mean 'Sums'?"),
            (lambda: app.subscribe("x", print), "no query x"),
            (lambda: app.drop_query("q1"), "no query q1"),
        ):
            with pytest.raises(ps.InputError) as caught:
                call()
            assert words in str(caught.value)
    with ps.App() as app, pytest.raises(ps.InputError, match="there are: none"):
        app.push("s", event(1))


def test_results_are_numbered_from_the_first_on() -> None:
    with ps.App(STREAM.format("", "") + SUMS) as app:
        assert number(app.results("Sums")) == ("Sums", 0)
        app.push("Calls", [event(1), event(2)])
        table = app.results("Sums")
        assert (number(table), table.num_rows) == (("Sums", 0), 2)
        app.push("Calls", [event(3)])
        app.push("Calls", [event(4), event(5)])
        heard: list[pa.RecordBatch] = []
        app.subscribe("Sums", heard.append)  # gets what waits first
        app.push("Calls", [event(6)])
        assert [(number(b), b.num_rows) for b in heard] == [(("Sums", 2), 1), (("Sums", 3), 2), (("Sums", 5), 1)]
        assert all((b.schema.names, b.schema.types) == (table.schema.names, table.schema.types) for b in heard)
        assert app.results("Sums").num_rows == 0
        assert app.metrics.results == 6


def test_results_have_the_declared_types_however_strings_were_pushed() -> None:
    with ps.App(STREAM.format("", "") + SUMS) as app:
        app.push("Calls", event(1))
        encoded = pa.table({"t": [2 * SECOND], "k": pa.array(["b"]).dictionary_encode(), "v": [1]})
        app.push("Calls", encoded)
        table = app.results("Sums")
        assert table.schema.field("k").type == pa.string()
        assert not table.schema.field("window_end").nullable
        assert table.column("k").to_pylist() == ["a", "b"]


def test_late_events_are_counted_and_kept() -> None:
    with ps.App(STREAM.format(" LATENESS 2 SECONDS", " LATE INTO aside") + SUMS) as app:
        app.push("Calls", [event(10), event(9), event(7, v=70)])
        app.push("Calls", event(6, v=60))
        assert app.metrics.late == 2
        assert app.late("Calls").column("v").to_pylist() == [70, 60]
        assert app.late("Calls").num_rows == 0
        app.finish()
        assert app.results("Sums").column("n").to_pylist() == [1, 2]


def test_late_events_without_late_into_are_counted_and_not_kept(tmp_path: Path) -> None:
    text = STREAM.format(" LATENESS 2 SECONDS", "") + SUMS
    with ps.App(text, checkpoint=tmp_path) as app:
        app.push("Calls", [event(10), event(9), event(7, v=70)])
        app.push("Calls", event(6, v=60))
        assert app.metrics.late == 2
        with pytest.raises(ps.InputError, match="LATE INTO"):
            app.late("Calls")
        late = app._inputs.named("Calls").late
        assert late.count == 2
        assert late.take().num_rows == 0
        app.checkpoint()
    with ps.App(text, checkpoint=tmp_path) as app:
        assert app.metrics.late == 2


@pytest.mark.parametrize("subscribed", [False, True])
def test_late_into_a_name_of_its_own(subscribed: bool) -> None:
    text = STREAM.format("", " LATE INTO `too late`") + "SELECT v FROM Calls"
    with ps.App(text) as app:
        heard: list[pa.RecordBatch] = []
        if subscribed:
            app.subscribe("Too Late", heard.append)
        app.push("Calls", [event(10), event(9, "x", 2)])
        table = pa.Table.from_batches(heard) if subscribed else app.results("too late")
        assert table.column_names == ["t", "k", "v"]  # all columns, also those that no query reads
        assert table.column("k").to_pylist() == ["x"]
        with pytest.raises(ps.QueryError, match="too late"):
            app.add_query("CREATE QUERY `too late` AS SELECT v FROM Calls")


def test_late_events_of_several_streams() -> None:
    one = "CREATE STREAM a (t TIMESTAMP, v BIGINT, EVENT TIME t) LATE INTO late; SELECT v FROM a;"
    same = "CREATE STREAM b (t TIMESTAMP, v BIGINT, EVENT TIME t) LATE INTO Late; SELECT v FROM b"
    with ps.App(one + same) as app:
        for stream in "ab":
            app.push(stream, [event(2), event(1)])
        assert app.results("late").num_rows == 2
    with pytest.raises(ps.QueryError, match="columns differ"):
        ps.App(one + same.replace("v BIGINT", "v DOUBLE"))


def test_late_into_a_sink_waits_for_nobody(tmp_path: Path) -> None:
    sink = f"CREATE SINK aside TO '{tmp_path}/late.jsonl';"
    with ps.App(STREAM.format("", " LATE INTO aside") + sink + SUMS) as app:
        heard: list[int] = []
        app.push("Calls", [event(2), event(1)])
        app.subscribe("aside", lambda batch: heard.append(batch.num_rows))
        app.push("Calls", [event(3), event(1)])
        assert heard == [1]


def test_late_events_and_results_do_not_mix(tmp_path: Path) -> None:
    sink = f"CREATE SINK aside TO '{tmp_path}/late.jsonl'; INSERT INTO aside SELECT t, k, v FROM Calls"
    with pytest.raises(ps.QueryError, match="both go to 'Aside'"):
        ps.App(STREAM.format("", " LATE INTO Aside") + sink)


def test_a_failure_in_the_middle_ends_the_app() -> None:
    """Some queries have seen the event and others have not; nothing that depends on it may come out or be saved."""

    def fails(batch: pa.RecordBatch) -> None:
        raise RuntimeError("the printer is out of paper")

    with ps.App(STREAM.format("", "") + SUMS) as app:
        app.subscribe("Sums", fails)
        with pytest.raises(RuntimeError):
            app.push("Calls", event(1))
        for call in (lambda: app.push("Calls", event(2)), app.tick, app.finish, lambda: app.drop_query("Sums")):
            with pytest.raises(ps.PenstockError, match="out of paper"):
                call()


def test_a_subscriber_cannot_push() -> None:
    with ps.App(STREAM.format("", "") + SUMS) as app:
        errors: list[str] = []

        def pushes(batch: pa.RecordBatch) -> None:
            for call in (lambda: app.push("Calls", event(9)), lambda: app.add_query("SELECT v FROM Calls")):
                with pytest.raises(ps.PenstockError) as caught:
                    call()
                errors.append(str(caught.value))

        app.subscribe("Sums", pushes)
        app.push("Calls", event(1))
        app.push("Calls", event(2))
        assert len(errors) == 4
        assert "after the push has returned" in errors[0]


def test_after_finish_and_close() -> None:
    app = ps.App(STREAM.format("", "") + SUMS)
    app.push("Calls", event(1))
    app.finish()
    app.finish()
    app.tick()
    assert app.results("Sums").num_rows == 1
    with pytest.raises(ps.InputError, match="was finished"):
        app.push("Calls", event(2))
    app.close()
    app.close()
    with pytest.raises(ps.PenstockError, match="was closed"):
        app.push("Calls", event(2))


def test_the_temporary_directory_goes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ps.App(STREAM.format("", "") + SUMS) as app:
        app.push("Calls", event(1))
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())
    with pytest.raises(ps.BudgetError):
        ps.App(STREAM.format("", "") + SUMS, memory=100)
    assert not list(tmp_path.iterdir())


def test_checkpoint_needs_a_directory() -> None:
    with ps.App(STREAM.format("", "") + SUMS) as app, pytest.raises(ps.InputError, match="checkpoint="):
        app.checkpoint()


@pytest.mark.parametrize("example", ["slides", "callcentre_kpis", "tables", "patterns", "rate_sizing", "rules"])
def test_the_plan_is_known_before_there_is_an_app(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = Path(__file__).parents[2] / "examples"
    monkeypatch.chdir(examples)
    text = (examples / f"{example}.sql").read_text()
    planned = explain_program(parse(text), memory=16_000_000, block_size=4096)
    assert "blocks of 4 KB" in planned
    with ps.App(text, memory="16MB", block_size=4096) as app:
        assert app.explain() == planned


def test_what_it_prints() -> None:
    text = STREAM.format("", "") + "CREATE QUERY `<b>` AS SELECT k FROM Calls WHERE k <> '<script>alert(1)</script>'"
    with ps.App(text) as app:
        app.push("Calls", [event(1), event(2)])
        html = app._repr_html_()
        assert "<script>" not in html
        assert "&lt;script&gt;" in html
        assert "<td><b>&lt;b&gt;</b></td>" in html
        assert "2 events" in repr(app)
        assert "Calls" in repr(app)
        metrics = app.metrics
        assert metrics.events == metrics.results == 2
        assert metrics.event_time is not None
        assert metrics.event_time.timestamp() == 2
        assert "<td>events</td><td>2</td>" in metrics._repr_html_()
        assert "2 events, 0 late, 0 rejected, 2 results" in str(metrics)
        assert "stream Calls" in app.explain()


def test_metrics_of_a_window_on_disk() -> None:
    with ps.App(STREAM.format("", "") + SUMS.replace("ROWS 3", "ROWS 100000"), memory="400KB", block_size=4096) as app:
        rows = 30_000
        columns = {"t": range(rows), "k": ["a", "b"] * (rows // 2), "v": range(rows)}
        app.push("Calls", pa.table({name: pa.array(values) for name, values in columns.items()}))
        metrics = app.metrics
        assert metrics.blocks_written > 10
        assert metrics.stored_bytes > metrics.memory_budget
        assert 0 < metrics.memory_bytes <= metrics.memory_peak <= metrics.memory_budget == 400_000
        assert metrics.watermark == rows - 1


def test_metrics_of_groups_on_disk() -> None:
    query = "SELECT k, COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 100 MILLISECONDS] GROUP BY k HAVING n > 1"
    with ps.App("CREATE STREAM s (t BIGINT, k BIGINT, EVENT TIME t UNIT MICROSECONDS);" + query, memory="2MB") as app:
        for begin in range(0, 200_000, 50_000):
            app.push("s", pa.table({name: range(begin, begin + 50_000) for name in ("t", "k")}))
        metrics = app.metrics
        assert metrics.blocks_written > 10
        assert metrics.blocks_read > 0
        assert metrics.stored_bytes > metrics.memory_budget


def test_bad_options() -> None:
    with pytest.raises(ps.BudgetError, match="not a size"):
        ps.App(memory="lots")
    with pytest.raises(ps.StorageError):
        ps.App(STREAM.format("", "") + SUMS, block_size=16)
