"""The plan of a pattern: which events may take part, by which key, and when which condition is looked at.

An order of elements is found backwards from the event that completes it: its plain elements are joined one after the
other (`steps`), newest first, then its repeated elements are collected and its absent ones looked for. An order that
is open at its end is looked at when its time is over, from its first event on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.expressions.tree import Expression
from penstock.lang.query import Role
from penstock.plan.base import PlanNode
from penstock.types import Schema

if TYPE_CHECKING:
    from penstock.plan.nodes import Answer, Node, StateSpec


@dataclass(frozen=True)
class ElementPlan:
    """`filter` and `keys` are over the columns of the element's input: an event that fails the filter, or has a NULL
    key, never gets into the state. `keys` are empty where the element has none of the common keys. Its events are kept
    for `keep` microseconds."""

    name: str
    input: int
    role: Role
    one: bool
    filter: Expression | None
    keys: tuple[Expression, ...]
    keep: int


@dataclass(frozen=True)
class Step:
    """A plain element that joins, by its place among the plain ones, and the conditions that can be decided then."""

    place: int
    conditions: tuple[Expression, ...]


@dataclass(frozen=True)
class Between:
    """A repeated or absent element: after plain element `lower` (-1: the beginning) and before `upper` (their number:
    the end). `after` and `before` are repeated elements that an absent one lies next to, or -1."""

    element: int
    lower: int
    upper: int
    after: int
    before: int
    conditions: tuple[Expression, ...]


@dataclass(frozen=True)
class OrderPlan:
    """One order of elements. `plain` are its plain elements; `last` are conditions on a whole match. One that `waits`
    ends at its first event's time plus WITHIN, others with their last event."""

    plain: tuple[int, ...]
    steps: tuple[Step, ...]
    repeated: tuple[Between, ...]
    absent: tuple[Between, ...]
    last: tuple[Expression, ...]
    waits: bool


@dataclass(frozen=True)
class RepeatPlan:
    """The aggregates over a repeated element: aggregate `$numbers[i]` is `answers[i]`."""

    element: int
    numbers: tuple[int, ...]
    states: tuple[StateSpec, ...]
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class PatternNode(PlanNode):
    """Matches of a pattern, each with the time of the event that completed it or of its end. With `apart`
    an event of a key is in one match at most."""

    inputs: tuple[Node, ...]
    elements: tuple[ElementPlan, ...]
    orders: tuple[OrderPlan, ...]
    repeats: tuple[RepeatPlan, ...]
    within: int
    schema: Schema
    apart: bool = False
