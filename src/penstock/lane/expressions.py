"""Expressions as instructions over registers: doubles, their arithmetic, and integers that become doubles.

`Registers` numbers the columns of a call. An expression that has no instructions gives None: a query with such an
expression takes single events on the ordinary path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.expressions.tree import Call, Cast, Column, Expression, Literal
from penstock.lane import records
from penstock.lane.machine import Operation
from penstock.types import SqlType

_FUNCTIONS = {
    "add": records.ADD,
    "subtract": records.SUBTRACT,
    "multiply": records.MULTIPLY,
    "divide": records.DIVIDE,
    "negate": records.NEGATE,
}


@dataclass(frozen=True)
class Instruction:
    """An operation, the registers that its words name, and its other words."""

    operation: Operation
    registers: Mapping[int, int] = field(default_factory=dict)
    plain: Mapping[int, int] = field(default_factory=dict)


class Registers:
    """Registers by what they hold; `constants` are the doubles that some hold for all rows."""

    def __init__(self) -> None:
        self.count = 0
        self.constants: dict[int, float] = {}
        self._known: dict[object, int] = {}

    def new(self) -> int:
        self.count += 1
        return self.count - 1

    def of(self, name: object) -> int:
        """The register of a name, a new one if there is none."""
        if name not in self._known:
            self._known[name] = self.new()
        return self._known[name]

    def name(self, name: object, register: int) -> None:
        """A register that there is gets a name."""
        self._known[name] = register

    def knows(self, name: object) -> bool:
        return name in self._known


def compiled(expression: Expression, registers: Registers, code: list[Instruction], *, of_results: bool) -> int | None:
    """The register of an expression over columns that are in registers by their names; the instructions that fill it
    go to `code`."""
    if registers.knows(expression):
        return registers.of(expression)
    match expression:
        case Column(name):
            return registers.of(name) if registers.knows(name) else None
        case Literal(value, SqlType.DOUBLE) if isinstance(value, float):
            register = registers.of(expression)
            registers.constants[register] = value
            return register
        case Cast(Literal(value), SqlType.DOUBLE) if isinstance(value, int | float) and not isinstance(value, bool):
            register = registers.of(expression)
            registers.constants[register] = float(value)
            return register
        case Cast(operand, SqlType.DOUBLE) if operand.type.is_integer:
            first = compiled(operand, registers, code, of_results=of_results)
            if first is None:
                return None
            register = registers.of(expression)
            operation = records.results_to_doubles if of_results else records.to_doubles
            width = {records.WIDTH: operand.type.storage.itemsize}
            code.append(Instruction(operation, {records.TO: register, records.FIRST: first}, width))
            return register
        case Call(function, args, SqlType.DOUBLE) if function in _FUNCTIONS:
            if any(arg.type is not SqlType.DOUBLE for arg in args):
                return None
            found = [compiled(arg, registers, code, of_results=of_results) for arg in args]
            places = [place for place in found if place is not None]
            if len(places) < len(args):
                return None
            register = registers.of(expression)
            operation = records.compute_results if of_results else records.compute
            named = {records.TO: register, records.FIRST: places[0], records.SECOND: places[-1]}
            code.append(Instruction(operation, named, {records.FUNCTION: _FUNCTIONS[function]}))
            return register
        case _:
            return None
