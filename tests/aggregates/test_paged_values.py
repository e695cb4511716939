"""COUNT_DISTINCT whose values are in pages: forced there at every chance, with pages of a few entries."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from checks import History, Player, Step, Window, check_history, check_state, expected, make_history
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_distinct import count_and_mode, draw, state
from test_selective import Shelf

from penstock.aggregates import distinct, paged_values, value_packing, value_pages
from penstock.aggregates.distinct import DistinctState
from penstock.aggregates.state import Argument, Emitted, Rows, Schedule, Want
from penstock.aggregates.value_pages import ValuePages
from penstock.errors import BudgetError
from penstock.store.budget import Account, Budget
from penstock.store.memory_device import MemoryDevice
from penstock.types import SqlType

WANTS = (Want("COUNT_DISTINCT"),)


@pytest.fixture(params=["stay", "come back"])
def paging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Every call pages what is in memory, and only some pages stay in memory. Counts pages divided and united."""
    advance = DistinctState.advance
    counts = {"divided": 0, "united": 0}

    def paged(self: DistinctState, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        if self._paged is None:
            assert self._page()
        return advance(self, added, removed, schedule)

    def counted(method: Callable[[ValuePages], None], name: str) -> Callable[[ValuePages], None]:
        def count(self: ValuePages) -> None:
            counts[name] += 1
            method(self)

        return count

    monkeypatch.setattr(DistinctState, "advance", paged)
    monkeypatch.setattr(distinct, "_LEAST_TABLE", 0)
    monkeypatch.setattr(distinct, "_BACK", 1 << 40 if request.param == "stay" else 0)
    monkeypatch.setattr(value_pages, "mean_entries", lambda capacity, work: 2)
    keep = ValuePages._may_keep
    monkeypatch.setattr(ValuePages, "_may_keep", lambda self, nbytes: nbytes % 16 == 0 and keep(self, nbytes))
    monkeypatch.setattr(ValuePages, "_divide_one", counted(ValuePages._divide_one, "divided"))
    monkeypatch.setattr(ValuePages, "_unite_two", counted(ValuePages._unite_two, "united"))
    return counts


def on(shelf: Shelf, type_: SqlType = SqlType.BIGINT) -> DistinctState:
    return DistinctState(WANTS, type_, Budget(1 << 26).account("test"), shelf)


def count_of(window: Window) -> list[object]:
    return count_and_mode(window)[:1]


@pytest.mark.parametrize("type_", [SqlType.DOUBLE, SqlType.TINYINT, SqlType.STRING, SqlType.BIGINT])
def test_counts(type_: SqlType, paging: dict[str, int]) -> None:
    check_state(lambda: on(Shelf(), type_), draw(type_), count_of, rounds=0)
    shelf = Shelf()
    check_state(lambda: on(shelf, type_), draw(type_), count_of, rounds=8)
    assert shelf.blocks


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.one_of(st.none(), st.integers(0, 6), st.integers()), min_size=1, max_size=120),
    slots=st.integers(1, 4),
    seed=st.integers(0, 1 << 30),
)
def test_any_integers(values: list[int | None], slots: int, seed: int, paging: dict[str, int]) -> None:
    rng = np.random.default_rng(seed)
    argument = Argument(
        np.array([(v or 0) % (1 << 63) for v in values], dtype=np.int64),
        np.array([v is not None for v in values], dtype=np.bool_),
    )
    shelf = Shelf()
    check_history(lambda: on(shelf), make_history(rng, (argument,), slots), count_of, rng)


