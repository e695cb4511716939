"""Look-ups by equalities that can fail: the way to the rows is shorter, and what is rejected stays the same.

    FROM s, t WHERE t.id = s.id + 1              s.id + 1 may overflow: the pair is rejected then
    FROM s LEFT JOIN t ON s.a = t.a + 1 AND 10 DIV t.b > s.b

A pair of an event and a row is rejected where its condition fails, and AND goes from left to right up to the first
FALSE. So an equality may narrow the search only if no condition before it can fail: a pair whose keys can be computed
and differ has a FALSE there, and nothing of it was rejected. Where a key fails, or is NULL and a condition behind it
can fail, pairs are compared.

Conditions of WHERE and of inner joins that can fail are computed after all look-ups. What is left out by one look-up
must not be rejected by a later one: those behind it have no key and no condition that can fail.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from penstock.expressions.conjuncts import conjuncts
from penstock.expressions.evaluate import is_total
from penstock.expressions.tree import Expression
from penstock.plan.tables.matches import as_key, matched
from penstock.plan.tables.nodes import Lookup, Narrowed


def narrowed(lookups: Sequence[Lookup], known: Set[str], rest: Sequence[Expression]) -> tuple[Lookup, ...]:
    """The look-ups, with shorter ways where there are any; `rest` are the conditions behind all of them."""
    found: list[Lookup] = []
    before, remaining = set(known), list(rest)
    for place, lookup in enumerate(lookups):
        if lookup.is_keyed:
            found.append(lookup)
        elif lookup.left:
            found.append(_with(lookup, before, conjuncts(lookup.on))[0])
        elif all(map(_cannot_fail, lookups[place + 1 :])):
            lookup, remaining = _with(lookup, before, remaining)
            found.append(lookup)
        else:
            found.append(lookup)
            remaining = []
        before.add(lookup.alias)
    return tuple(found)


def _with(lookup: Lookup, known: Set[str], conditions: Sequence[Expression]) -> tuple[Lookup, list[Expression]]:
    """A look-up that is narrowed by the first of some conditions, and those that come behind these."""
    taken: dict[Expression, Expression] = dict(zip(lookup.by, lookup.keys, strict=True))
    at = 0
    for condition in conditions:
        match = matched(condition, lookup.alias, known)
        if match is not None and match.own not in taken:
            taken[match.own] = match.other
        elif not is_total(condition):
            break
        at += 1
    rest = list(conditions[at:])
    if len(taken) == len(lookup.by):
        return lookup, rest
    by = as_key(tuple(taken), lookup.key)
    left_out = [own for own in taken if own not in by]
    if not set(lookup.by) <= set(by) or any(not (is_total(own) and is_total(taken[own])) for own in left_out):
        by = tuple(taken)  # an equality that can fail is part of the search: it rejects pairs that the others leave out
    shorter = Narrowed(by, tuple(taken[own] for own in by), any(not is_total(c) for c in rest))
    return replace(lookup, narrowed=shorter), rest


def _cannot_fail(lookup: Lookup) -> bool:
    return all(map(is_total, lookup.keys)) and (lookup.on is None or is_total(lookup.on))
