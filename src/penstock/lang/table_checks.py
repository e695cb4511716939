"""What a table in FROM may not be: refusals with their places."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.lang.places import QueryText
from penstock.lang.query import JoinSide, TableRef
from penstock.lang.syntax import FromItem


def check_tables(source: QueryText, sides: Sequence[JoinSide], items: Sequence[FromItem]) -> None:
    """Rows of a table have no time of their own, so they are shown only with a row of a stream."""
    seen_stream = False
    for side, item in zip(sides, items, strict=True):
        is_table = isinstance(side.source, TableRef)
        if is_table and side.kind.keeps_right:
            raise source.refusal(
                f"{side.kind.value} JOIN would show rows of the table '{side.alias}' that no event asks for",
                item.span,
                "write JOIN or LEFT JOIN",
            )
        if not is_table and side.kind.keeps_left and not seen_stream:
            raise source.refusal(
                f"{side.kind.value} JOIN would show rows of a table that no event asks for",
                item.span,
                "put the stream first: FROM s LEFT JOIN t ON s.id = t.id",
            )
        seen_stream = seen_stream or not is_table
