"""The suite that every operator must pass, whatever it computes.

A `Story` is how the events of some streams are handed to a stage: cut anywhere, with calls that bring no events, calls
that bring the watermark alone, and restarts. What comes out must not depend on it.

    at once      [a a a a a a] finish
    one by one   [a][a][a][a][a][a] finish
    a story      [a a][ ][a]~[a a a][ ]~ finish        [ ] no events, ~ a restart from a snapshot
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
import pytest

from penstock.errors import BudgetError

from .subject import UNLIMITED, Event, Stage, Subject

TINY_BLOCKS = 4096


@dataclass(frozen=True)
class Call:
    """Events of a stream, and the watermark; `restart` says that the stage is saved and made anew after it."""

    stream: str
    events: list[Event]
    watermark: int
    restart: bool = False


@dataclass(frozen=True)
class Outcome:
    rows: list[str]
    rejects: list[str]


def at_once(streams: Mapping[str, list[Event]]) -> list[Call]:
    return [Call(name, events, events[-1]["t"]) for name, events in streams.items() if events]


def one_by_one(streams: Mapping[str, list[Event]]) -> list[Call]:
    """In the order of the times, streams of one time in the order in which they are declared."""
    rows = [(event["t"], place, name, event) for place, name in enumerate(streams) for event in streams[name]]
    return [Call(name, [event], time) for time, _, name, event in sorted(rows, key=lambda row: row[:2])]


def story(streams: Mapping[str, list[Event]], chance: np.random.Generator, restarts: bool) -> list[Call]:
    """Pieces of the streams, which may be far apart; some calls have no events, some only move the watermark as far as
    the next event allows."""
    left = {name: list(events) for name, events in streams.items()}
    reached = {name: events[0]["t"] - 10 for name, events in streams.items() if events}
    calls: list[Call] = []
    while any(left.values()):
        name = str(chance.choice([name for name, events in left.items() if events]))
        size = int(chance.choice([0, 1, 1, 2, 5, 17]))
        piece, left[name] = left[name][:size], left[name][size:]
        if piece:
            reached[name] = piece[-1]["t"]
        if left[name] and chance.random() < 0.3:
            reached[name] = int(chance.integers(reached[name], left[name][0]["t"], endpoint=True))
        calls.append(Call(name, piece, reached[name], restarts and chance.random() < 0.2))
    return calls


def play(subject: Subject, calls: list[Call], memory: int = UNLIMITED, block_size: int = 65536) -> Outcome:
    stage = subject.make(memory, block_size)
    rows: list[str] = []
    rejects: list[str] = []
    try:
        for call in calls:
            before = stage.watermark
            found = stage.process(call.stream, call.events, call.watermark)
            _check_promise(found, before, stage)
            rows += found
            if call.restart:
                saved = stage.snapshot()
                rejects += stage.rejects
                stage.close()
                stage = subject.make(memory, block_size, saved)
        return Outcome(rows + stage.finish(), rejects + stage.rejects)
    finally:
        stage.close()


def _check_promise(rows: list[str], before: int, stage: Stage) -> None:
    """Nothing comes out before the time that was reached, and that time never goes back."""
    times = [int(row.partition(":")[0]) for row in rows]
    assert times == sorted(times), "rows come out in the order of their times"
    assert not times or times[0] >= before, f"a row of {times[0]} comes out after {before} was reached"
    assert stage.watermark >= before or not rows, "the time that is reached goes back"


def assert_same(found: Outcome, expected: Outcome) -> None:
    for what in ("rows", "rejects"):
        got, wanted = getattr(found, what), getattr(expected, what)
        for place, (one, other) in enumerate(zip_longest(got, wanted)):
            assert one == other, f"{what} {place} of {len(got)} and {len(wanted)}:\n  {one}\n  {other} was expected"


def check_cuts(subject: Subject, chance: np.random.Generator) -> None:
    streams = subject.draw(chance)
    expected = play(subject, at_once(streams))
    assert expected.rows, "the events of a subject give rows"
    assert_same(play(subject, one_by_one(streams)), expected)
    for _ in range(4):
        assert_same(play(subject, story(streams, chance, restarts=False)), expected)


def check_restarts(subject: Subject, chance: np.random.Generator) -> None:
    streams = subject.draw(chance)
    expected = play(subject, at_once(streams))
    for _ in range(3):
        assert_same(play(subject, story(streams, chance, restarts=True)), expected)
    often = [replace(call, restart=place % 3 == 0) for place, call in enumerate(one_by_one(streams))]
    assert_same(play(subject, often), expected)


def check_snapshots_change_nothing(subject: Subject, chance: np.random.Generator) -> None:
    """Taken twice a snapshot is the same, and what comes later is as if none had been taken."""
    streams = subject.draw(chance)
    calls = story(streams, chance, restarts=False)
    expected = play(subject, calls)
    stage = subject.make()
    rows = []
    for call in calls:
        rows += stage.process(call.stream, call.events, call.watermark)
        assert stage.snapshot() == stage.snapshot()
    assert_same(Outcome(rows + stage.finish(), stage.rejects), expected)
    stage.close()


def check_tiny_budget(subject: Subject, chance: np.random.Generator) -> None:
    """In small blocks, and in a budget that is just enough for one way of cutting, answers stay as they are. A budget
    that is too small for one way is too small for all, give or take three blocks. Events arrive in the same order."""
    streams = subject.draw(chance)
    whole = at_once(streams)
    single = [Call(call.stream, [event], event["t"]) for call in whole for event in call.events]
    expected = play(subject, whole)
    assert_same(play(subject, single, block_size=TINY_BLOCKS), expected)
    least = _least(lambda memory: play(subject, whole, memory, TINY_BLOCKS))
    assert_same(play(subject, single, least + 2 * TINY_BLOCKS, TINY_BLOCKS), expected)
    less = least - _STEP - 3 * TINY_BLOCKS
    if less > 0:
        with pytest.raises(BudgetError):
            play(subject, single, less, TINY_BLOCKS)


_STEP = TINY_BLOCKS // 4


def _least(run: Callable[[int], Outcome]) -> int:
    """The least budget with which it runs, or less than a step more."""
    low, high = 0, 1 << 21
    while high - low > _STEP:
        middle = (low + high) // 2
        try:
            run(middle)
            high = middle
        except BudgetError:
            low = middle
    return high


def check_nothing(subject: Subject, chance: np.random.Generator) -> None:
    """Without events nothing comes out, whatever time it is; an empty stage can be saved and go on."""
    streams = subject.draw(chance)
    stage = subject.make()
    for watermark in (-(1 << 40), 0):
        for stream, events in streams.items():
            assert stage.process(stream, [], min(watermark, events[0]["t"] - 1)) == []
    saved = stage.snapshot()
    assert stage.finish() == []
    stage.close()
    expected = play(subject, at_once(streams))
    stage = subject.make(saved=saved)
    rows = [row for call in at_once(streams) for row in stage.process(call.stream, call.events, call.watermark)]
    assert_same(Outcome(rows + stage.finish(), stage.rejects), expected)
    stage.close()


def check_gives_back(subject: Subject, chance: np.random.Generator) -> None:
    """What is closed in the middle holds no memory any more."""
    stage = subject.make()
    for call in one_by_one(subject.draw(chance))[:-3]:
        stage.process(call.stream, call.events, call.watermark)
    assert stage.close() == 0


ALL_CHECKS = (
    check_cuts,
    check_restarts,
    check_snapshots_change_nothing,
    check_tiny_budget,
    check_nothing,
    check_gives_back,
)
