"""The suite every aggregate state must pass, whatever it computes.

A `History` is what an operator would drive a state with: rows, the order in which they leave, and steps that
interleave both with evaluations. `check_state` plays random histories and demands that every answer is the
oracle's (a recomputation from the rows in the window), however the calls were cut, across a snapshot that went
through the stored format, and after a reset.

    rows enter    0 1 2 | 3 | 4 5 6 7 |        steps are separated by bars
    rows leave          | 0 | 1 2     | 3 4
    evaluated       a b | a | b       | a b
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.aggregates.state import AggregateState, Argument, Emitted, Rows, Schedule, Snapshot
from penstock.store.state import decode, encode

FAILED = "failed"
"""What an oracle returns for a result that must be marked as overflow."""

Window = list[tuple[object, ...]]
"""The rows of one slot now in the window, oldest first; each a tuple of argument values, None for NULL."""

MakeState = Callable[[], AggregateState]
Draw = Callable[[np.random.Generator, int], tuple[Argument, ...]]
Oracle = Callable[[Window], Sequence[object]]


@dataclass(frozen=True)
class Step:
    """How many rows enter, how many leave, and which slots are evaluated then."""

    adds: int
    removes: int
    emits: tuple[int, ...]


@dataclass(frozen=True)
class History:
    slots: np.ndarray
    arguments: tuple[Argument, ...]
    leaving: np.ndarray
    """Indices of rows in the order they leave."""
    steps: tuple[Step, ...]
    first_position: int = 0

    def rows(self, chosen: np.ndarray) -> Rows:
        arguments = tuple(
            Argument(a.values[chosen], None if a.valid is None else a.valid[chosen]) for a in self.arguments
        )
        return Rows(self.first_position + chosen.astype(np.int64), self.slots[chosen], arguments)

    def row(self, index: int) -> tuple[object, ...]:
        return tuple(
            None if a.valid is not None and not a.valid[index] else a.values[index].item() for a in self.arguments
        )


def make_history(
    rng: np.random.Generator, arguments: tuple[Argument, ...], slots: int, *, drain: bool = True
) -> History:
    """Random slots (some -1) and steps over the given rows; leaves in arrival order, or in another order across slots.

    With `drain` every row has left at the end and every slot is evaluated once more.
    """
    count = len(arguments[0].values) if arguments else int(rng.integers(0, 120))
    taken = rng.integers(-1, slots, count).astype(np.int32)
    leaving = np.arange(count)
    if rng.random() < 0.5:
        places = np.arange(count)
        for slot in range(-1, slots):
            mine = np.flatnonzero(taken == slot)
            places[mine] = np.sort(rng.integers(0, count + 1, len(mine)))
        leaving = np.lexsort((np.arange(count), places))
    steps: list[Step] = []
    entered = left = 0
    single = rng.random() < 0.3
    while entered < count:
        adds = 1 if single else min(count - entered, int(rng.choice([0, 1, 1, 2, 5, 17, 40])))
        entered += adds
        ready = left
        while ready < count and leaving[ready] < entered:
            ready += 1
        leave = min(ready - left, int(rng.integers(0, 2 * adds + 2))) if rng.random() < 0.8 else 0
        left += leave
        emits = rng.integers(0, slots, int(rng.integers(0, 2 if single else slots + 2)))
        steps.append(Step(adds, leave, tuple(emits.tolist())))
    if drain:
        steps.append(Step(0, count - left, tuple(range(slots))))
    return History(taken, arguments, leaving, tuple(steps))


def cut_finely(rng: np.random.Generator, steps: Sequence[Step]) -> list[Step]:
    """The same sequence of adds, removes and evaluations in more steps."""
    finer: list[Step] = []
    for step in steps:
        adds, removes, emits = (int(rng.integers(0, n + 1)) for n in (step.adds, step.removes, len(step.emits)))
        finer.append(Step(adds, 0, ()))
        finer.append(Step(step.adds - adds, removes, ()))
        finer.append(Step(0, step.removes - removes, step.emits[:emits]))
        finer.append(Step(0, 0, step.emits[emits:]))
    return finer


def canonical(value: object) -> object:
    """Equal exactly when two results are the same value, to the bit; all NaN are the same."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack("<d", value)
    return value


