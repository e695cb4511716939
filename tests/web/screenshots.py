"""Takes the pictures of the pages in docs/ again: `python tests/web/screenshots.py`, from the project's directory."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from conftest import chromium

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"

APP = """
import time
import numpy as np, pyarrow as pa
from penstock import App
from penstock.web import watch

app = App('''
    CREATE STREAM trades (at TIMESTAMP, symbol INT, price DOUBLE, volume INT, EVENT TIME at, LATENESS 2 SECONDS);
    CREATE STREAM quotes (at TIMESTAMP, symbol INT, bid DOUBLE, EVENT TIME at);
    CREATE QUERY vwap AS
        SELECT symbol, SUM(price * volume) / SUM(volume) AS vwap FROM trades [RANGE 1 HOUR] GROUP BY symbol;
    CREATE QUERY mean_price AS
        SELECT symbol, AVG(price) AS mean FROM trades [RANGE 1 HOUR SLIDE 10 SECONDS] GROUP BY symbol;
    CREATE QUERY extremes AS
        SELECT MAX(price) AS most, MIN(price) AS least FROM trades [RANGE 30 MINUTES SLIDE 1 MINUTE];
    CREATE QUERY share AS SELECT symbol, price / (volume - 7) AS share FROM trades WHERE volume < 8;
    INSERT INTO bars SELECT symbol, MAX(price) AS high FROM trades [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY symbol;
    CREATE QUERY crossed AS
        SELECT t.symbol, t.price, q.bid FROM trades [RANGE 1 SECOND] AS t, quotes [RANGE 1 SECOND] AS q
        WHERE t.symbol = q.symbol AND t.price < q.bid;
''', memory="16MB")
for query in app.queries:
    app.subscribe(query, lambda rows: None)
print(watch(app, "trading desk", port=0).url, flush=True)
draw, count, now = np.random.default_rng(1), 2000, 1_704_100_000_000_000
while True:
    at = now + np.sort(draw.integers(0, count * 500, count))
    at[::900] -= 4_000_000
    now += count * 500
    app.push("trades", pa.record_batch({
        "at": pa.array(at, pa.timestamp("us", tz="UTC")),
        "symbol": pa.array(draw.integers(0, 200, count), pa.int32()),
        "price": 100 + draw.normal(0, 1, count),
        "volume": pa.array(draw.integers(1, 5000, count), pa.int32()),
    }))
    app.push("quotes", pa.record_batch({
        "at": pa.array(now - 1000 + np.arange(5), pa.timestamp("us", tz="UTC")),
        "symbol": pa.array(draw.integers(0, 200, 5), pa.int32()),
        "bid": 100 + draw.normal(0, 1, 5),
    }))
    time.sleep(0.02 + 0.01 * np.sin(now / 7e7))
"""


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """The address that a process prints, while it runs in an empty directory."""
    with tempfile.TemporaryDirectory() as empty:
        command = [sys.executable, *arguments]
        process = subprocess.Popen(command, cwd=empty, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        try:
            found = next(match for line in process.stdout if (match := re.search(r"http://\S+", line)))
            yield found[0]
        finally:
            process.terminate()
            process.wait()


def take(page: Page, name: str, height: int, theme: str = "light") -> None:
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": 1366, "height": height})
    page.wait_for_timeout(1500)
    file = IMAGES / name
    page.screenshot(path=file)
    with Image.open(file) as picture:
        # Pages have few colours; a palette of them makes the file a third as large.
        picture.convert("RGB").quantize(128).save(file, optimize=True)
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1000:.0f} kB")


def main() -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        with served("-m", "penstock", "ui", str(ROOT / "examples"), "--no-browser", "--port", "0") as url:
            page.goto(url)
            page.get_by_label("Setup file").click()
            page.get_by_role("option", name="examples/trades.toml").click()
            page.get_by_text("An exchange sends trades").first.wait_for()
            page.get_by_role("button", name="Start").click()
            page.get_by_role("cell", name="load", exact=True).first.wait_for(timeout=120_000)
            page.wait_for_timeout(4000)
            take(page, "ui-controller.png", 800)
            page.goto(f"{url.partition('?')[0]}monitor")
            page.wait_for_timeout(18_000)
            take(page, "ui-monitor.png", 960)
        with served("-c", APP) as url:
            page.goto(url)
            page.wait_for_timeout(25_000)
            take(page, "ui-app.png", 860, "dark")
        roads(page)
        browser.close()


def roads(page: Page) -> None:
    """Two expressways in the last third of the three hours."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "penstock", "linear-road"]
        part = ("--roads", "2", "--begin", "6000", "--seconds", "1500", "--output", folder)
        subprocess.run([*command, "generate", *part], check=True)
        files = (f"{folder}/input.csv", "--tolls", f"{folder}/tolls.csv")
        with served("-m", "penstock", "linear-road", "watch", *files, "--port", "0") as url:
            page.goto(url)
            page.locator("[data-accident]").nth(1).wait_for(timeout=60_000)
            take(page, "ui-roads.png", 620)


if __name__ == "__main__":
    main()
