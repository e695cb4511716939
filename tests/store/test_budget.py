from __future__ import annotations

import weakref

import pytest

from penstock.errors import BudgetError
from penstock.operators.text_table import TextTable
from penstock.store.budget import Account, Budget, parse_size
from penstock.store.charged import UNLIMITED


def test_accounts_add_up() -> None:
    budget = Budget(1000)
    first, second = budget.account("first"), budget.account("second")
    first.resize(600)
    second.resize(300)
    first.resize(100)
    assert (budget.used, budget.free, budget.peak) == (400, 600, 900)
    assert budget.describe() == {"second": 300, "first": 100}
    second.close()
    assert (budget.used, budget.describe()) == (100, {"first": 100})


def test_a_refusal_says_who_asked_for_what_and_changes_nothing() -> None:
    budget = Budget(1000)
    budget.account("window").resize(700)
    groups = budget.account("groups")
    groups.resize(200)
    with pytest.raises(BudgetError) as refusal:
        groups.resize(450)
    text = str(refusal.value)
    assert "groups needs 250 more bytes" in text
    assert "only 100 of the 1,000" in text
    assert "window 700, groups 200" in text
    assert "a memory budget of at least 1,150 bytes: a lower bound, since more may be asked for later" in text
    assert (budget.used, groups.nbytes, budget.peak) == (900, 200, 900)
    exact = Budget(1150)
    exact.account("window").resize(700)
    exact.account("groups").resize(450)


def test_what_could_be_called_in_is_not_part_of_the_least_budget() -> None:
    class Pools:
        def __init__(self, budget: Budget) -> None:
            self.account = budget.account("pools")
            self.account.resize(500)

        @property
        def lendable(self) -> int:
            return self.account.nbytes - 100

        def give_back(self, nbytes: int) -> None:
            self.account.resize(100)

    for total in (1000, 1300):
        budget = Budget(total)
        budget.lender = Pools(budget)
        groups = budget.account("groups")
        if total == 1300:
            groups.resize(1200)
            return
        with pytest.raises(BudgetError, match="a memory budget of at least 1,300 bytes"):
            groups.resize(1200)


def test_giving_back_is_never_refused() -> None:
    budget = Budget(1000)
    account = budget.account("window")
    account.resize(1000)
    budget.total = 500
    account.resize(900)
    assert budget.used == 900


@pytest.mark.parametrize(
    ("text", "size"),
    [("64MB", 64_000_000), ("64 MiB", 64 << 20), ("1kb", 1000), ("2GB", 2 * 10**9), ("1.5KiB", 1536), ("7", 7), (9, 9)],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "64 M B", "-1MB", "0", 0, -5, "1e3", "64MBit", "nan", "²MB"])
def test_what_is_no_size_is_refused(text: str | int) -> None:
    with pytest.raises(BudgetError, match="64MB"):
        parse_size(text)


class _Holder:
    """Holds so many bytes of an account that it can do without."""

    def __init__(self, account: Account, nbytes: int) -> None:
        self._account = account
        account.charge(nbytes)
        self.held = nbytes
        account.on_need(self.let_go)

    def let_go(self) -> bool:
        held, self.held = self.held, 0
        self._account.release(held)
        return held > 0


def test_all_holders_of_an_account_give_memory_up_before_a_refusal() -> None:
    budget = Budget(1000)
    account = budget.account("values")
    first, second = _Holder(account, 300), _Holder(account, 300)
    budget.account("groups").resize(900)
    assert (first.held, second.held, account.nbytes) == (0, 0, 0)


@pytest.mark.parametrize("limited", [True, False])
def test_an_account_does_not_keep_the_holders_that_are_gone(limited: bool) -> None:
    account = Budget(1000).account("values") if limited else UNLIMITED
    gone = weakref.ref(_Holder(account, 10))
    assert gone() is None
    _Holder(account, 10)


def test_texts_on_an_account_that_lives_on_are_freed() -> None:
    texts = weakref.ref(TextTable(UNLIMITED))
    assert texts() is None
