"""The texts of columns that a store keeps: one interner for each column of strings, None for other columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.aggregates.state import Argument
from penstock.arrays import Slots
from penstock.operators.interner import Interner
from penstock.store.budget import Account
from penstock.types import SqlType

Interners = Sequence[Interner | None]


def interners_for(types: Iterable[SqlType], account: Account) -> list[Interner | None]:
    return [Interner(account) if kind is SqlType.STRING else None for kind in types]


def use_texts(interners: Interners, columns: Sequence[Argument]) -> None:
    """Rows enter a store: their texts stay. Texts that no row uses are forgotten."""
    for column, interner in zip(columns, interners, strict=True):
        if interner is not None:
            interner.use(_codes(column))
            interner.sweep()


def release_texts(interners: Interners, columns: Sequence[Argument]) -> None:
    """Rows leave a store for good: texts that only they had are forgotten."""
    for column, interner in zip(columns, interners, strict=True):
        if interner is not None:
            interner.release(_codes(column))


def saved_texts(interners: Interners) -> list[dict[str, Any] | None]:
    return [None if interner is None else interner.snapshot() for interner in interners]


def restore_texts(interners: Interners, saved: Sequence[Any]) -> None:
    for interner, texts in zip(interners, saved, strict=True):
        if interner is not None:
            interner.restore(texts)


def _codes(column: Argument) -> Slots:
    """The codes of the rows that have a value."""
    codes: Slots = column.values if column.valid is None else column.values[column.valid]
    return codes
