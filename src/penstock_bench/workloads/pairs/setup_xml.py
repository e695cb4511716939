"""The neutral form of the strategies: XML as in the thesis' Figure B.2, which the translator of any engine reads.

A file may come from anywhere. It is read without a document type, so it has no entities and reaches for nothing
outside of itself; its size, its elements, its attributes and the range of every value are checked. Errors name the
line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from penstock.errors import InputError
from penstock_bench.workloads.pairs.strategies import Strategy

MOST_BYTES: Final = 256 << 20
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
NAME_RULE: Final = "write a letter or digit, then up to 63 letters, digits or any of _ . : -"
"""Of aliases and symbols."""
_WHOLE = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,17})?")
_ATTRIBUTES = (
    "alias",
    "availableFunds",
    "symbol1",
    "symbol2",
    "periodLength",
    "numPeriods",
    "bandsMultiplier",
    "stopLossPerc",
)


def write_strategies(path: Path, strategies: Iterable[Strategy]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write('<?xml version="1.0" encoding="UTF-8"?>\n<Strategies>\n')
        for strategy in strategies:
            file.write("  <PairsStrategy\n    ")
            values = _written(strategy)
            file.write("\n    ".join(f"{name}={quoteattr(values[name])}" for name in _ATTRIBUTES))
            file.write(">\n  </PairsStrategy>\n")
        file.write("</Strategies>\n")


def read_strategies(path: Path) -> list[Strategy]:
    """The strategies of a file; `InputError` says what is wrong with it, and where."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: the strategies cannot be read: {error.strerror}") from None
    if len(text) > MOST_BYTES:
        raise InputError(f"{path}: the file is larger than {MOST_BYTES >> 20} MiB, which no file of strategies is")
    reader = _Reader(path)
    reader.read(text)
    if not reader.strategies:
        raise InputError(f"{path}: there is no <PairsStrategy> in it: write at least one")
    return reader.strategies


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._parser = expat.ParserCreate()
        self._depth = 0
        self._aliases: set[str] = set()
        self.strategies: list[Strategy] = []

    def read(self, text: bytes) -> None:
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        try:
            self._parser.Parse(text, True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise InputError(f"{self._path}, line {error.lineno}: this is not well-formed XML: {reason}") from None
        except (UnicodeError, LookupError, ValueError) as error:
            raise InputError(f"{self._path}: this is not XML in a known encoding: {error}") from None

    def _refuse_doctype(self, *_: object) -> None:
        raise self._wrong("a document type (<!DOCTYPE …>) is refused, since it may define entities: leave it out")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        wanted = "Strategies" if self._depth == 0 else "PairsStrategy" if self._depth == 1 else None
        if name != wanted:
            instead = f"write <{wanted}>" if wanted else "a <PairsStrategy> has attributes only"
            raise self._wrong(f"<{name[:64]}> is not expected here: {instead}")
        if self._depth == 1:
            self._take(attributes)
        elif attributes:
            raise self._wrong("<Strategies> has no attributes: leave them out")
        self._depth += 1

    def _end(self, _: str) -> None:
        self._depth -= 1

    def _characters(self, text: str) -> None:
        if text.strip():
            raise self._wrong(f"the text {text.strip()[:40]!r} is not expected here: a strategy has attributes only")

    def _take(self, attributes: Mapping[str, str]) -> None:
        missing = [name for name in _ATTRIBUTES if name not in attributes]
        unknown = sorted(set(attributes) - set(_ATTRIBUTES))
        if missing:
            raise self._wrong(f'the strategy has no {missing[0]}: write {missing[0]}="…"')
        if unknown:
            raise self._wrong(
                f"{unknown[0][:64]} is not an attribute of a strategy: write one of {', '.join(_ATTRIBUTES)}"
            )
        strategy = Strategy(
            alias=self._name(attributes, "alias"),
            available_funds=self._whole(attributes, "availableFunds", 0, 10**15),
            symbol1=self._name(attributes, "symbol1"),
            symbol2=self._name(attributes, "symbol2"),
            period_length=self._whole(attributes, "periodLength", 1, 86_400),
            num_periods=self._whole(attributes, "numPeriods", 2, 10_000),
            bands_multiplier=self._number(attributes, "bandsMultiplier", 0.0, 1000.0),
            stop_loss_perc=self._number(attributes, "stopLossPerc", 0.0, 1.0),
        )
        if strategy.symbol1 == strategy.symbol2:
            raise self._wrong(f"symbol1 and symbol2 of {strategy.alias} are both {strategy.symbol1}: write two symbols")
        if strategy.alias in self._aliases:
            raise self._wrong(f"{strategy.alias} is there twice: each strategy has an alias of its own")
        self._aliases.add(strategy.alias)
        self.strategies.append(strategy)

    def _name(self, attributes: Mapping[str, str], name: str) -> str:
        value = attributes[name]
        if not NAME.fullmatch(value):
            raise self._wrong(f"{name} is {value[:80]!r}: {NAME_RULE}")
        return value

    def _whole(self, attributes: Mapping[str, str], name: str, least: int, most: int) -> int:
        value = attributes[name]
        if not (_WHOLE.fullmatch(value) and least <= int(value) <= most):
            raise self._wrong(f"{name} is {value[:80]!r}: write a whole number from {least} to {most}")
        return int(value)

    def _number(self, attributes: Mapping[str, str], name: str, least: float, most: float) -> float:
        value = attributes[name]
        if not (_NUMBER.fullmatch(value) and least < float(value) <= most and math.isfinite(float(value))):
            raise self._wrong(f"{name} is {value[:80]!r}: write a number above {least:g}, up to {most:g}")
        return float(value)

    def _wrong(self, what: str) -> InputError:
        return InputError(f"{self._path}, line {self._parser.CurrentLineNumber}: {what}")


def _written(strategy: Strategy) -> dict[str, str]:
    return {
        "alias": strategy.alias,
        "availableFunds": str(strategy.available_funds),
        "symbol1": strategy.symbol1,
        "symbol2": strategy.symbol2,
        "periodLength": str(strategy.period_length),
        "numPeriods": str(strategy.num_periods),
        "bandsMultiplier": repr(strategy.bands_multiplier),
        "stopLossPerc": repr(strategy.stop_loss_perc),
    }
