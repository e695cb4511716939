"""The memory budget of an app: how many bytes each account holds, and a refusal before the machine runs out.

Invariants:
1. `used` is the sum of all accounts and never exceeds `total`.
2. A refused `resize` changes nothing.
3. Memory that the lender has taken (see `buffer_manager`) counts as free for all other accounts: it is called back
   before a request is refused. Then holders of dispensable memory (`on_need`) give it up, one after the other.
4. `spare` is the sum of the accounts whose holders give up everything on need.

Every state, store and buffer of an app holds an account. What grows charges it before it grows (`charged`).

>>> budget = Budget(parse_size("1MB"))
>>> groups = budget.account("groups of q1")
>>> groups.resize(600_000)
>>> budget.free
400000
>>> budget.account("reorder").resize(500_000)
Traceback (most recent call last):
    ...
penstock.errors.BudgetError: reorder needs 500,000 bytes, but only 400,000 of the 1,000,000 in the budget are free
  in use: groups of q1 600,000
  hint: give a memory budget of at least 1,100,000 bytes: a lower bound, since more may be asked for later

Why: docs/decisions/pools-lend.md
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakMethod

from penstock.errors import BudgetError

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
}
GiveUp = Callable[[], bool]
"""Gives memory back, and answers whether there was some."""

_NO_LIMIT = 1 << 62
_SIZE = re.compile(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]*)\s*", re.ASCII)


def parse_size(text: str | int) -> int:
    """Bytes in a size as people write it; KB is 1,000 bytes and KiB is 1,024.

    >>> parse_size("64MB"), parse_size("1.5 KiB"), parse_size(4096)
    (64000000, 1536, 4096)
    """
    if isinstance(text, int):
        size = text
    else:
        match = _SIZE.fullmatch(text)
        unit = _UNITS.get(match[2].upper()) if match else None
        if match is None or unit is None:
            raise BudgetError(f"{text!r} is not a size; write a number of bytes or, for example, 64MB or 512KiB")
        size = int(match[1]) * unit if "." not in match[1] else round(float(match[1]) * unit)
    if size <= 0:
        raise BudgetError(f"a size must be greater than zero, not {text!r}; write for example 64MB")
    return size


class Lender(Protocol):
    """Holds memory that it can do without."""

    @property
    def lendable(self) -> int:
        """Bytes that it could give back."""

    def give_back(self, nbytes: int) -> None:
        """Gives back until so many bytes of the budget are unused, as far as it can."""


class Account:
    """What one holder has taken from the budget."""

    __slots__ = ("_budget", "_givers", "_is_spare", "name", "nbytes")

    def __init__(self, budget: Budget, name: str, *, is_spare: bool = False) -> None:
        self._budget = budget
        self._is_spare = is_spare
        self.name = name
        self.nbytes = 0
        self._givers: list[WeakMethod[GiveUp]] = []

    @property
    def total(self) -> int:
        """Bytes of the whole budget."""
        return self._budget.total

    @property
    def free(self) -> int:
        """Bytes that the budget could still grant."""
        return self._budget.free

    @property
    def unused(self) -> int:
        """Bytes that the budget could grant without asking anything to give memory back."""
        return self._budget.unused

    def resize(self, nbytes: int) -> None:
        """From now on this account holds `nbytes`; `BudgetError` and no change if they are not there."""
        while not self.try_resize(nbytes):
            self._make_room(nbytes)

    def try_resize(self, nbytes: int) -> bool:
        """The same without a lender's help; answers whether it was granted."""
        budget = self._budget
        used = budget.used - self.nbytes + nbytes
        if used > budget.total and nbytes > self.nbytes:
            return False
        if self._is_spare:
            budget.spare += nbytes - self.nbytes
        self.nbytes = nbytes
        budget.used = used
        if used > budget.peak:
            budget.peak = used
        return True

    def charge(self, nbytes: int) -> None:
        """So many bytes more, for something that is about to be kept; `BudgetError` and no change without them."""
        while not self.try_resize(self.nbytes + nbytes):
            self._make_room(self.nbytes + nbytes)  # what is given up may be on this account, too

    def _make_room(self, nbytes: int) -> None:
        """Has others give memory back, as long as they can; then it is refused."""
        self._budget.call_in(nbytes - self.nbytes)
        if self._budget.used - self.nbytes + nbytes > self._budget.total and not self._budget.give_up():
            raise BudgetError(self._budget.refusal(self, nbytes))

    def release(self, nbytes: int) -> None:
        """So many bytes less: what they were for is gone."""
        self.resize(self.nbytes - nbytes)

    def on_need(self, give_up: GiveUp) -> None:
        """Has a method called before a refusal, as `Budget.on_need` does, for as long as its object lives and the
        account is open. So what is given a new object now and then keeps none of the old ones."""
        self._givers = [giver for giver in self._givers if giver() is not None]
        self._givers.append(WeakMethod(give_up))

    def give_up(self) -> bool:
        """Whether a holder on this account gave memory back."""
        return any(give_up() for giver in self._givers if (give_up := giver()) is not None)

    @contextmanager
    def borrowed(self, nbytes: int) -> Iterator[None]:
        """So many bytes more for the work of a block of code; `BudgetError` without them."""
        self.charge(nbytes)
        try:
            yield
        finally:
            self.release(nbytes)

    def close(self) -> None:
        """Gives everything back and leaves the budget's list. What still holds the account counts for nothing."""
        self.resize(0)
        self._budget.forget(self)
        self._budget = Budget(_NO_LIMIT)


