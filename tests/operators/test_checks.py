"""Every operator class passes the check suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import isabstract

import numpy as np
import pytest

from penstock.operators.operator import Operator
from penstock.operators.wall_clock import WallClock

from .checks import ALL_CHECKS, at_once, play
from .subject import Subject
from .subjects import SUBJECTS

# Of each subject a third of the checks are quick, of each check a third of the subjects.
CASES = [
    pytest.param(
        subject,
        check,
        id=f"{subject.name}-{check.__name__.removeprefix('check_')}",
        marks=[pytest.mark.slow] if (number + place) % 3 else [],
    )
    for number, subject in enumerate(SUBJECTS)
    for place, check in enumerate(ALL_CHECKS)
]


@pytest.mark.parametrize(("subject", "check"), CASES)
def test_operators(subject: Subject, check: Callable[[Subject, np.random.Generator], None]) -> None:
    check(subject, np.random.default_rng(1))


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_operators_on_other_events(subject: Subject) -> None:
    for seed in range(2, 4):
        for check in ALL_CHECKS:
            check(subject, np.random.default_rng(seed))


def classes(of: type) -> Iterator[type]:
    for below in of.__subclasses__():
        yield below
        yield from classes(below)


def test_every_operator_class_has_a_subject() -> None:
    made = {cls for subject in SUBJECTS for cls in subject.operator_classes()}
    # A window that follows the local clock answers by the time of its ticks: tests/engine/test_wall_clock.py.
    own = {c for c in classes(Operator) if c.__module__.startswith("penstock.") and not isabstract(c)}
    assert own - made == {WallClock}


def test_draws_give_rows() -> None:
    """A subject whose events give nothing would pass every check."""
    for subject in SUBJECTS:
        assert play(subject, at_once(subject.draw(np.random.default_rng(1)))).rows, subject.name
