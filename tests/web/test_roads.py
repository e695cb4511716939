"""The roads of Linear Road on a page, in a real browser, while the application runs over a file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect

from penstock_bench.workloads.linear_road.history import TOLL
from penstock_bench.workloads.linear_road.reports import REPORT, write_integers, write_reports
from web.conftest import Serve, base


@pytest.mark.slow
def test_the_roads_move(page: Page, serve: Serve, place: Path) -> None:
    """Two cars stand for eight minutes; a crowd in the same segment of the other direction is slow and dear."""
    rows = [
        row
        for time in range(0, 480, 30)
        for row in [
            *({"vid": 1 + car, "speed": 0, "dir": 0, "lane": 2, "seg": 30, "pos": 30 * 5280 + 7} for car in (0, 1)),
            *({"vid": 9 + car, "speed": 20, "dir": 1, "lane": 1, "seg": 30, "pos": time + car} for car in range(60)),
        ]
        for row in [dict.fromkeys(REPORT.names, -1) | {"type": 0, "time": time, "xway": 0} | row]
    ]
    write_reports(place / "input.csv", [pa.Table.from_pylist(rows, schema=REPORT.arrow)])
    write_integers(place / "tolls.csv", [], TOLL)
    url = serve(
        "-m", "penstock", "linear-road", "watch", "input.csv", "--tolls", "tolls.csv", "--port", 0, "--speed", 200
    )
    page.goto(url)
    expect(page.get_by_role("heading", name="Roads")).to_be_visible()
    expect(page.locator('[data-figure="Minute"]')).to_have_text("8")
    expect(page.locator('[data-figure="Cars"]')).to_have_text("62")
    expect(page.locator('[data-figure="Dearest toll"]')).to_have_text("200")
    expect(page.locator('[data-road="0"] [data-accident="30"]')).to_be_visible()
    expect(page.locator('[data-road="1"] .crawl')).to_have_count(1)
    expect(page.locator('[data-road="0"] .zone')).to_have_count(5)
    expect(page.get_by_role("table", name="Accidents")).to_contain_text("east")
    page.goto(base(url).replace("/roads", "/app"))
    expect(page.get_by_role("table", name="Queries").get_by_role("row", name="toll_notifications")).to_be_visible()
