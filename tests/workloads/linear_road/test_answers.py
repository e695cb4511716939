"""Files of answers, and the comparison of two sets of them as multisets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import InputError
from penstock_bench.workloads.linear_road.answers import (
    BALANCE,
    COLUMNS,
    NOTICE,
    Answers,
    compare,
    read_answers,
    write_answers,
)


def some(seed: int) -> Answers:
    random = np.random.default_rng(seed)
    return Answers({kind: random.integers(0, 3, (200, len(names))) for kind, names in COLUMNS.items()})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    write_answers(path, some(1))
    read = read_answers(path)
    assert sum(difference.wrong for difference in compare(some(1), read)) == 0
    assert len(read) == 1000
    assert read.late == 0


def test_missing_and_extra_are_counted_as_multisets() -> None:
    expected, given = some(1), some(2)
    for difference in compare(expected, given):
        rows = [Counter(map(tuple, answers.of(difference.kind).tolist())) for answers in (expected, given)]
        assert difference.missing == (rows[0] - rows[1]).total()
        assert difference.extra == (rows[1] - rows[0]).total()
        assert difference.correct == (rows[0] & rows[1]).total()
        for example in difference.missing_examples:
            assert tuple(example.values()) in rows[0] - rows[1]
    assert compare(Answers({}), given)[0].extra == 200


def test_times_of_answers(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    path.write_text("0,7,100,104.5,30,0\r\n2,100,106,100,1,-50\n5,100,100,0,1,0\n\n0,8,100,105,30,0")
    read = read_answers(path)
    assert read.of(NOTICE).tolist() == [[7, 100, 30, 0], [8, 100, 30, 0]]
    assert read.of(BALANCE).tolist() == [[100, 1, -50]]
    assert (read.late, read.longest_wait) == (1, 6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1,2,3,4,5\n0,x,1\n", "line 2"),
        ("0,1,,3,4,5\n", "line 1"),
        ("0,1,2,3,4,5,6,7\n", "line 1"),
        ("9,1,2,3\n", "the type 9"),
        ("0,1,2\n", "less than 6 columns"),
    ],
)
def test_unreadable_answers_are_told(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_answers(path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv"):
        read_answers(tmp_path / "none.csv")
