"""What an aggregation reads of each row: its group, and the distinct arguments and FILTERs of its states.

Both have names that depend on what they compute alone, so that queries that share a window find the same column under
the same name, and so does a process that goes on from saved state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from penstock.expressions.evaluate import is_total
from penstock.expressions.tree import Expression
from penstock.lang.fingerprint import fingerprint
from penstock.plan.nodes import AggregateNode, StateSpec
from penstock.types import SqlType

TEXT = "text"
"""How the names of columns begin that hold codes of interned strings."""


@dataclass(frozen=True)
class Read:
    """An argument or a FILTER of some state."""

    is_filter: bool
    expression: Expression

    @property
    def is_text(self) -> bool:
        return not self.is_filter and self.expression.type is SqlType.STRING

    @cached_property
    def name(self) -> str:
        kind = "filter" if self.is_filter else TEXT if self.is_text else "argument"
        return f"{kind} {fingerprint(self.expression)}"


@dataclass(frozen=True)
class Fallible:
    """A read that can fail, and the FILTERs it stands behind: where none of them is true it cannot. No filters: it can
    fail on every row."""

    read: Read
    behind: tuple[Read, ...]


@dataclass(frozen=True)
class GroupingKey:
    """What decides to which group a row belongs, if to any: a row on which something fails belongs to none."""

    where: Expression | None
    keys: tuple[Expression, ...]
    fallible: tuple[Fallible, ...]

    @cached_property
    def name(self) -> str:
        return f"slot {fingerprint(self)}"

    @property
    def is_one_group(self) -> bool:
        """Whether every row that passes WHERE is in the one group there is."""
        return not self.keys and not self.fallible


def reads_of(states: tuple[StateSpec, ...]) -> tuple[Read, ...]:
    """The distinct reads, in the order in which the states name them."""
    found: dict[str, Read] = {}
    for state in states:
        for read in _reads(state):
            found.setdefault(read.name, read)
    return tuple(found.values())


def grouping_of(node: AggregateNode) -> GroupingKey:
    return GroupingKey(node.where, node.group_by, fallible_reads(node.states))


def holds_all_rows(key: GroupingKey, nodes: Sequence[AggregateNode]) -> bool:
    """Whether every row that is stored for these windows is in the grouping's one group."""
    if not key.is_one_group:
        return False
    mine = fingerprint(key.where)
    return key.where is None or all(node.filter_first and fingerprint(node.where) == mine for node in nodes)


def fallible_reads(states: tuple[StateSpec, ...]) -> tuple[Fallible, ...]:
    behind: dict[str, list[Read]] = {}
    always: set[str] = set()
    for state in states:
        for read in _reads(state):
            filters = behind.setdefault(read.name, [])
            if read.is_filter or state.filter is None:
                always.add(read.name)
            else:
                filters.append(Read(True, state.filter))
    return tuple(
        Fallible(read, () if read.name in always else tuple(behind[read.name]))
        for read in reads_of(states)
        if not is_total(read.expression)
    )


def _reads(state: StateSpec) -> list[Read]:
    filters = [] if state.filter is None else [Read(True, state.filter)]
    return filters + [Read(False, arg) for arg in state.args]
