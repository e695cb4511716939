"""What the plan says of the engine's stores, and that the engine makes them by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.engine.app import App
from penstock.errors import StorageError
from penstock.lang import parse
from penstock.plan.build import build
from penstock.plan.nodes import AggregateNode, RelationNode
from penstock.store.blocks import ColumnSpec
from penstock.store.budget import Budget
from penstock.store.derived_properties import panes, reordering, stored_rows
from penstock.store.fifo import FifoStore
from penstock.store.manager import StoreManager
from penstock.store.properties import Properties, ReadPattern, Sharing, UpdatePattern
from penstock.store.queues import RowQueues
from penstock.store.runs import RunStore

STREAM = "CREATE STREAM s (t TIMESTAMP NOT NULL, k INT, v DOUBLE, EVENT TIME t);"


def window(query: str) -> AggregateNode | RelationNode:
    program = parse(STREAM + query)
    node = build(program.queries[0].body)
    assert isinstance(node, AggregateNode | RelationNode)
    return node


IN_ORDER = (UpdatePattern.FIFO, ReadPattern.SEQUENTIAL)
BY_KEY = (UpdatePattern.RANDOM, ReadPattern.RANDOM)
KEPT = (UpdatePattern.NO_UPDATE, ReadPattern.SEQUENTIAL)


@pytest.mark.parametrize(
    ("query", "patterns"),
    [
        ("SELECT SUM(v) FROM s [RANGE 1 HOUR];", IN_ORDER),
        ("SELECT k, SUM(v) FROM s [RANGE 1 HOUR SLIDE 1 MINUTE] GROUP BY k;", IN_ORDER),
        ("SELECT SUM(v) FROM s [ROWS 100 SLIDE 7];", IN_ORDER),
        ("SELECT v FROM s [RANGE 1 HOUR SLIDE 1 MINUTE];", IN_ORDER),
        ("SELECT k, SUM(v) FROM s [PARTITION BY k ROWS 10] GROUP BY k;", BY_KEY),
        ("SELECT v FROM s [PARTITION BY k ROWS 10];", BY_KEY),
        ("SELECT v FROM s [SESSION 1 MINUTE];", BY_KEY),
        ("SELECT v FROM s [SINCE TIMESTAMP '2026-01-01 00:00:00' SLIDE 1 MINUTE];", KEPT),
    ],
)
def test_stores_of_windows(query: str, patterns: tuple[UpdatePattern, ReadPattern]) -> None:
    found = stored_rows([window(query)])
    assert (found.update, found.read) == (patterns[0], (patterns[1],))
    assert found.sharing is Sharing.NOT_SHARED


def test_windows_that_share_a_store_share_it() -> None:
    windows = [window(f"SELECT SUM(v) FROM s [RANGE {hours} HOURS];") for hours in (1, 2, 24)]
    assert stored_rows(windows) == Properties(
        update=UpdatePattern.FIFO, read=(ReadPattern.SEQUENTIAL,), sharing=Sharing.SHARED
    )


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        (Properties(update=UpdatePattern.FIFO), FifoStore),
        (Properties(update=UpdatePattern.NO_UPDATE), FifoStore),
        (panes(), FifoStore),
        (Properties(update=UpdatePattern.RANDOM), RowQueues),
        (reordering(), RunStore),
    ],
)
def test_the_columnar_store_of_properties(properties: Properties, kind: type[Any]) -> None:
    stores = StoreManager(Budget(1 << 20), None)
    column = ColumnSpec("time", np.dtype(np.int64), False)
    assert isinstance(stores.create("rows", properties, [column]), kind)
    stores.close()


def test_no_columnar_store_changes_rows_in_place() -> None:
    with pytest.raises(StorageError, match="IN-PLACE"):
        StoreManager(Budget(1 << 20), None).create("rows", Properties(update=UpdatePattern.IN_PLACE))


def test_an_app_makes_its_stores_from_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, Properties]] = []
    create = StoreManager.create

    def noting(self: StoreManager, name: str, properties: Properties, *arguments: Any, **named: Any) -> Any:
        made.append((name, properties))
        return create(self, name, properties, *arguments, **named)

    monkeypatch.setattr(StoreManager, "create", noting)
    text = f"""{STREAM}
        CREATE QUERY day AS SELECT SUM(v) AS total FROM s [RANGE 1 DAY];
        CREATE QUERY hour AS SELECT MAX(v) AS most FROM s [RANGE 1 HOUR];
        CREATE QUERY each AS SELECT k, SUM(v) AS total FROM s [PARTITION BY k ROWS 10] GROUP BY k;
    """
    with App(text):
        updates = sorted((properties.update.value, properties.sharing.value) for _, properties in made)
    assert updates == [("FIFO", "shared"), ("RANDOM", "not shared"), ("RANDOM", "not shared")]
