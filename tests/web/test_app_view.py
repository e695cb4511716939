"""The app view of apps at work, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from web.conftest import Serve, wait_for_keys

SCRIPT = """
import signal
import time
from pathlib import Path
from penstock import App
from penstock.web import watch

# Who runs the tests in the background has SIGINT ignored, and so have all processes that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
app = App('''
    CREATE STREAM trades (at BIGINT, symbol STRING, price DOUBLE, EVENT TIME at UNIT SECONDS);
    CREATE TABLE prices AS LAST BY at FROM trades WITH ('ttl' = '1 MINUTE');
    CREATE QUERY mean AS SELECT symbol, AVG(price) AS mean FROM trades [RANGE 1 HOUR] GROUP BY symbol;
    CREATE QUERY most AS SELECT MAX(price) AS most FROM trades [RANGE 1 HOUR SLIDE 10 SECONDS];
    CREATE QUERY part AS SELECT 1 / CAST(price AS INT) AS part FROM trades;
''', memory='4MB')
at = 0
def push(count):
    global at
    for at in range(at + 1, at + 1 + count):
        app.push("trades", {"at": at, "symbol": "<img src=x onerror=alert(1)>", "price": float(at % 50)})
push(200)
app.push("trades", {"at": 5, "symbol": "late", "price": 1.0})
print(watch(app, "desk <b>one</b>", port=0).url, flush=True)
print(watch(App("CREATE STREAM s (t BIGINT, EVENT TIME t UNIT SECONDS); SELECT COUNT(*) AS n FROM s [ROWS 5];"),
            "desk <b>one</b>").url, flush=True)
until = time.monotonic() + 300
while time.monotonic() < until:
    push(1)
    time.sleep(0.05)
    if "added" not in app.queries and Path("add").exists():
        app.add_query("CREATE QUERY added AS SELECT COUNT(*) AS n FROM trades [RANGE 1 MINUTE]")
"""


@pytest.fixture(scope="module")
def script(serve: Serve, place: Path) -> str:
    (place / "script.py").write_text(SCRIPT)
    return serve("script.py")


def test_an_app_in_a_script(page: Page, script: str, place: Path) -> None:
    """Its figures move, its plan follows what is added, and its text stays text. The second app, which nobody holds, is
    not kept alive."""
    page.goto(script)
    page.on("dialog", lambda _: (_ for _ in ()).throw(AssertionError("a script ran")))
    expect(page.get_by_role("heading", name="desk <b>one</b>")).to_be_visible()
    expect(page.locator("[data-state]")).to_contain_text("running")
    queries = page.get_by_role("table", name="Queries")
    expect(queries.get_by_role("row", name="mean")).to_contain_text("[RANGE 1 HOUR]")
    expect(queries.get_by_role("row", name="most")).to_contain_text("stored window, with 1 more")
    plan = page.get_by_role("region", name="Plan")
    expect(plan.locator("[data-kind=window]")).to_have_count(2)  # the stored window and the table
    expect(plan.locator("[data-kind=query]")).to_have_count(3)
    (place / "add").touch()
    expect(plan.locator("[data-kind=query]")).to_have_count(4)
    expect(queries.get_by_role("row", name="added")).to_be_visible()
    expect(page.locator('[data-figure="Late"]')).to_have_text("1")
    prices = page.get_by_role("table", name="Tables").get_by_role("row", name="prices")
    expect(prices).to_contain_text(re.compile("0:0[01]:[0-9]{2}"))
    expect(page.get_by_role("table", name="Rejects")).to_contain_text("DIVIDE_BY_ZERO")
    expect(page.get_by_role("table", name="Rejects")).to_contain_text("<img src=x onerror=alert(1)>")
    expect(page.get_by_role("table", name="Stores")).to_contain_text("window-trades")
    events = page.locator('[data-figure="Events"]')
    before = events.inner_text()
    expect(events).not_to_have_text(before)


@pytest.mark.slow
def test_a_run_of_the_command(context: BrowserContext, serve: Serve, place: Path) -> None:
    """Two tabs see the same run; the page of a reload too."""
    (place / "app.sql").write_text(
        "CREATE STREAM s (t BIGINT, n INT, EVENT TIME t UNIT SECONDS) FROM 'in.csv';"
        "CREATE SINK out TO 'out.csv';"
        "INSERT INTO out SELECT SUM(n) AS total FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS];"
    )
    (place / "in.csv").write_text("t,n\n1,1\n2,x\n3,2\n11,5\n")
    command = ("-m", "penstock", "run", "app.sql", "--engine", "embedded", "--follow", "--ui", "--ui-port", "0")
    url = serve(*command)
    for _ in range(2):
        page = context.new_page()
        page.goto(url)
        expect(page.locator('[data-figure="Events"]')).to_have_text("3")
    with (place / "in.csv").open("a") as file:
        file.write("12,1\n")
    for page in context.pages:
        expect(page.locator('[data-figure="Events"]')).to_have_text("4")
    context.pages[0].reload()
    expect(context.pages[0].locator('[data-figure="Events"]')).to_have_text("4")


def test_keys_and_themes(page: Page, script: str) -> None:
    """Everything is reached with the keyboard, in order and visibly; shortcuts work and can be turned off."""
    page.goto(script)
    expect(page.get_by_role("table", name="Queries")).to_be_visible()
    wait_for_keys(page)
    reached = []
    for _ in range(9):
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        reached.append(focused.get_attribute("aria-label") or focused.inner_text().strip())
        assert focused.evaluate("e => e.matches(':focus-visible')")
    assert reached[:5] == ["Skip to main content", "Penstock", "App", "Light / dark", "Keyboard"]
    assert {"Stores", "Plan", "Queries"} <= set(reached)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("t")
    expect(page.locator("body.body--dark")).to_be_visible()
    page.reload()
    expect(page.locator("body.body--dark")).to_be_visible()
    wait_for_keys(page)
    page.keyboard.press("?")
    expect(page.get_by_text("light or dark")).to_be_visible()
    page.get_by_role("button", name="Single keys").click()
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_text("light or dark")).to_have_count(0)
    page.keyboard.press("t")
    expect(page.locator("body.body--dark")).to_be_visible()
