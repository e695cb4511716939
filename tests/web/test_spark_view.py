"""The app view of a run on Spark: what its micro-batches tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from web.conftest import Serve

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_run_on_spark(page: Page, serve: Serve, place: Path) -> None:
    (place / "in").mkdir()
    (place / "in" / "a.csv").write_text("t,n\n" + "".join(f"{t},{t % 5}\n" for t in range(1, 501)))
    (place / "app.sql").write_text(
        "CREATE STREAM s (t BIGINT, n INT, EVENT TIME t UNIT SECONDS) FROM 'in';"
        "CREATE SINK out TO 'out';"
        "INSERT INTO out SELECT n, COUNT(*) AS events FROM s [RANGE 1 MINUTE SLIDE 10 SECONDS] GROUP BY n;"
    )
    url = serve("-m", "penstock", "run", "app.sql", "--follow", "--ui-port", "0", "--master", "local[1]")
    page.goto(url)
    expect(page.get_by_text("on Spark, 1 query")).to_be_visible()
    expect(page.get_by_role("region", name="Plan").locator("[data-kind=query]")).to_have_count(1)
    expect(page.locator('[data-figure="Events"]')).to_have_text("500", timeout=200_000)
    expect(page.get_by_role("table", name="Engine")).to_contain_text("committed state")