def answers(columns: Sequence[Emitted]) -> list[tuple[object, ...]]:
    """One tuple per evaluation: canonical values, None for NULL, FAILED for overflow."""

    def cell(column: Emitted, index: int) -> object:
        if column.failed is not None and column.failed[index]:
            return FAILED
        if column.valid is not None and not column.valid[index]:
            return None
        value = column.values[index]
        return canonical(value.item() if isinstance(value, np.generic) else value)

    return [tuple(cell(c, i) for c in columns) for i in range(len(columns[0].values))]


class Player:
    """Drives one state along a history; knows how far it has come."""

    def __init__(self, state: AggregateState, history: History) -> None:
        self.state = state
        self.history = history
        self.entered = 0
        self.left = 0
        self.answers: list[tuple[object, ...]] = []

    def play(self, steps: Sequence[Step]) -> None:
        """One call of `advance` for all these steps."""
        adds = np.cumsum([s.adds for s in steps], dtype=np.int64)
        removes = np.cumsum([s.removes for s in steps], dtype=np.int64)
        emits = np.cumsum([len(s.emits) for s in steps], dtype=np.int64)
        emitted_slots = np.array([slot for s in steps for slot in s.emits], dtype=np.int32)
        total_adds, total_removes = (int(a[-1]) if len(a) else 0 for a in (adds, removes))
        added = self.history.rows(np.arange(self.entered, self.entered + total_adds))
        removed = self.history.rows(self.history.leaving[self.left : self.left + total_removes])
        used = [int(a.max()) + 1 for a in (added.slots, emitted_slots) if len(a)]
        self.state.ensure(max(used, default=0))
        columns = self.state.advance(added, removed, Schedule(adds, removes, emits, emitted_slots))
        assert all(len(c.values) == len(emitted_slots) for c in columns)
        assert all(c.valid is None or len(c.valid) == len(c.values) for c in columns)
        assert all(c.failed is None or len(c.failed) == len(c.values) for c in columns)
        self.answers += answers(columns)
        self.entered += total_adds
        self.left += total_removes

    def play_cut(self, rng: np.random.Generator, steps: Sequence[Step]) -> None:
        """The steps in several calls, some of them empty."""
        at = 0
        while at < len(steps):
            upto = min(len(steps), at + int(rng.integers(0, 6)))
            self.play(steps[at:upto])
            at = upto


def expected(history: History, oracle: Oracle) -> list[tuple[object, ...]]:
    """The oracle's answers, recomputed from the rows in the window at every evaluation."""
    windows: dict[int, list[int]] = {}
    entered = left = 0
    result: list[tuple[object, ...]] = []
    for step in history.steps:
        for index in range(entered, entered + step.adds):
            windows.setdefault(int(history.slots[index]), []).append(index)
        entered += step.adds
        for index in history.leaving[left : left + step.removes].tolist():
            window = windows[int(history.slots[index])]
            assert window[0] == index or history.slots[index] < 0
            window.remove(index)
        left += step.removes
        for slot in step.emits:
            rows = [history.row(index) for index in windows.get(slot, [])]
            result.append(tuple(canonical(value) for value in oracle(rows)))
    return result


def through_storage(snapshot: Snapshot) -> Snapshot:
    """The snapshot as a restart would find it."""
    return decode(encode(snapshot))


