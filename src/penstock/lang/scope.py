"""What a name in an expression may mean: the columns of the input, and the select list's aliases where SQL allows.

Over a join the columns of all sides are named `alias.column`; a name alone is that of the one side that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from penstock.expressions.tree import Column
from penstock.lang.dialect import span_of
from penstock.lang.places import QueryText, did_you_mean
from penstock.lang.query import WINDOW_FIELDS
from penstock.types import Field, Schema

WINDOW_COLUMNS = frozenset(field.name for field in WINDOW_FIELDS)
"""The columns that every row of a windowed query carries by itself."""


@dataclass(frozen=True)
class Scope:
    """`aliases` (lower case) are tried after the columns, or before them if `aliases_first`. `sides` are the aliases of
    a join's sides, as written and in order; the names in `schema` then begin with them."""

    schema: Schema
    qualifiers: frozenset[str]
    windowed: bool
    aliases: Mapping[str, exp.Expr] = field(default_factory=dict)
    aliases_first: bool = False
    sides: tuple[str, ...] = ()
    tables: frozenset[str] = frozenset()
    """Which of the sides are tables, in lower case: `PREV` is for their columns."""

    def with_aliases(self, aliases: Mapping[str, exp.Expr], *, first: bool) -> Scope:
        return replace(self, aliases=aliases, aliases_first=first)

    def without_aliases(self) -> Scope:
        return replace(self, aliases={}, aliases_first=False)

    def named(self, name: str, qualifier: str | None = None) -> list[Field]:
        """The columns that such a name may mean: over a join one of each side that has it."""
        if not self.sides:
            found = self.schema.find(name)
            return [] if found is None else [found]
        asked = [side for side in self.sides if qualifier is None or side.lower() == qualifier.lower()]
        return [found for side in asked if (found := self.schema.find(f"{side}.{name}")) is not None]

    def shown_name(self, field: Field) -> str:
        """What a star calls a column: its plain name, and with its side's alias in front where another side has it."""
        if not self.sides:
            return field.name
        side, _, name = field.name.partition(".")
        return name if len(self.named(name)) == 1 else f"{side}_{name}"

    def resolve(self, node: exp.Column, source: QueryText) -> Column | exp.Expr:
        """The column that `node` names, or the aliased expression it stands for."""
        name = node.name
        if node.args.get("db") or not isinstance(node.this, exp.Identifier):
            raise source.refusal("this is no column", span_of(node), "write column or alias.column")
        qualifier = node.args.get("table")
        if qualifier is not None and qualifier.name.lower() not in self.qualifiers:
            other = f"the sides are {', '.join(self.sides)}" if self.sides else f"write {name} alone"
            hint = did_you_mean(qualifier.name, self.qualifiers) or other
            raise source.refusal(f"no stream '{qualifier.name}' in this FROM", span_of(qualifier), hint)
        alias = self.aliases.get(name.lower()) if qualifier is None else None
        if alias is not None and self.aliases_first:
            return alias
        found = self.named(name, None if qualifier is None else qualifier.name)
        if len(found) > 1:
            sides = [f"'{field.name}'" for field in found]
            raise source.refusal(
                f"'{name}' may be {', '.join(sides[:-1])} or {sides[-1]}",
                span_of(node.this),
                f"say which: {found[0].name}",
            )
        if found:
            return Column(found[0].name, found[0].type)
        if alias is not None:
            return alias
        if self.windowed and name.lower() in WINDOW_COLUMNS:
            raise source.refusal(
                f"{name.lower()} cannot be used here",
                span_of(node.this),
                f"every result row carries it; compute with it in an outer query: SELECT {name.lower()}, ... "
                "FROM (SELECT ... FROM s [window])",
            )
        names = self.schema.names
        if qualifier is not None and self.sides:
            own = f"{qualifier.name.lower()}."
            names = tuple(n[len(own) :] for n in names if n.lower().startswith(own))
        plain = [n.partition(".")[2] for n in names] if self.sides and qualifier is None else names
        hint = did_you_mean(name, plain) or f"the columns are {_shortened(names)}"
        raise source.refusal(f"unknown column '{name}'", span_of(node.this), hint)


def _shortened(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:12])
    return shown + ", ..." if len(names) > 12 else shown