class Budget:
    """`total` bytes for all accounts together; `peak` is the most that was ever in use. It may be one of several equal
    `parts` of what the user gave, for as many `holders`."""

    def __init__(self, total_bytes: int, parts: int = 1, holders: str = "buckets") -> None:
        self.total = total_bytes
        self._parts = parts
        self._holders = holders
        self.used = 0
        self.peak = 0
        self.lender: Lender | None = None
        self.spare = 0
        self._givers: list[GiveUp] = []
        self._accounts: list[Account] = []

    def account(self, name: str, *, is_spare: bool = False) -> Account:
        """`is_spare` says that its holder gives up what is on it on need."""
        account = Account(self, name, is_spare=is_spare)
        self._accounts.append(account)
        return account

    def forget(self, account: Account) -> None:
        if account in self._accounts:
            self._accounts.remove(account)

    def on_need(self, give_up: GiveUp) -> None:
        """Has something called before a refusal that answers whether it has given memory back."""
        self._givers.append(give_up)

    def give_up(self) -> bool:
        """Whether some dispensable memory was given back."""
        own = [account.give_up for account in self._accounts]
        return any(give_up() for give_up in (*self._givers, *own))

    @property
    def unused(self) -> int:
        return self.total - self.used

    @property
    def free(self) -> int:
        """What an account could still be granted: unused memory, and memory that the lender can give back."""
        return self.unused + (0 if self.lender is None else self.lender.lendable)

    @property
    def within_reach(self) -> int:
        """What an account could be granted once all dispensable memory is given up."""
        return self.free + self.spare

    def call_in(self, nbytes: int) -> None:
        """Has the lender make so many bytes unused, if it can; otherwise nothing changes."""
        if self.lender is not None and self.free >= nbytes:
            self.lender.give_back(nbytes)

    def describe(self) -> dict[str, int]:
        """Bytes held per account name, the largest first."""
        held: dict[str, int] = {}
        for account in self._accounts:
            held[account.name] = held.get(account.name, 0) + account.nbytes
        return dict(sorted(held.items(), key=lambda item: -item[1]))

    def refusal(self, account: Account, nbytes: int) -> str:
        """The message: the account and its request, what the other accounts hold, and the least budget that would have
        granted the request. That is a lower bound, since later requests are not known here."""
        more = nbytes - account.nbytes
        least = self.total - self.free + more
        split = f", {least:,} for each of {self._parts} {self._holders}" if self._parts > 1 else ""
        others = ", ".join(f"{name} {size:,}" for name, size in self.describe().items() if size) or "nothing"
        return (
            f"{account.name} needs {more:,} {'more ' if account.nbytes else ''}bytes, "
            f"but only {self.free:,} of the {self.total:,} in the budget are free\n"
            f"  in use: {others}\n"
            f"  hint: give a memory budget of at least {least * self._parts:,} bytes{split}: "
            "a lower bound, since more may be asked for later"
        )
