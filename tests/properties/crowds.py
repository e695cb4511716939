"""Streams of hundreds of keys that come and go, and streams of many columns.

A key is there for a while and leaves; some come back. So the slots of groups and partitions go from key to key in
nearly every case. The events are drawn as a whole from a seed; what shrinks is their number.

Wide streams have the columns of all others and `WIDE` behind them. Their rows are nearly equal: a NULL or a one in a
few places, zero (or the empty text) everywhere else. So two keys differ in one NULL.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from conformance.description import Event

_KINDS = ("INT", "BIGINT", "DOUBLE", "STRING")
_ZERO: dict[str, Any] = {"INT": 0, "BIGINT": 0, "DOUBLE": 0.0, "STRING": ""}
_ONE: dict[str, Any] = {"INT": 1, "BIGINT": 1, "DOUBLE": 1.0, "STRING": "a"}

WIDE = tuple((f"c{i}", _KINDS[i % len(_KINDS)]) for i in range(72))
"""Columns for keys of up to 72 parts; with the others a stream has 80."""

EXTREMES = (2**53, 2**53 + 1, -(2**53) - 1, 2**62, -(2**62), 2**63 - 1, -(2**63), 2**63 - 2)
"""Integers that a double does not tell from their neighbours."""


@st.composite
def crowds(draw: st.DrawFn, unit: int, lateness: int, most: int = 300) -> list[Event]:
    """The columns are those of `generate.COLUMNS`."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    count = draw(st.integers(most // 2, most))
    present = draw(st.sampled_from((3, 12, 40)))  # so many keys are there at a time
    pace = draw(st.sampled_from((0.3, 0.7, 1.0)))  # so many keys come with an event
    beyond = draw(st.sampled_from((0, 0, 2)))
    now, newest = draw(st.sampled_from((0, -7, 1_000))), 0.0
    events: list[Event] = []
    for _ in range(count):
        now += chance.choice((0, 0, 0, 1, 1, 2, 7))
        newest += pace
        number = max(int(newest) - chance.randrange(present), 0)
        if chance.random() < 0.1:
            number = chance.randrange(int(newest) + 1)  # it comes back
        small, large = chance.choice((None, *range(-6, 7))), chance.choice(EXTREMES)
        events.append(
            {
                "t": (now - chance.randint(0, lateness + beyond)) * unit,
                "q": chance.randrange(4),
                "k": None if number % 50 == 49 else f"k{number}",
                "g": chance.choice((None, 0, 1, 2)),
                "n": small,
                "w": chance.choice((large, large - 1 if large > 0 else large + 1, 3, -3)),
                "x": chance.choice((None, 1e16, -1e16, 0.1, chance.uniform(-9, 9))),
                "y": chance.choice((None, chance.randrange(-40, 40) / 4)),
            }
        )
    return events


@st.composite
def widened(draw: st.DrawFn, events: list[Event]) -> list[Event]:
    """The same events with the columns `WIDE`."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    last = len(WIDE) - 1
    wide = []
    for event in events:
        more = {name: _ZERO[kind] for name, kind in WIDE}
        for _ in range(chance.choice((0, 1, 1, 2))):
            # Often one of the last, which are behind the 64th.
            name, kind = WIDE[chance.choice((chance.randint(0, last), chance.randint(last - 12, last), 0, 63, 64))]
            more[name] = chance.choice((None, None, _ONE[kind]))
        wide.append(event | more)
    return wide
