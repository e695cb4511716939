"""The picture of the roads: well-formed, with a cell for each segment and the marks of tolls and accidents."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pyarrow as pa

from penstock_bench.pictures.roads import roads_picture
from penstock_bench.workloads.linear_road.roads import RoadsNow

ROWS = {
    "at": [60, 60, 120, 120, 120, 120],
    "road": [0, 1, 0, 0, 1, 3],
    "seg": [1, 2, 10, 11, 50, 99],
    "lav": [50, 50, 30, 0, 20, 60],
    "cars": [60, 60, 70, 0, 61, 5],
    "ahead": [5, 5, 1, 0, 5, 5],
}


def test_what_is_drawn() -> None:
    now = RoadsNow()
    now.take(pa.table(ROWS).slice(0, 0))
    assert now.seen is None
    now.take(pa.table(ROWS))
    seen = now.seen
    assert seen is not None
    assert (seen.minute, seen.speed.shape, seen.accidents) == (3, (4, 100), [(0, 11)])
    assert (int(seen.toll[1, 50]), int(seen.toll[0, 10]), int((seen.speed >= 0).sum())) == (242, 0, 3)
    root = ElementTree.fromstring(roads_picture(seen, "Roads <one>"))
    assert root.findtext("{*}title") == "Roads <one>"
    strips = root.findall("{*}g")
    assert [strip.get("data-road") for strip in strips] == ["0", "1", "2", "3"]
    kinds = [[cell.get("class") for cell in strip.findall("{*}rect")] for strip in strips]
    counts = {
        kind: sum(row.count(kind) for row in kinds) for kind in ("empty", "slow", "crawl", "free", "toll", "zone")
    }
    assert counts == {"empty": 397, "slow": 1, "crawl": 1, "free": 1, "toll": 1, "zone": 2}
    assert [mark.get("data-accident") for strip in strips for mark in strip.findall("{*}text")] == ["11"]
    assert "<style>" not in roads_picture(seen, "Roads", styled=False)
    assert np.array_equal(seen.cars[3, 98:], [0, 5])
