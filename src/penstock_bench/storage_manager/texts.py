"""The strings of a store's items: blocks hold fixed widths, so a string travels through them as a small code.

Invariants:
1. A code stands for one string as long as some stored item uses it; then it is given to another.
2. All strings are on the account, with what the dictionaries take.

Used by `items`, one per store that has strings.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.instruments import Account

_OVERHEAD = 150
"""Bytes of a string's header, its entries in the two dictionaries and the lists."""


class Texts:
    """
    >>> from penstock.instruments import Budget
    >>> texts = Texts(Budget(10_000).account("strings"))
    >>> texts.encode(["a", "b", "a"])
    [0, 1, 0]
    >>> texts.forget([0, 1])  # one of the two uses of "a", and the one of "b"
    >>> texts.decode(0), texts.encode(["c"])
    ('a', [1])
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self._codes: dict[str, int] = {}
        self._strings: list[str] = []
        self._uses: list[int] = []
        self._free: list[int] = []
        self._nbytes = 0

    def encode(self, strings: list[str]) -> list[int]:
        """The codes of strings that some item will use from now on. If there is no room for them, nothing changes."""
        new = {string for string in strings if string not in self._codes}
        nbytes = self._nbytes + sum(map(_size, new))
        self._account.resize(nbytes)
        self._nbytes = nbytes
        codes = [self._codes[string] if string in self._codes else self._add(string) for string in strings]
        for code in codes:
            self._uses[code] += 1
        return codes

    def decode(self, code: int) -> str:
        return self._strings[code]

    def forget(self, codes: Iterable[int]) -> None:
        """Items that used these codes, once for each, are gone."""
        for code in codes:
            self._uses[code] -= 1
            if self._uses[code] == 0:
                string = self._strings[code]
                del self._codes[string]
                self._strings[code] = ""
                self._free.append(code)
                self._nbytes -= _size(string)
        self._account.resize(self._nbytes)

    def _add(self, string: str) -> int:
        if self._free:
            code = self._free.pop()
            self._strings[code] = string
        else:
            code = len(self._strings)
            self._strings.append(string)
            self._uses.append(0)
        self._codes[string] = code
        return code


def _size(string: str) -> int:
    return _OVERHEAD + 4 * len(string)
