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
    "lt": ("<", 4),
    "le": ("<=", 4),
    "gt": (">", 4),
    "ge": (">=", 4),
    "in": ("IN", 4),
    "like": ("LIKE", 4),
    "is_null": ("IS NULL", 4),
    "is_not_null": ("IS NOT NULL", 4),
    "bitor": ("|", 5),
    "bitxor": ("^", 6),
    "bitand": ("&", 7),
    "shiftleft": ("<<", 8),
    "shiftright": (">>", 8),
    "add": ("+", 9),
    "subtract": ("-", 9),
    "multiply": ("*", 10),
    "divide": ("/", 10),
    "div": ("DIV", 10),
    "modulo": ("%", 10),
    "negate": ("-", 11),
}
"""The symbol of each operator and how tightly it binds."""


def symbol(function: str) -> str:
    """The function as a user writes it.

    >>> symbol("add"), symbol("upper")
    ("'+'", 'upper')
    """
    return f"'{SYMBOLS[function][0]}'" if function in SYMBOLS else function
