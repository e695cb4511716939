"""What extents, slides and windows answer for themselves, and that their fingerprints stay as saved state has them."""

from __future__ import annotations

from typing import get_args

import pytest

from penstock.lang.fingerprint import fingerprint
from penstock.windows.spec import (
    AtClose,
    CountSlide,
    EveryEvent,
    Extent,
    Range,
    RateSized,
    Rows,
    RowsOf,
    Session,
    Since,
    Slide,
    TimeSlide,
    WindowSpec,
)

TEN = TimeSlide(10)
CLOCK = TimeSlide(10, wall_clock=True)

EXTENTS: dict[Extent, set[str]] = {
    Range(60): {"is_told_by_times", "can_share_rows", "can_be_joined", "length"},
    Rows(5): {"counts_rows", "can_share_rows", "can_be_joined", "limit"},
    RowsOf("n"): {"counts_rows"},
    Since(1): {"is_told_by_times", "since"},
    Session(5): {"closes"},
    RateSized.tuned(100): {"counts_rows", "can_be_joined"},
}
SLIDES: dict[Slide, set[str]] = {
    TEN: {"by_time"},
    CountSlide(1): {"events"},
    EveryEvent(): {"events", "is_per_event"},
    AtClose(): set(),
}


def said(one: Extent | Slide) -> set[str]:
    """The questions that it answers with something."""
    names = {name for base in type(one).__mro__ for name in vars(base) if not name.startswith("_")}
    fields = set(type(one).__dataclass_fields__) | {"tuned", "MOST_SLOTS"}
    return {name for name in names - fields if getattr(one, name) not in (None, False)}


def test_the_tables_here_have_every_kind() -> None:
    assert {type(extent) for extent in EXTENTS} == set(get_args(Extent))
    assert {type(slide) for slide in SLIDES} == set(get_args(Slide))


@pytest.mark.parametrize("extent", EXTENTS, ids=lambda e: type(e).__name__)
def test_extents_answer(extent: Extent) -> None:
    assert said(extent) == EXTENTS[extent]


@pytest.mark.parametrize("slide", SLIDES, ids=lambda s: type(s).__name__)
def test_slides_answer(slide: Slide) -> None:
    assert said(slide) == SLIDES[slide]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (WindowSpec(Range(60), TEN), {"is_sliced_by_time", "can_drain", "can_share_rows", "time_slide"}),
        (
            WindowSpec(Range(10), TEN),
            {"is_sliced_by_time", "can_drain", "can_share_rows", "time_slide", "is_tumbling"},
        ),
        (WindowSpec(Range(60), CLOCK), {"is_sliced_by_time", "can_drain", "time_slide", "wall_clock_slide"}),
        (WindowSpec(Range(60), EveryEvent()), {"is_per_event", "can_share_rows", "lag"}),
        (WindowSpec(Range(1), EveryEvent()), {"is_now", "is_per_event", "can_share_rows", "lag"}),
        (WindowSpec(Range(60), CountSlide(2)), {"counts_events", "counts_before_where", "can_share_rows", "lag"}),
        (WindowSpec(Rows(5), CountSlide(1)), {"counts_events", "counts_before_where", "can_share_rows", "lag"}),
        (WindowSpec(Rows(5), TEN), {"counts_before_where", "can_share_rows", "time_slide"}),
        (WindowSpec(Rows(5), TEN, ("k",)), {"counts_before_where", "time_slide"}),
        (WindowSpec(RowsOf("n"), TEN, ("n",)), {"counts_before_where", "time_slide"}),
        (WindowSpec(Since(1), TEN), {"is_sliced_by_time", "time_slide"}),
        (WindowSpec(Session(5), AtClose()), {"can_drain", "lag"}),
    ],
)
def test_windows_answer(window: WindowSpec, expected: set[str]) -> None:
    names = {name for name, value in vars(WindowSpec).items() if isinstance(value, property)}
    assert {name for name in names if getattr(window, name)} == expected


def test_fingerprints_stay() -> None:
    """They name saved state: what a window answers is no part of it."""
    assert fingerprint(WindowSpec(Range(60), TEN)) == "a88eb9d1525a4c783d1470363a5dfca6"
    assert (
        fingerprint(WindowSpec(RateSized.tuned(100), EveryEvent(), ("k",), True)) == "1d4be6ff5b644848237938f0f424ffce"
    )
