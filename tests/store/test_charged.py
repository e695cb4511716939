"""Arrays that are on their account before they grow."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.errors import BudgetError
from penstock.store.budget import Budget
from penstock.store.charged import UNLIMITED, ChargedArray, power_of_two


class _Lender:
    def __init__(self, budget: Budget, nbytes: int) -> None:
        self._account = budget.account("lent")
        self._account.resize(nbytes)

    @property
    def lendable(self) -> int:
        return self._account.nbytes

    def give_back(self, nbytes: int) -> None:
        self._account.resize(max(0, self._account.nbytes - nbytes))


def test_the_account_holds_what_the_array_takes() -> None:
    budget = Budget(1 << 20)
    array = ChargedArray(budget.account("rows"), np.int32, (3,), fill=-1)
    array.fit(1)[0] = [1, 2, 3]
    for length in (2, 17, 17, 3000):
        array.fit(length)
        assert budget.used == array.nbytes == array.array.nbytes
        assert array.array[0].tolist() == [1, 2, 3]
        assert (array.array[1:] == -1).all()
    array.resize(1)
    assert (budget.used, array.array.tolist()) == (12, [[1, 2, 3]])
    array.clear()
    assert (budget.used, len(array)) == (0, 0)


def test_a_refusal_changes_nothing() -> None:
    budget = Budget(1000)
    array = ChargedArray(budget.account("rows"), np.int64, length=16)
    before = array.array
    with pytest.raises(BudgetError, match="rows needs"):
        array.fit(1000)
    with pytest.raises(BudgetError):
        array.set(np.zeros(200, np.int64))
    assert array.array is before
    assert budget.used == 128


def test_what_is_lent_is_called_in() -> None:
    budget = Budget(1000)
    budget.lender = _Lender(budget, 900)
    array = ChargedArray(budget.account("rows"), np.int64)
    array.fit(100)
    assert budget.used <= 1000
    assert array.nbytes >= 800


def test_the_length_does_not_depend_on_the_steps() -> None:
    once, often = (ChargedArray(UNLIMITED, np.int64) for _ in range(2))
    for length in range(0, 3001, 7):
        often.fit(length)
    once.fit(2996)
    assert len(once) == len(often) == power_of_two(2996) == 4096


def test_a_saved_array_is_charged() -> None:
    budget = Budget(1000)
    array = ChargedArray(budget.account("rows"), np.int64, (2,), length=16)
    saved = np.arange(8, dtype=np.int64).reshape(4, 2)
    saved.flags.writeable = False
    array.set(saved)
    assert budget.used == 64
    array.array[0, 0] = 5
    assert saved[0, 0] == 0
