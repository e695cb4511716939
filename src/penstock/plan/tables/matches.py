"""Which conditions say what rows of a table are, by what is known before the table is looked up."""

from __future__ import annotations

from collections.abc import Set

from penstock.expressions.conjuncts import Equality, equality
from penstock.expressions.tree import Column, Expression, columns, transform


def matched(condition: Expression, alias: str, known: Set[str]) -> Equality | None:
    """The condition as an equality between an expression over the table's columns, by their own names, and one over
    the sides that are known; None if it is none."""
    prefix = f"{alias}."
    found = equality(condition, lambda name: name.startswith(prefix), lambda name: _side_of(name) in known)
    if found is None:
        return None

    def own(node: Expression) -> Expression:
        return Column(node.name.removeprefix(prefix), node.type) if isinstance(node, Column) else node

    return Equality(transform(found.own, own), found.other)


def as_key(found: tuple[Expression, ...], key: tuple[str, ...]) -> tuple[Expression, ...]:
    """The columns of the primary key, if all of them are among what was found; else all that was found."""
    named = {own.name: own for own in found if isinstance(own, Column)}
    return tuple(named[name] for name in key) if all(name in named for name in key) else found


def asks_only(condition: Expression, sides: Set[str]) -> bool:
    """Whether a condition reads columns of these sides alone."""
    return all(_side_of(name) in sides for name in columns(condition))


def _side_of(column: str) -> str:
    return column.removeprefix("PREV(").partition(".")[0]
