"""A whole run by the pages: a setup is edited, has a mistake, is mended, started, paused, resumed, watched to its end,
and looked at again from its directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from penstock.errors import InputError
from penstock_bench.measure.setup.generators import Scalar
from penstock_bench.web.finished_run import Runs
from penstock_bench.web.limits import Limits
from penstock_bench.web.setups import SetupFiles, check
from web.conftest import Serve, base, wait_for_keys

UI = ("-m", "penstock", "ui", "setups", "--no-browser", "--port", "0")

SETUP = """
name = "short"
description = "A <b>short</b> run"

[parameters]
rate = 2000
seconds = 3

[streams.s]
columns = { ts = "TIMESTAMP", k = "INT" }

[[drivers]]
name = "load"
fields.s.k = { generator = "uniform", min = 1, max = 5 }

[[drivers.phases]]
rate = "${rate}"
duration = "${seconds}"

[queries.counts]
text.penstock = "SELECT k, COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 100 MILLISECONDS] GROUP BY k"

[queries.rows]
cause = "ts"
text.penstock = "SELECT ts, k FROM s WHERE k = 3"
"""


@pytest.fixture(scope="module")
def setups(place: Path) -> Path:
    directory = place / "setups"
    directory.mkdir()
    (directory / "short.toml").write_text(SETUP)
    (directory / "other.toml").write_text("[tool]\nname = 'no setup'\n")
    return directory


@pytest.fixture(scope="module")
def url(serve: Serve, setups: Path) -> str:
    return serve(*UI)


def edit(page: Page, old: str, new: str) -> None:
    """Writes the text anew in the editor, with a part of it changed."""
    text = SETUP.replace(old, new)
    assert text != SETUP
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def test_a_whole_run(context: BrowserContext, url: str, place: Path) -> None:
    page = context.new_page()
    page.goto(url)
    checked = page.locator("[data-check]")
    start, stop = page.get_by_role("button", name="Start"), page.get_by_role("button", name="Stop")
    expect(checked).to_contain_text("The setup is complete: 1 stream, 1 driver, 2 queries, 1 sink.")
    expect(page.get_by_text("A <b>short</b> run", exact=True)).to_be_visible()
    expect(stop).to_be_disabled()

    edit(page, 'generator = "uniform"', 'generatr = "uniform"')
    expect(checked).to_contain_text("drivers[0].fields.s.k")
    expect(page.locator(".wrong-line")).to_contain_text("generatr")
    expect(start).to_be_disabled()
    edit(page, "[streams.s]", "[streams.s")
    expect(checked).to_contain_text("is no TOML")
    edit(page, "2000", "1000")
    expect(checked).to_contain_text("The setup is complete")
    expect(start).to_be_enabled()
    page.reload()
    expect(page.get_by_label("rate")).to_have_value("1000")
    page.get_by_label("rate").fill("500")
    expect(start).to_be_enabled()

    state = page.locator("[data-state]")
    start.click()
    expect(state).to_contain_text("running")
    expect(start).to_be_disabled()
    page.get_by_role("button", name="Pause").click()
    expect(state).to_contain_text("paused")
    other = context.new_page()
    other.goto(f"{base(url)}monitor")
    expect(other.locator("[data-state]")).to_contain_text("paused")
    page.reload()
    expect(state).to_contain_text("paused")
    page.evaluate("document.activeElement.blur()")
    wait_for_keys(page)
    page.keyboard.press("p")
    expect(state).to_contain_text("done")
    assert page.get_by_role("table", name="Drivers").get_by_role("row").nth(1).inner_text().split()[:2] == [
        "load-0",
        "finished",
    ]
    expect(page.locator('[data-figure="Events sent"]')).to_have_text("1,500")
    expect(page.get_by_role("table", name="Processes")).to_contain_text("system")

    expect(other.locator("[data-state]")).to_contain_text("done")
    expect(other.get_by_role("table", name="Queries").get_by_role("row", name="counts")).to_contain_text("ms")
    name = next((place / "runs").iterdir()).name
    page.goto(f"{base(url)}monitor?run={name}")
    row = page.get_by_role("table", name="Queries").get_by_role("row", name="rows")
    expect(row).to_contain_text("ms")
    expect(page.locator('[data-figure="Events"]')).to_have_text("1,500")
    expect(page.locator(".chart canvas")).to_have_count(5)
    page.get_by_label("Query").click()
    page.get_by_role("option", name="rows").click()
    expect(page.get_by_text("rows, from the scheduled time")).to_be_visible()
    page.goto(f"{base(url)}monitor?run=..%2Fsetups")
    expect(page.get_by_text("there is no run '../setups'")).to_be_visible()


def test_a_run_that_fails_says_why(page: Page, url: str) -> None:
    """And Ctrl-C ends the command while another one goes on (see `serve`)."""
    page.goto(url)
    expect(page.locator("[data-check]")).to_contain_text("The setup is complete")
    edit(page, "COUNT(*)", "NONSENSE(k)")
    start = page.get_by_role("button", name="Start")
    expect(start).to_be_enabled()
    start.click()
    expect(page.locator("[data-state]")).to_contain_text("failed")
    expect(page.get_by_role("alert")).to_contain_text("NONSENSE")
    edit(page, "seconds = 3", "seconds = 300")
    expect(page.get_by_label("seconds")).to_have_value("300")
    start.click()
    expect(page.locator("[data-state]")).to_contain_text("running")


def test_only_files_of_the_list_are_read(setups: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.toml").write_text(SETUP)
    os.symlink(tmp_path / "secret.toml", setups / "linked.toml")
    files = SetupFiles([setups])
    assert [name for name in files.files() if not name.startswith("microbenchmarks/")] == ["setups/short.toml"]
    assert files.read("setups/short.toml")[0] == SETUP
    for name in ("setups/../secret.toml", "../secret.toml", "setups/linked.toml", str(tmp_path / "secret.toml")):
        with pytest.raises(InputError, match="no such setup"):
            files.read(name)
    with pytest.raises(InputError, match="there is no run"):
        Runs(tmp_path / "runs").view("../setups")


def test_what_is_told_of_a_text(tmp_path: Path) -> None:
    assert check(SETUP, tmp_path, {"rate": "10", "gone": "1"}, None, Limits()).setup is not None
    wrong = check("a = 1\nb = = 2", tmp_path, {}, None, Limits())
    assert (wrong.setup, wrong.line) == (None, 2)
    negative = SETUP.replace('rate = "${rate}"', "rate = -5")
    assert check(negative, tmp_path, {}, None, Limits()).line == negative.splitlines().index("rate = -5") + 1
    missing = check(SETUP.replace('"${rate}"', '"${rat}"'), tmp_path, {}, None, Limits())
    assert "rat" in missing.error


REPLAY = """
[[drivers]]
name = "again"
replay = { file = "FILE", stream = "s", pace = "max" }
"""
TWO_DRIVERS = SETUP.replace("[streams.s]", '[streams.s]\nlateness = "1 s"')


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('[system]\nadapter = "os:system"', "system.adapter: 'os:system' is not installed"),
        ('[system]\nadapter = "flink"\noptions = { python = "/bin/ls" }', "system.options.python: names a program"),
        ('[system]\nadapter = "spark"\noptions = { master = "spark://there:7077" }', "system.options.master: names an"),
        ('[system]\nadapter = "kafka"\noptions = { bootstrap = "there:9092" }', "system.options.bootstrap: names an"),
        (REPLAY.replace("FILE", "ABSOLUTE"), "drivers[1].replay.file: "),
        (REPLAY.replace("FILE", "../there.csv"), "drivers[1].replay.file: "),
        (REPLAY.replace("FILE", "linked.csv"), "drivers[1].replay.file: "),
    ],
)
def test_what_a_setup_from_a_page_may_not_name(tmp_path: Path, more: str, said: str) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "there.csv"
    inside.mkdir()
    outside.write_text("k\n1\n")
    (inside / "linked.csv").symlink_to(outside)
    text = TWO_DRIVERS + more.replace("ABSOLUTE", str(outside))
    refused = check(text, inside, {}, None, Limits([inside]))
    assert refused.setup is None
    assert said in refused.error
    assert "outside" in refused.error or "replay" not in more
    assert (refused.line or 0) >= len(TWO_DRIVERS.splitlines())


def test_what_was_allowed_may_be_named(tmp_path: Path) -> None:
    own = SETUP + '[system]\nadapter = "penstock_bench.measure.adapters.embedded:Embedded"'
    allowed = Limits([], ["penstock_bench.measure.adapters.embedded:Embedded"])
    assert check(own, tmp_path, {}, None, allowed).setup is not None
    (tmp_path / "a.csv").write_text("k\n1\n")
    assert check(TWO_DRIVERS + REPLAY.replace("FILE", "a.csv"), tmp_path, {}, None, Limits([tmp_path])).error == ""


TABLE = "CREATE TABLE z (k INT, PRIMARY KEY (k)) FROM 'PLACE'; CREATE QUERY q AS SELECT s.k FROM s, z WHERE s.k = z.k"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (TABLE.replace("PLACE", "/etc/passwd"), "table z is read from outside of the directories"),
        (TABLE.replace("PLACE", "INSIDE/../there.csv"), "table z is read from outside of the directories"),
        (TABLE.replace("PLACE", "INSIDE/linked.csv"), "table z is read from outside of the directories"),
        (TABLE.replace("PLACE", "INSIDE/*.csv"), "table z is read from elsewhere than a file"),
        (TABLE.replace("PLACE", "file:///etc/passwd"), "table z is read from elsewhere than a file"),
        (TABLE.replace("PLACE", "sqlite:INSIDE/a.db"), "table z is read from elsewhere than a file"),
        (TABLE.replace("PLACE", "postgresql://there/db"), "table z is read from elsewhere than a file"),
        ("SELECT k FROM s; CREATE FUNCTION f AS HTTP POST 'http://there/'", "function f calls an address"),
        ("CREATE SINK o TO '/tmp/o.csv'; INSERT INTO o SELECT k FROM s", "sink o has a place of its own"),
        ("CREATE STREAM p (t TIMESTAMP, EVENT TIME t) FROM '/etc/passwd'; SELECT t FROM p", "stream p has a place"),
        ("SELECT k FROM s WHERE (", "queries: "),
    ],
)
def test_what_a_query_from_a_page_may_not_name(tmp_path: Path, statement: str, said: str) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "there.csv").write_text("k\n1\n")
    (tmp_path / "inside" / "linked.csv").symlink_to(tmp_path / "there.csv")
    text = SETUP + f'[queries.q]\ntext.penstock = "{statement.replace("INSIDE", str(tmp_path / "inside"))}"\n'
    for adapter in ("embedded", "spark"):
        refused = check(text, tmp_path, {}, adapter, Limits([tmp_path / "inside"]))
        assert refused.setup is None
        assert said in refused.error


def test_a_query_from_a_page_reads_files_of_its_directories(tmp_path: Path) -> None:
    statement = TABLE.replace("PLACE", str(tmp_path / "a.csv"))
    text = SETUP + f'[queries.q]\ntext.penstock = "{statement}"\n'
    assert check(text, tmp_path, {}, None, Limits([tmp_path])).error == ""


def test_texts_of_other_systems_are_run_as_the_files_have_them(tmp_path: Path) -> None:
    """Spark's language reads any file: SELECT * FROM csv.`/etc/passwd`."""
    known = SETUP.replace("[parameters]", '[parameters]\nword = "COUNT"\nother = "spark"')
    known = known.replace("[queries.counts]", '[queries.counts]\ntext.spark = "SELECT ${word}(k) FROM s"')
    known = known.replace("[queries.rows]", '[queries.rows]\ntext.spark = "SELECT ts FROM s"')
    limits = Limits([tmp_path], texts=lambda: [known])

    def told(text: str, parameters: dict[str, Scalar] | None = None) -> str:
        return check(text, tmp_path, parameters or {}, "spark-streaming", limits).error

    stealing = "SELECT * FROM csv.`/etc/passwd`"
    assert told(known) == ""
    assert told(known, {"word": "SUM"}) == ""
    assert "parameters.word: is no word" in told(known, {"word": f"({stealing}) --"})
    assert "queries.rows.text.spark: differs" in told(known.replace("SELECT ts FROM s", stealing))
    hidden = known.replace('text.spark = "SELECT ts FROM s"', f'text."${{other}}" = "{stealing}"')
    assert "queries.rows.text.spark: differs" in told(hidden)
    assert told(known.replace("SLIDE 100", "SLIDE 200")) == ""