def test_a_window_that_grows_and_drains_frees_every_page(paging: dict[str, int]) -> None:
    count, width = 3000, 700
    rng = np.random.default_rng(3)
    values = np.where(rng.random(count) < 0.3, rng.integers(0, 20, count), rng.integers(-(1 << 62), 1 << 62, count))
    steps = [Step(50, 50 if at * 50 >= width else 0, (0, 1) if at % 3 else ()) for at in range(count // 50)]
    steps += [Step(0, 70, (0,)) for _ in range(10)]
    history = History(rng.integers(0, 2, count).astype(np.int32), (Argument(values, None),), np.arange(count), ())
    history = History(history.slots, history.arguments, history.leaving, (*steps, Step(0, 0, (0, 1))))
    shelf = Shelf()
    made = on(shelf)
    player = Player(made, history)
    for step in history.steps:
        player.play([step])
        assert made.nbytes == made._account.nbytes
    assert player.answers == expected(history, count_of)
    made.ensure(2)
    made.reset(np.arange(2, dtype=np.int32))
    assert sorted(shelf.freed) == list(range(len(shelf.blocks))), "a block outlived its values, or was freed twice"
    if distinct._BACK:
        assert paging["divided"] > 100
        assert paging["united"] > 100


def test_slots_that_are_reset_do_not_fill_pages(paging: dict[str, int]) -> None:
    shelf = Shelf()
    made = on(shelf)
    values = np.arange(30_000)
    slots = np.where(values % 100 < 2, 1, 0).astype(np.int32)
    player = Player(made, History(slots, (Argument(values, None),), values, ()))
    for turn in range(1, 31):
        player.play([Step(1000, 0, (0, 1))])
        assert player.answers[-2:] == [(980,), (20 * turn,)]
        made.reset(np.zeros(1, np.int32))
    player.play([Step(0, 0, (0, 1))])
    assert player.answers[-2:] == [(0,), (600,)]
    assert len(shelf.blocks) - len(set(shelf.freed)) < 700


def sliding(made: DistinctState, count: int, width: int, step: int, emits: tuple[int, ...] = (0,)) -> Player:
    """Scattered values, each of which comes twice in a row of windows."""
    values = np.arange(count) // 2 * 0x9E3779B1
    player = Player(made, History(np.zeros(count, np.int32), (Argument(values, None),), np.arange(count), ()))
    for _ in range(count // step):
        leave = max(0, player.entered + step - width - player.left)
        player.play([Step(step, leave, emits)])
        if emits:
            assert player.answers[-1] == ((player.entered - player.left) // 2,)
        assert made.nbytes == made._account.nbytes <= made._account._budget.used
    return player


def test_what_ended_in_a_refusal_runs_in_the_same_budget() -> None:
    total = 3_000_000
    with pytest.raises(BudgetError, match="COUNT_DISTINCT must keep every distinct value"):
        sliding(state(SqlType.BIGINT, WANTS, total), 600_000, 400_000, 10_000)
    budget = Budget(total)
    device = MemoryDevice()
    made = DistinctState(WANTS, SqlType.BIGINT, budget.account("test"), device)
    player = sliding(made, 600_000, 400_000, 10_000)
    assert device.written > 10_000_000
    assert budget.peak <= total
    player.play([Step(0, 400_000, (0,))])
    assert player.answers[-1] == (0,)
    assert made._paged is None, "nothing is left, so there are no pages"
    assert not device._blocks


def test_what_nobody_asks_for_waits_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most operations are in blocks of the log when they are played."""
    monkeypatch.setattr(paged_values, "_WORK_BYTES", 4)
    budget = Budget(3_000_000)
    made = DistinctState(WANTS, SqlType.BIGINT, budget.account("test"), MemoryDevice())
    player = sliding(made, 600_000, 400_000, 10_000, ())
    assert made._paged is not None
    assert made._paged._log._on_device.sum() > 50_000
    player.play([Step(0, 0, (0,))])
    assert player.answers == [(200_000,)]


def test_every_event_of_a_call_has_its_count() -> None:
    made = DistinctState(WANTS, SqlType.BIGINT, Budget(2_000_000).account("test"), MemoryDevice())
    count, width = 60_000, 50_000
    rng = np.random.default_rng(5)
    values = np.where(rng.random(count) < 0.5, rng.integers(0, 30_000, count), np.arange(count))
    slots = rng.integers(0, 3, count).astype(np.int32)
    player = Player(made, History(slots, (Argument(values, None),), np.arange(count), ()))
    steps = [Step(1, int(at >= width), (int(slots[at]),)) for at in range(count)]
    for start in range(0, count, 7000):
        player.play(steps[start : start + 7000])
    assert made._paged is not None
    held: list[dict[int, int]] = [{}, {}, {}]
    for at in range(count):
        own = held[slots[at]]
        own[values[at]] = own.get(values[at], 0) + 1
        if at >= width:
            gone = held[slots[at - width]]
            gone[values[at - width]] -= 1
            if not gone[values[at - width]]:
                del gone[values[at - width]]
        assert player.answers[at] == (len(held[slots[at]]),)


def test_others_get_the_memory_of_a_table_and_of_pages() -> None:
    budget = Budget(8_000_000)
    made = DistinctState(WANTS, SqlType.BIGINT, budget.account("test"), MemoryDevice())
    player = sliding(made, 150_000, 150_000, 50_000)
    assert made._paged is None
    assert made.nbytes > 3_000_000
    other = budget.account("other")
    other.resize(6_000_000)
    assert made._paged is not None
    assert made.nbytes == made._account.nbytes < 2_000_000
    other.resize(1_000_000)
    player.history = History(
        np.zeros(300_000, np.int32), (Argument(np.arange(300_000) // 2 * 0x9E3779B1, None),), np.arange(300_000), ()
    )
    for _ in range(4):
        player.play([Step(10_000, 10_000, (0,))])
        assert player.answers[-1] == (75_000,)
    with_pages = made.nbytes
    assert with_pages > 2_000_000, "pages stay in memory where there is some"
    other.resize(6_000_000)
    assert made.nbytes < with_pages - 500_000
    player.play([Step(10_000, 10_000, (0,))])
    assert player.answers[-1] == (75_000,)
    assert budget.peak <= budget.total


@pytest.mark.parametrize("total", [3_000_000, 1_600_000])
def test_a_restart_may_have_another_budget(total: int) -> None:
    """What was in memory pages, and what was in pages stays there or comes back."""
    rng = np.random.default_rng(1)
    values = rng.integers(0, 1 << 40, 90_000)
    history = History(np.zeros(90_000, np.int32), (Argument(values, None),), np.arange(90_000), ())
    for first, second in ((1 << 26, total), (total, 1 << 26), (total, total)):
        shelf = Shelf()
        before = Player(DistinctState(WANTS, SqlType.BIGINT, Budget(first).account("test"), shelf), history)
        for _ in range(8):
            before.play([Step(10_000, 0, (0,))])
        assert isinstance(before.state, DistinctState)
        assert (before.state._paged is None) == (first == 1 << 26)
        budget = Budget(second)
        made = DistinctState(WANTS, SqlType.BIGINT, budget.account("test"), shelf)
        made.restore(before.state.snapshot())
        assert made.nbytes == budget.used <= budget.peak <= second
        after = Player(made, history)
        after.entered = 80_000
        after.play([Step(10_000, 20_000, (0,))])
        assert after.answers == [(len(np.unique(values[20_000:])),)]
        assert (made._paged is None) == (second == 1 << 26)


def test_mode_keeps_its_rows_in_memory() -> None:
    made = DistinctState((*WANTS, Want("MODE")), SqlType.BIGINT, Budget(2_000_000).account("test"), MemoryDevice())
    with pytest.raises(BudgetError, match="must keep every row"):
        sliding(made, 150_000, 150_000, 50_000)


@settings(deadline=None)
@given(
    slots=st.lists(st.integers(0, (1 << 31) - 1), min_size=1, max_size=40),
    generations=st.sampled_from([(1,), (7,), (1, 2), (1, 1 << 20)]),
    most=st.sampled_from([1, 255, 256, 1 << 40]),
    same=st.booleans(),
    seed=st.integers(0, 1 << 30),
)
def test_packed_entries_come_back(
    slots: list[int], generations: tuple[int, ...], most: int, same: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    count = len(slots)
    owners = rng.choice(generations, count) << 32 | np.array(slots[:1] * count if same else slots)
    values = rng.integers(-(1 << 63), (1 << 63) - 1, count)
    entries = np.stack((owners, values, rng.integers(1, most + 1, count)), axis=1)
    content = value_packing.packed(entries, np.empty(3 + 3 * count, np.int64)).copy()
    assert value_packing.entries_in(content) == count
    assert value_packing.unpacked(content, np.empty((count + 3, 3), np.int64)).tolist() == entries.tolist()
    if same and len(generations) == 1 and most < 256:
        assert len(content) <= 24 + 9 * count + 7


def test_pages_are_found_by_linear_hashing() -> None:
    """However many pages there are, each entry is in the page that says so."""
    account: Account = Budget(1 << 24).account("test")
    pages = ValuePages(MemoryDevice(), account, 4, 1 << 20)
    rng = np.random.default_rng(0)
    entries = np.stack((np.full(40_000, 1 << 32), rng.integers(0, 1 << 62, 40_000), np.ones(40_000, np.int64)), axis=1)
    begins = np.zeros(5, np.int64)
    value_pages.kernels.count_pages(entries, 4, 4, begins)
    value_pages.kernels.sort_by_page(entries, 4, 4, begins, begins.copy())
    pages.fill(entries, 4, begins)
    pages.fit()
    assert pages.pages == pages.fitting(40_000) > 16
    operations = np.empty((1, 2), np.int64)
    seen = 0
    for page in range(pages.pages):
        for owner, value, _ in pages.read(page)[:20].tolist():
            operations[0] = owner, value
            found = np.empty(1, np.int64)
            value_pages.kernels.find_pages(operations, pages.pages, pages.level, found)
            assert found[0] == page
        seen += len(pages.read(page))
        assert pages._places.array[page, 1] <= MemoryDevice().capacity
    assert seen == 40_000
    pages.close()
    assert account.nbytes == 0
