"""Tables whose rows go to disk with the first change, and leave memory all the time: as simulated, and as in memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import App, BudgetError
from penstock.operators.tables import cold, cold_order, cold_records
from penstock.operators.tables.cold import ColdRows
from penstock.operators.tables.matched import these
from penstock.operators.tables.table import Table
from penstock.operators.tables.texts import TableTexts
from penstock.store import hashed_pages
from penstock.store.budget import Account
from properties import test_tables


@pytest.fixture
def paging(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Rows are on disk from the first change on, few to a page. Room has to be made every other time, mostly by giving
    up all rows in memory. Counts what happens."""
    monkeypatch.setattr(hashed_pages, "PAGE_BYTES", 64)
    monkeypatch.setattr(hashed_pages, "_LEAST_ROWS", 2)
    monkeypatch.setattr(cold, "_LEAST", 1 << 60)
    counts = {"asked": 0, "begun": 0, "kept": 0, "emptied": 0}
    has_room, begin, flush, empty = ColdRows._has_room, ColdRows._begin, ColdRows.flush, ColdRows._empty

    def tight(self: ColdRows, rows: int, gone: int) -> bool:
        counts["asked"] += 1
        return counts["asked"] % 5 in (0, 1, 4) and has_room(self, rows, gone)

    def begun(self: ColdRows) -> None:
        counts["begun"] += 1
        begin(self)
        self.keys_at_once = 3

    def flushed(self: ColdRows) -> None:
        emptied = counts["emptied"]
        flush(self)
        counts["kept"] += emptied == counts["emptied"]

    def gave_up(self: ColdRows) -> None:
        counts["emptied"] += 1
        empty(self)

    monkeypatch.setattr(ColdRows, "_fit", lambda self, words: False)
    monkeypatch.setattr(ColdRows, "_has_room", tight)
    monkeypatch.setattr(ColdRows, "_begin", begun)
    monkeypatch.setattr(ColdRows, "flush", flushed)
    monkeypatch.setattr(ColdRows, "_empty", gave_up)
    return counts


@pytest.mark.parametrize("examples", [60, pytest.param(1500, marks=pytest.mark.slow)])
def test_as_simulated(examples: int, paging: dict[str, int]) -> None:
    simulated = test_tables.test_as_simulated.hypothesis.inner_test  # type: ignore[attr-defined]

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        simulated(data)

    holds()
    assert paging["begun"] > examples / 8
    assert paging["emptied"] > 0


STATEMENTS = [
    "ON {s} UPSERT INTO T (k, n, w) VALUES ({s}.k, COALESCE(T.n, 0) + {s}.x, {s}.u)",
    "ON {s} UPSERT INTO T (k, w) VALUES ({s}.k, {s}.u)",
    "ON {s} INSERT INTO T VALUES ({s}.k, {s}.x, {s}.u)",
    "ON {s} UPDATE T SET n = n + x WHERE T.k = {s}.k",
    "ON {s} UPDATE T SET n = n % 1000 * 2, w = {s}.u WHERE T.k = {s}.k AND n > {s}.x",
    "ON {s} WHERE {s}.x = 3 DELETE FROM T WHERE T.k = {s}.k",
]
BY_TEXT = {change.text: change for change in test_tables.CHANGES}
BY_KEY = [read for read in test_tables.READS if read.rows in (test_tables.by_key, test_tables.left)]
ANYTHING = [read for read in test_tables.READS if read.rows is test_tables.by_value]


@dataclass(frozen=True)
class Values:
    """The type of the key, and what stands for a number of a key and for a text."""

    kind: str
    key: Callable[[int], Any]
    texts: tuple[str | None, ...]


NUMBERS = Values("INT", int, (None, "p", "q", "r", "s"))
TEXTS = Values("STRING", lambda k: ["", "a" * 300, "ä", "b\0c"][k] if k < 4 else f"key {k}", (None, "", "q" * 300, "r"))
SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 200))]