def check_history(make_state: MakeState, history: History, oracle: Oracle, rng: np.random.Generator) -> None:
    """One history, played in every way: in one call, step by step, cut at random, and across a restart."""
    want = expected(history, oracle)

    whole = Player(make_state(), history)
    whole.play(history.steps)
    assert whole.answers == want

    stepwise = Player(make_state(), history)
    for step in history.steps:
        stepwise.play([step])
    assert stepwise.answers == want

    cut = Player(make_state(), history)
    cut.play_cut(rng, cut_finely(rng, history.steps))
    assert cut.answers == want

    steps = cut_finely(rng, history.steps)
    middle = int(rng.integers(0, len(steps) + 1))
    before = Player(make_state(), history)
    before.play_cut(rng, steps[:middle])
    stored = through_storage(before.state.snapshot())
    after = Player(make_state(), history)
    after.state.restore(stored)
    after.entered, after.left, after.answers = before.entered, before.left, list(before.answers)
    after.play_cut(rng, steps[middle:])
    assert after.answers == want
    before.play_cut(rng, steps[middle:])
    assert before.answers == want, "taking a snapshot, or another state's restore, changed the state"


def check_reset(make_state: MakeState, draw: Draw, oracle: Oracle, rng: np.random.Generator) -> None:
    """Slots that were reset are as new; the others are untouched."""
    slots = 4
    first = make_history(rng, draw(rng, 60), slots, drain=False)
    player = Player(make_state(), first)
    player.play_cut(rng, first.steps)
    gone = np.array([0, 2], dtype=np.int32)
    player.state.ensure(slots)
    player.state.reset(gone)

    second = make_history(rng, draw(rng, 60), slots)
    second.slots[~np.isin(second.slots, gone)] = -1
    offset = len(first.slots)
    only_gone = tuple(Step(s.adds, s.removes, tuple(e for e in s.emits if e in gone)) for s in second.steps)
    second = History(second.slots, second.arguments, second.leaving, only_gone, first_position=offset)
    again = Player(player.state, second)
    again.play_cut(rng, second.steps)
    assert again.answers == expected(second, oracle), "a slot that was reset is not as new"

    rest = first.leaving[player.left :]
    kept = first.leaving[player.left :][np.isin(first.slots[rest], [1, 3])]
    last = History(first.slots, first.arguments, np.concatenate([first.leaving[: player.left], kept]), first.steps)
    closing = Player(player.state, last)
    closing.entered, closing.left = offset, player.left
    closing.play([Step(0, 0, (1, 3))])
    closing.play([Step(0, len(kept), (0, 1, 2, 3))])
    full = History(first.slots, first.arguments, first.leaving, (*first.steps, Step(0, 0, (1, 3))))
    nothing = tuple(canonical(value) for value in oracle([]))
    assert closing.answers == expected(full, oracle)[-2:] + [nothing] * slots


def check_empty(make_state: MakeState, draw: Draw, rng: np.random.Generator) -> None:
    """Calls with nothing in them return empty columns and change nothing; memory is accounted for."""
    history = make_history(rng, draw(rng, 0), 1, drain=False)
    history = History(history.slots[:0], history.arguments, history.leaving[:0], ())
    player = Player(make_state(), history)
    player.play([])
    player.play([Step(0, 0, ())])
    assert player.answers == []
    player.state.ensure(1)
    player.state.reset(np.zeros(0, dtype=np.int32))
    small = player.state.nbytes
    player.state.ensure(100_000)
    assert player.state.nbytes >= small >= 0
    assert isinstance(player.state.nbytes, int)


def check_state(
    make_state: MakeState, draw: Draw, oracle: Oracle, *, rounds: int = 12, rows: int = 120, seed: int = 7
) -> None:
    """All of the above over random histories.

    `draw(rng, n)` makes the argument columns of n rows (an empty tuple for a state without arguments).
    `oracle(window)` gives one expected result per column the state serves: None for NULL, `FAILED` for overflow.
    """
    rng = np.random.default_rng(seed)
    check_empty(make_state, draw, rng)
    for _ in range(rounds):
        history = make_history(rng, draw(rng, int(rng.integers(1, rows + 1))), int(rng.integers(1, 9)))
        check_history(make_state, history, oracle, rng)
        check_reset(make_state, draw, oracle, rng)
