"""MEDIAN and the percentiles with values in pages: forced there at every chance, with pages of a few entries."""

from __future__ import annotations

import numpy as np
import pytest
from checks import History, Player, Step, canonical, check_history, check_state, make_history
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_order_statistics import WANTS, draw, in_order, oracle, percentile, shaped, state
from test_selective import Shelf

from penstock.aggregates import order_statistics, ordered_pages, paged_order
from penstock.aggregates import ordered_page_kernels as kernels
from penstock.aggregates.order_statistics import OrderState
from penstock.aggregates.ordered_pages import OrderedPages
from penstock.aggregates.packed_pages import PackedPages
from penstock.aggregates.paged_order import PagedOrder
from penstock.aggregates.state import Argument, Emitted, Rows, Schedule, Want
from penstock.components import Saved
from penstock.errors import BudgetError
from penstock.store.budget import Budget
from penstock.store.memory_device import MemoryDevice
from penstock.types import SqlType


@pytest.fixture(params=["stay", "come back", "in parts"])
def paging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Every call pages what is in memory, and only some pages stay in memory. Counts what happens to pages."""
    counts = {"divided": 0, "united": 0, "dealt out": 0}
    advance, put, unite, deal = OrderState.advance, OrderedPages.put, OrderedPages._unite, PagedOrder._deal_out

    def paged(self: OrderState, added: Rows, removed: Rows, schedule: Schedule) -> tuple[Emitted, ...]:
        if self._paged is None:
            assert self._page()
        columns = advance(self, added, removed, schedule)
        if self._paged is not None:
            check_pages(self._paged, self)
        return columns

    def counted_put(self: OrderedPages, place: int, entries: np.ndarray) -> None:
        put(self, place, entries)
        counts["divided"] += place in self._changed and len(self._changed[place]) > 1

    def counted_unite(self: OrderedPages) -> None:
        before = self.length
        unite(self)
        counts["united"] += before - self.length

    def counted_deal(self: PagedOrder) -> None:
        counts["dealt out"] += 1
        deal(self)

    monkeypatch.setattr(OrderState, "advance", paged)
    monkeypatch.setattr(OrderedPages, "put", counted_put)
    monkeypatch.setattr(OrderedPages, "_unite", counted_unite)
    monkeypatch.setattr(PagedOrder, "_deal_out", counted_deal)
    monkeypatch.setattr(PagedOrder, "bytes_for", lambda *_: -1)
    monkeypatch.setattr(order_statistics, "_LEAST_TREE", 0)
    monkeypatch.setattr(order_statistics, "_BACK", 0 if request.param == "come back" else 1 << 40)
    monkeypatch.setattr(ordered_pages, "mean_entries", lambda capacity, work: 2)
    monkeypatch.setattr(paged_order, "_UNEVEN", 1)
    if request.param == "in parts":
        monkeypatch.setattr(paged_order, "_WORK_BYTES", 1 << 14)
    keep = PackedPages._may_keep
    monkeypatch.setattr(PackedPages, "_may_keep", lambda self, nbytes: nbytes % 16 == 0 and keep(self, nbytes))
    return counts


def check_pages(paged: PagedOrder, made: OrderState) -> None:
    """The invariants of the directory, the log and the pages."""
    known = paged._pages
    rows = known.rows
    assert made.nbytes == made._account.nbytes
    assert rows[:, kernels.COUNT].sum() == made._counts.sum()
    assert (rows[:, kernels.COUNT] >= 0).all()
    firsts = rows[:, [kernels.SLOT, kernels.KEY]].tolist()
    assert firsts == sorted(firsts)
    waiting = np.zeros(paged._log.partitions, np.int64)
    np.add.at(waiting, rows[:, kernels.PARTITION], rows[:, kernels.WAITING])
    assert waiting.tolist() == paged._log.waiting.tolist()
    pages = rows[:, kernels.PAGE].tolist()
    assert sorted([*pages, *known._free]) == list(range(known._made))
    if len(rows) > 50:
        return
    for place, row in enumerate(rows):
        entries = known.read(place).tolist()
        assert len(entries) == row[kernels.ENTRIES]
        owned = [[slot, key] for slot, key, _ in entries]
        assert owned == sorted(owned)
        if place:
            assert not owned or owned[0] >= firsts[place]
        if place + 1 < len(rows):
            assert not owned or owned[-1] < firsts[place + 1]
        assert row[kernels.WAITING] or sum(load for _, _, load in entries) == row[kernels.COUNT]


def on(shelf: Shelf, type_: SqlType = SqlType.BIGINT, wants: tuple[Want, ...] = WANTS) -> OrderState:
    return OrderState(wants, type_, Budget(1 << 26).account("test"), shelf)


@pytest.mark.parametrize("type_", [SqlType.DOUBLE, SqlType.FLOAT, SqlType.INT, SqlType.BIGINT])
def test_small_windows(type_: SqlType, paging: dict[str, int]) -> None:
    check_state(lambda: on(Shelf(), type_), draw(type_), oracle(), rounds=0)
    shelf = Shelf()
    check_state(lambda: on(shelf, type_), draw(type_), oracle(), rounds=5)
    assert shelf.blocks


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.one_of(st.none(), st.floats(), st.sampled_from([0.0, -0.0, 1.0])), min_size=1, max_size=100),
    fraction=st.floats(0, 1),
    slots=st.integers(1, 4),
    seed=st.integers(0, 1 << 30),
)
def test_any_doubles_and_fractions(
    values: list[float | None], fraction: float, slots: int, seed: int, paging: dict[str, int]
) -> None:
    rng = np.random.default_rng(seed)
    wants = (Want("PERCENTILE_CONT", fraction), Want("PERCENTILE_DISC", fraction))
    argument = Argument(
        np.array([0.0 if v is None else v for v in values]), np.array([v is not None for v in values], dtype=np.bool_)
    )
    shelf = Shelf()
    check_history(lambda: on(shelf, SqlType.DOUBLE, wants), make_history(rng, (argument,), slots), oracle(wants), rng)


@pytest.mark.parametrize("shape", ["uniform", "few", "constant", "rising", "falling", "wide"])
@pytest.mark.parametrize("slots", [1, 3, 300])
def test_many_rows_against_sorting(shape: str, slots: int, paging: dict[str, int]) -> None:
    """Every event is asked in some calls, and none in others; the window drains at the end, and frees every page."""
    rng = np.random.default_rng(len(shape) + slots)
    count, window = 1500, 400
    values, of = shaped(shape, rng, count), rng.integers(0, slots, count).astype(np.int32)
    wants = (Want("MEDIAN"), Want("PERCENTILE_DISC", 0.9))
    shelf = Shelf()
    made = on(shelf, SqlType.DOUBLE, wants)
    player = Player(made, History(of, (Argument(values, None),), np.arange(count), ()))
    turn = 0
    while player.entered < count:
        size = min(count - player.entered, (200, 1, 40, 150)[turn % 4])
        at, asked = player.entered, turn % 3 < 2
        steps = [Step(1, int(row >= window), (int(of[row]),) if asked else ()) for row in range(at, at + size)]
        begin = len(player.answers)
        player.play(steps)
        turn += 1
        if asked:
            for row in {at, at + size // 2, at + size - 1}:
                inside = np.arange(max(0, row + 1 - window), row + 1)
                own = sorted(values[inside[of[inside] == of[row]]].tolist(), key=in_order)
                assert player.answers[begin + row - at] == tuple(canonical(percentile(want, own)) for want in wants)
    while player.left < count:
        player.play([Step(0, min(90, count - player.left), (0,))])
    made.reset(np.arange(slots, dtype=np.int32))
    assert sorted(shelf.freed) == list(range(len(shelf.blocks))), "a block outlived its values, or was freed twice"
    if order_statistics._BACK and shape in ("uniform", "wide"):
        assert paging["divided"] > 20
        assert paging["united"] > 20
        assert paging["dealt out"] > 2


def sliding(made: OrderState, count: int, width: int, step: int, emits: tuple[int, ...] = (0,)) -> Player:
    """Scattered values, of which a window has each once in a row; the median is in the middle."""
    values = np.arange(count) % width * 0x9E3779B1 % width
    player = Player(made, History(np.zeros(count, np.int32), (Argument(values, None),), np.arange(count), ()))
    for _ in range(count // step):
        leave = max(0, player.entered + step - width - player.left)
        player.play([Step(step, leave, emits)])
        if emits and player.entered >= width:
            assert player.answers[-1] == (np.float64((width - 1) / 2).tobytes(),)
        assert made.nbytes == made._account.nbytes <= made._account._budget.used
    return player


MEDIAN = (Want("MEDIAN"),)


def test_what_ended_in_a_refusal_runs_in_the_same_budget() -> None:
    total = 3_000_000
    with pytest.raises(BudgetError, match="MEDIAN must keep every value"):
        sliding(state(SqlType.BIGINT, MEDIAN, total), 600_000, 400_000, 10_000)
    budget = Budget(total)
    device = MemoryDevice()
    made = OrderState(MEDIAN, SqlType.BIGINT, budget.account("test"), device)
    player = sliding(made, 600_000, 400_000, 10_000)
    assert made._paged is not None
    assert device.written > 10_000_000
    assert budget.peak <= total
    player.play([Step(0, 400_000, (0,))])
    assert player.answers[-1] == (None,)
    assert made._paged is None, "nothing is left, so there are no pages"
    assert not device._blocks


def test_what_nobody_asks_for_waits_in_the_log() -> None:
    budget = Budget(3_000_000)
    made = OrderState(MEDIAN, SqlType.BIGINT, budget.account("test"), MemoryDevice())
    player = sliding(made, 300_000, 200_000, 1_000, ())
    assert made._paged is not None
    assert made._paged._log.waiting.sum() > 2_000
    player.play([Step(0, 0, (0,))])
    assert player.answers == [(np.float64((200_000 - 1) / 2).tobytes(),)]


def test_every_event_of_a_call_has_its_answer() -> None:
    """A rank that moves by little reads no page again and again."""
    device = MemoryDevice()
    made = OrderState(WANTS, SqlType.BIGINT, Budget(2_000_000).account("test"), device)
    count, width = 130_000, 100_000
    rng = np.random.default_rng(5)
    values = np.where(rng.random(count) < 0.5, rng.integers(0, 30_000, count), np.arange(count))
    slots = rng.integers(0, 3, count).astype(np.int32)
    player = Player(made, History(slots, (Argument(values, None),), np.arange(count), ()))
    player.play([Step(width, 0, ())])
    assert made._paged is not None
    steps = [Step(1, 1, (int(slots[at]),)) for at in range(width, count)]
    for start in range(0, len(steps), 3000):
        player.play(steps[start : start + 3000])
    for at in range(width, count, 487):
        inside = np.arange(at + 1 - width, at + 1)
        own = np.sort(values[inside[slots[inside] == slots[at]]]).tolist()
        assert player.answers[at - width] == tuple(canonical(percentile(want, own)) for want in WANTS)


def test_others_get_the_memory_of_a_tree_and_of_pages() -> None:
    budget = Budget(8_000_000)
    made = OrderState(MEDIAN, SqlType.BIGINT, budget.account("test"), MemoryDevice())
    player = sliding(made, 150_000, 150_000, 50_000)
    assert made._paged is None
    assert made.nbytes > 1_800_000
    other = budget.account("other")
    other.resize(6_300_000)
    assert made._paged is not None
    assert made.nbytes == made._account.nbytes < 1_600_000
    player.play([Step(0, 0, (0,))])
    assert player.answers[-1] == (np.float64((150_000 - 1) / 2).tobytes(),)
    assert made._paged is not None
    other.resize(1_000)
    player.play([Step(0, 140_000, (0,))])
    assert made._paged is None, "what is left fits memory well"
    assert made.nbytes == made._account.nbytes
    assert budget.peak <= budget.total


def test_many_slots_with_few_values_stay_in_memory() -> None:
    """What counts them would take more than pages give."""
    made = OrderState(MEDIAN, SqlType.BIGINT, Budget(1 << 26).account("test"), MemoryDevice())
    made.ensure(1 << 20)
    count = 40_000
    numbers = np.arange(count)
    player = Player(made, History(numbers.astype(np.int32), (Argument(numbers, None),), numbers, ()))
    player.play([Step(count, 0, (5,))])
    assert not made._give_up()
    assert made._paged is None


@pytest.mark.parametrize("total", [3_000_000, 1_600_000])
def test_a_restart_may_have_another_budget(total: int) -> None:
    """What was in memory pages, and what was in pages stays there or comes back."""
    rng = np.random.default_rng(1)
    count = 150_000
    values = rng.integers(0, 1 << 40, count)
    history = History(np.zeros(count, np.int32), (Argument(values, None),), np.arange(count), ())
    for first, second in ((1 << 26, total), (total, 1 << 26), (total, total)):
        shelf = Shelf()
        before = Player(OrderState(MEDIAN, SqlType.BIGINT, Budget(first).account("test"), shelf), history)
        for _ in range(13):
            before.play([Step(10_000, 0, (0,) if before.entered < 80_000 else ())])
        assert isinstance(before.state, OrderState)
        assert (before.state._paged is None) == (first == 1 << 26)
        budget = Budget(second)
        made = OrderState(MEDIAN, SqlType.BIGINT, budget.account("test"), shelf)
        made.restore(before.state.snapshot())
        assert made.nbytes == budget.used <= budget.peak <= second
        after = Player(made, history)
        after.entered = 130_000
        after.play([Step(20_000, 20_000, (0,))])
        assert after.answers == [(np.median(values[20_000:]).tobytes(),)]
        assert (made._paged is None) == (second == 1 << 26)


def test_what_was_saved_by_the_version_before_is_read() -> None:
    saved = {"counts": np.array([3, 0]), "keys": np.array([2, 5, 9])}
    made = state(SqlType.BIGINT, MEDIAN)
    made.restore(Saved(saved, "OrderState", 1))
    player = Player(made, make_history(np.random.default_rng(0), (Argument(np.arange(0), None),), 1))
    player.play([Step(0, 0, (0,))])
    assert player.answers == [(np.float64(5).tobytes(),)]
