"""What is known of a store before it is made: the tunable parameters of the storage manager, with their defaults.

A program that uses the storage manager sets the properties it knows. The defaults of the others assume nothing, so they
make nothing faster.

>>> Properties().role, Properties().update
(<Role.PASSIVE: 'passive'>, <UpdatePattern.RANDOM: 'RANDOM'>)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock import instruments
from penstock.errors import StorageError
from penstock.types import Schema, SqlType


class Role(Enum):
    """How items get into the store."""

    PASSIVE = "passive"
    """The engine hands them over: `buffer_item`."""
    ACTIVE = "active"
    """The store takes them from the source it was given, when a reader wants more than there is."""


class Access(Enum):
    """How items get from the store to its readers."""

    PULL = "pull"
    PUSH = "push"


class Comparison(Enum):
    """The comparisons of indices and of synchronization conditions: `item's value <comparison> value asked for`."""

    EQ = "="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    @property
    def holds(self) -> Callable[[Any, Any], bool]:
        return _HOLDS[self]


_HOLDS: dict[Comparison, Callable[[Any, Any], bool]] = {
    Comparison.EQ: operator.eq,
    Comparison.LT: operator.lt,
    Comparison.LE: operator.le,
    Comparison.GT: operator.gt,
    Comparison.GE: operator.ge,
}


@dataclass(frozen=True)
class Synchronization:
    """A read that names a value waits until the store has an item for which `attribute comparison value` holds."""

    attribute: str
    comparison: Comparison = Comparison.EQ


@dataclass(frozen=True)
class Transient:
    """In memory and, beyond the budget, in blocks on the manager's device; gone when the store is."""


@dataclass(frozen=True)
class Embedded:
    """A table in a file of the embedded database (SQLite)."""

    path: Path
    table: str


@dataclass(frozen=True)
class Postgres:
    """A table of a PostgreSQL server; `conninfo` is a connection string or URI of libpq, and may hold a password."""

    conninfo: str = field(repr=False)
    table: str


Persistence = Transient | Embedded | Postgres


@dataclass(frozen=True)
class IndexSchema:
    """A value-based index: items are found by these attributes, each compared as said.

    >>> IndexSchema.equal("minute", "segment", "direction").attributes
    ('minute', 'segment', 'direction')
    """

    terms: tuple[tuple[str, Comparison], ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Every look-up in an index begins with it."""
        return hash(self.terms)

    @classmethod
    def equal(cls, *attributes: str) -> IndexSchema:
        return cls(tuple((attribute, Comparison.EQ) for attribute in attributes))

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple(attribute for attribute, _ in self.terms)

    @property
    def is_key(self) -> bool:
        """Whether all attributes are compared for equality."""
        return all(comparison is Comparison.EQ for _, comparison in self.terms)


@dataclass(frozen=True)
class Properties(instruments.Properties):
    """Those of the engine's stores, which follow from a plan, and those that only an application knows."""

    role: Role = Role.PASSIVE
    access: Access = Access.PULL
    synchronization: Synchronization | None = None
    schema: Schema | None = None
    persistence: Persistence = Transient()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schema is None:
            return
        if not self.schema.fields:
            raise StorageError("a schema needs at least one attribute; leave `schema` out if items differ")
        lowered = [name.lower() for name in self.schema.names]
        twice = next((name for name in lowered if lowered.count(name) > 1), None)
        if twice is not None:
            raise StorageError(f"the schema has two attributes {twice!r}; names are told apart without regard to case")
        if any(attribute.type is SqlType.NULL for attribute in self.schema):
            raise StorageError("an attribute of type NULL can hold nothing; give it the type it would have")
        if self.synchronization is not None:
            place_of(self.schema, self.synchronization.attribute)


def place_of(schema: Schema, attribute: str) -> int:
    """Where an attribute stands in an item."""
    lowered = attribute.lower()
    for place, name in enumerate(schema.names):
        if name.lower() == lowered:
            return place
    raise StorageError(f"there is no attribute {attribute!r}; the schema has {', '.join(schema.names)}")
