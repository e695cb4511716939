"""How the functions that are operators are written: shared by the binder, its messages and the renderer."""

from __future__ import annotations

from sqlglot import exp

BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "add",
    exp.Sub: "subtract",
    exp.Mul: "multiply",
    exp.Div: "divide",
    exp.IntDiv: "div",
    exp.Mod: "modulo",
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
    exp.NullSafeEQ: "eq_null_safe",
    exp.And: "and",
    exp.Or: "or",
    exp.DPipe: "concat",
    exp.BitwiseAnd: "bitand",
    exp.BitwiseOr: "bitor",
    exp.BitwiseXor: "bitxor",
    exp.BitwiseLeftShift: "shiftleft",
    exp.BitwiseRightShift: "shiftright",
}
"""The function of each binary operator of the grammar."""

SYMBOLS: dict[str, tuple[str, int]] = {
    "or": ("OR", 1),
    "and": ("AND", 2),
    "not": ("NOT", 3),
    "eq": ("=", 4),
    "ne": ("<>", 4),
    "eq_null_safe": ("<=>", 4),
    "lt": ("<", 5),
    "le": ("<=", 5),
    "gt": (">", 5),
    "ge": (">=", 5),
    "in": ("IN", 6),
    "like": ("LIKE", 6),
    "is_null": ("IS NULL", 4),
    "is_not_null": ("IS NOT NULL", 4),
    "bitand": ("&", 7),
    "bitor": ("|", 7),
    "bitxor": ("^", 7),
    "add": ("+", 8),
    "subtract": ("-", 8),
    "multiply": ("*", 9),
    "divide": ("/", 9),
    "div": ("DIV", 9),
    "modulo": ("%", 9),
    "negate": ("-", 10),
}
"""The symbol of each operator and how tightly it binds."""


def symbol(function: str) -> str:
    """The function as a user writes it.

    >>> symbol("add"), symbol("upper")
    ("'+'", 'upper')
    """
    return f"'{SYMBOLS[function][0]}'" if function in SYMBOLS else function