@pytest.mark.parametrize("seed", SEEDS)
def test_many_keys(seed: int, paging: dict[str, int], tmp_path: Path) -> None:
    many_keys(seed, NUMBERS, tmp_path)


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_many_keys_that_are_texts(
    seed: int, alike: bool, paging: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many have equal hashes if they are `alike`; and every other restart has no room for the texts of rows."""
    if alike:
        monkeypatch.setattr(cold_records, "text_hashes", lambda strings: np.zeros(len(strings), np.int64))
    restore, calls = TableTexts.restore, iter(range(1000))

    def without_room(self: TableTexts, snapshot: Any) -> None:
        if next(calls) % 3 == 0:
            raise BudgetError("no room for texts")
        restore(self, snapshot)

    monkeypatch.setattr(TableTexts, "restore", without_room)
    monkeypatch.setattr(Account, "try_resize", ranges_if(seed % 2 == 1, Account.try_resize))
    many_keys(seed, TEXTS, tmp_path)


def ranges_if(wanted: bool, try_resize: Callable[[Account, int], bool]) -> Callable[[Account, int], bool]:
    """Has no room for the order of rows if that is `wanted`: they are sorted range by range then."""

    def answer(self: Account, nbytes: int) -> bool:
        more = nbytes - self.nbytes
        is_order = self.name.endswith("where its rows are on disk") and more > 0 and more % cold_order._ORDER_BYTES == 0
        return not (wanted and is_order and inspect.stack()[1].function == "_by_hash") and try_resize(self, nbytes)

    return answer


def many_keys(seed: int, values: Values, state: Path) -> None:
    """Keys that spread over many pages, two streams of which one is behind, a restart, any batches."""
    random = Random(seed)
    changes = [(random.choice("ab"), BY_TEXT[text]) for text in random.sample(STATEMENTS, random.randint(1, 3))]
    reads = [(random.choice("ab"), read) for read in random.sample(BY_KEY + ANYTHING, random.randint(0, 2))]
    ttl = random.choice([None, 3, 20, 60])
    text = test_tables.DECLARED.format(ttl="" if ttl is None else test_tables.TTL.format(ttl=ttl))
    text = text.replace("k INT", f"k {values.kind}")
    text += ";".join(change.text.format(s=s) for s, change in changes)
    text += "".join(f";CREATE QUERY r{i} AS {read.text.format(s=s)}" for i, (s, read) in enumerate(reads))
    events = {s: [_event(random, values) for _ in range(random.randint(0, 120))] for s in "ab"}
    events = {s: test_tables.within_lateness(own) for s, own in events.items()}
    size = random.choice([1, 7, 50])
    turns = [(s, events[s][i : i + size]) for s in "ab" for i in range(0, len(events[s]), size)]
    if random.random() < 0.7:
        turns.sort(key=lambda turn: turn[1][0]["t"] // 5)  # batches of a stream keep their order
    stops = set(random.sample(range(len(turns)), min(2, len(turns))))
    app = App(text, checkpoint=state)
    for number, (stream, batch) in enumerate(turns):
        app.push(stream, batch[0] if len(batch) == 1 else batch)
        if number in stops:
            app.checkpoint()
            app.close()
            app = App(text, checkpoint=state)
            check_uses(app._flow.tables.table("T"))
    app.finish()
    found, _, _ = test_tables.simulate(events, changes, reads, ttl)
    writers = {s for s, _ in changes}
    own = {s: events[s] if s in writers else [] for s in "ab"}
    _, _, contents = test_tables.simulate(own, changes, [], ttl)
    table = app.table("T").to_pylist()
    assert [row["k"] for row in table] == sorted(contents)
    assert {row.pop("k"): row for row in table} == contents
    for i, rows in enumerate(found):
        assert test_tables.plain(app.results(f"r{i}").to_pylist()) == rows, text
    check_uses(app._flow.tables.table("T"))
    app.close()


def check_uses(table: Table) -> None:
    """Texts in memory are those of rows in memory, of keys that are gone and of the past: none more, and none less."""
    table.settle()
    counts = {name: np.zeros(interner._texts.codes, np.int64) for name, interner in table.interners.items()}
    gone = table.cold._gone
    words = np.empty((0, 1), np.int64) if gone is None else gone.key_words(these(gone.all_rows()))
    past = table.history._part(0, len(table.history))
    for interner, codes in [*table.strings(), *table.texts.of_keys(words), *table._strings_of(past)]:
        (name,) = (name for name, other in table.interners.items() if other is interner)
        np.add.at(counts[name], codes, 1)
    for name, interner in table.interners.items():
        assert interner._texts.is_kept.tolist() == (counts[name] > 0).tolist()
        used = counts[name] > 0
        assert interner._uses.array[: len(used)][used].tolist() == counts[name][used].tolist()


def _event(random: Random, values: Values) -> dict[str, object]:
    key = None if random.random() < 0.03 else values.key(random.randint(0, 60))
    number = None if random.random() < 0.05 else random.randint(-1, 8)
    return {"t": random.randint(0, 100), "k": key, "x": number, "u": random.choice(values.texts)}
