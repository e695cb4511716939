"""What a name in an expression may mean: the columns of the input, and the select list's aliases where SQL allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from penstock.expressions.tree import Column
from penstock.lang.dialect import span_of
from penstock.lang.places import QueryText, did_you_mean
from penstock.lang.query import WINDOW_FIELDS
from penstock.types import Schema

WINDOW_COLUMNS = frozenset(field.name for field in WINDOW_FIELDS)
"""The columns that every row of a windowed query carries by itself."""


@dataclass(frozen=True)
class Scope:
    """`aliases` (lower case) are tried after the columns, or before them if `aliases_first`."""

    schema: Schema
    qualifiers: frozenset[str]
    windowed: bool
    aliases: Mapping[str, exp.Expr] = field(default_factory=dict)
    aliases_first: bool = False

    def with_aliases(self, aliases: Mapping[str, exp.Expr], *, first: bool) -> Scope:
        return Scope(self.schema, self.qualifiers, self.windowed, aliases, first)

    def resolve(self, node: exp.Column, source: QueryText) -> Column | exp.Expr:
        """The column that `node` names, or the aliased expression it stands for."""
        name = node.name
        if node.args.get("db") or not isinstance(node.this, exp.Identifier):
            raise source.refusal("this is no column", span_of(node), "write column or alias.column")
        qualifier = node.args.get("table")
        if qualifier is not None and qualifier.name.lower() not in self.qualifiers:
            hint = did_you_mean(qualifier.name, self.qualifiers) or f"write {name} alone"
            raise source.refusal(f"no stream '{qualifier.name}' in this FROM", span_of(qualifier), hint)
        alias = self.aliases.get(name.lower()) if qualifier is None else None
        if alias is not None and self.aliases_first:
            return alias
        found = self.schema.find(name)
        if found is not None:
            return Column(found.name, found.type)
        if alias is not None:
            return alias
        if self.windowed and name.lower() in WINDOW_COLUMNS:
            raise source.refusal(
                f"{name.lower()} cannot be used here",
                span_of(node.this),
                f"every result row carries it; compute with it in an outer query: SELECT {name.lower()}, ... "
                "FROM (SELECT ... FROM s [window])",
            )
        hint = did_you_mean(name, self.schema.names) or f"the columns are {_shortened(self.schema.names)}"
        raise source.refusal(f"unknown column '{name}'", span_of(node.this), hint)


def _shortened(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:12])
    return shown + ", ..." if len(names) > 12 else shown
