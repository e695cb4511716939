"""What the sides of joins with one core keep and are looked up by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.operators.groups import GroupTable
from penstock.plan.joins.reads import kept_columns
from penstock.plan.joins.steps import Keys
from penstock.plan.nodes import JoinNode
from penstock.store.budget import Account


def kept_of(nodes: Sequence[JoinNode], place: int) -> list[str]:
    """The columns of a side that some join keeps."""
    wanted = {column for node in nodes for column in kept_columns(node, place)}
    schema = nodes[0].inputs[nodes[0].sides[place].input].schema
    return [column for column in schema.names if column in wanted]


def moments_of(nodes: Sequence[JoinNode], place: int) -> list[str]:
    """The columns of a side that some join's bands compare."""
    found = [band.column for node in nodes for band in node.bands if band.side == place]
    found += [band.other_column for node in nodes for band in node.bands if band.other == place]
    return list(dict.fromkeys(found))


def tables_of(node: JoinNode, account: Account) -> dict[tuple[int, Keys], GroupTable]:
    """A table of slots for each class of keys that are compared with each other, by side and key."""
    found: dict[tuple[int, Keys], GroupTable] = {}
    for equality in (*node.equalities, *(narrowing.equality for narrowing in node.narrowings)):
        left, right = (equality.left, equality.left_keys), (equality.right, equality.right_keys)
        table = found.get(left) or found.get(right)
        if table is None:
            table = GroupTable(tuple(key.type for key in equality.left_keys), account)
        other = found.get(right)
        if other is not None and other is not table:
            found = {name: table if known is other else known for name, known in found.items()}
            other.close()
        found[left] = found[right] = table
    return found


def narrowing_of(node: JoinNode, place: int) -> dict[Keys, bool]:
    """The keys of a side that narrow a search, and whether a NULL makes a row odd."""
    found: dict[Keys, bool] = {}
    for narrowing in node.narrowings:
        e = narrowing.equality
        for side, keys in ((e.left, e.left_keys), (e.right, e.right_keys)):
            if side == place:
                found[keys] = found.get(keys, False) or narrowing.with_nulls
    return found


def distinct(tables: Iterable[GroupTable]) -> list[GroupTable]:
    return list({id(table): table for table in tables}.values())
