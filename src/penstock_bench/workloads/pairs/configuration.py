"""The configuration file of the Pairs tools: properties as in the thesis' Appendix B.6, and a few of our own.

A line is `name=value`; # and ! begin a comment; a backslash at the end of a line goes on with the next, and \\\\ is
one backslash. Folders and files that are not absolute count from the folder of the configuration file. A name that no
tool knows is refused, with the one that may be meant.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from penstock.errors import InputError
from penstock_bench.workloads.pairs.market import Arrivals, MarketSettings
from penstock_bench.workloads.pairs.tick_files import TickFormat

_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Configuration:
    """What the tools are told; the names in the file are the `Property.name`s."""

    data_folder: Path = Path("data")
    query_folder: Path = Path("queries")
    translator_folder: Path = Path("impl")
    validator_folder: Path = Path("valid")
    scale_factor: int = 1
    file_count: int = 1
    sut_file: Path | None = None
    skip_input_validation: bool = False
    seed: int = 1
    tick_format: TickFormat = TickFormat.PARQUET
    arrivals: Arrivals = Arrivals.POISSON
    varying_rate: bool = True
    shortened: float = 1.0
    basis_rate: float | None = None
    peak_rate: float | None = None
    symbols: int | None = None
    correlations: int | None = None
    strategies: int | None = None
    volatility: float = 0.7
    correlation: float = 0.9
    real_ticks: Path | None = None
    real_pairs: Path | None = None

    @property
    def market(self) -> MarketSettings:
        names = {field.name for field in fields(MarketSettings)}
        return MarketSettings(**{name: getattr(self, name) for name in names})

    @property
    def answers(self) -> Path:
        """Where the answers of a system are, or go."""
        return self.sut_file or self.data_folder.parent / "answers"

    @property
    def strategies_file(self) -> Path:
        return self.query_folder / "strategies.xml"


@dataclass(frozen=True)
class Property:
    """A line of the file: its name, the field that it sets, how its value is read, and what it means."""

    name: str
    field: str
    read: Callable[[str], Any]
    about: str


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return read


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("a number such as 0.5")
    return value


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _choice(kind: type[Arrivals] | type[TickFormat]) -> Callable[[str], Arrivals | TickFormat]:
    def read(text: str) -> Arrivals | TickFormat:
        try:
            return kind(text.lower())
        except ValueError:
            raise ValueError(" or ".join(kind)) from None

    return read


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError("the path of a file or a folder")
    return Path(text)


PROPERTIES: Final = (
    Property("dGenFolder", "data_folder", _path, "Folder of the ticks and of the auxiliary file."),
    Property("qGenFolder", "query_folder", _path, "Folder of the strategies (strategies.xml)."),
    Property("translatorFolder", "translator_folder", _path, "Folder of the translated strategies."),
    Property("validFolder", "validator_folder", _path, "Folder of the expected answers and of the report."),
    Property("scaleFactor", "scale_factor", _whole(1, 100_000), "Scale factor of the benchmark."),
    Property("fileCount", "file_count", _whole(1, 1000), "Into how many files the ticks are dealt out."),
    Property("sutFile", "sut_file", _path, "Answers of the system: a folder, or a log of both streams; else answers."),
    Property("skipInputValidation", "skip_input_validation", _truth, "Use the last validation's expected answers."),
    Property("seed", "seed", _whole(0, (1 << 63) - 1), "Decides all that is random."),
    Property("tickFormat", "tick_format", _choice(TickFormat), "parquet or csv."),
    Property("arrivals", "arrivals", _choice(Arrivals), "poisson or constant."),
    Property("varyingRate", "varying_rate", _truth, "Whether the rate goes up and down between basis and peak."),
    Property("phases", "shortened", _number, "Multiplies the length of all phases: 0.1 is a run of 12 minutes."),
    Property("basisRate", "basis_rate", _number, "Ticks a second; by default 5,000 for each market."),
    Property("peakRate", "peak_rate", _number, "Ticks a second; by default 1.5 times the basis."),
    Property("symbols", "symbols", _whole(2, 1_000_000), "By default 100 for each market."),
    Property("correlations", "correlations", _whole(1, 500_000), "By default a quarter of the symbols."),
    Property("strategies", "strategies", _whole(1, 5_000_000), "By default 25 times the scale factor."),
    Property("volatility", "volatility", _number, "Deviation of a price's logarithm at the end of the run."),
    Property("correlation", "correlation", _number, "Between the movements of the two prices of a pair."),
    Property("realTicks", "real_ticks", _path, "Real data in place of generated: CSV of symbol,price,size,tickTS."),
    Property("realPairs", "real_pairs", _path, "Its correlations: CSV of two symbols; by default the most correlated."),
)
_BY_NAME = {item.name: item for item in PROPERTIES}


def read_configuration(path: Path) -> Configuration:
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: the configuration cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: the configuration is not UTF-8 text") from None
    if len(raw) > _MOST_BYTES:
        raise InputError(f"{path}: a configuration is no larger than {_MOST_BYTES >> 20} MiB")
    return Configuration(**_values(path, text))


def sample() -> str:
    """A configuration with every property, its meaning and its default; those without one are comments."""
    defaults = Configuration()
    lines = []
    for item in PROPERTIES:
        value = getattr(defaults, item.field)
        shown = f"#{item.name}=" if value is None else f"{item.name}={_shown(value)}"
        lines.append(f"# {item.about}\n{shown}\n")
    return "\n".join(lines)


def _values(path: Path, text: str) -> Mapping[str, Any]:
    values: dict[str, Any] = {}
    for number, line in _logical_lines(text):
        name, equals, value = line.partition("=")
        name, value = name.strip(), value.strip().replace("\\\\", "\\")
        item = _BY_NAME.get(name)
        if item is None or not equals:
            close = difflib.get_close_matches(name, _BY_NAME, 1)
            instead = f"did you mean {close[0]}?" if close else f"write one of {', '.join(_BY_NAME)}"
            what = f"{name[:64]!r} is not a property" if equals else f"{name[:64]!r} has no value after an ="
            raise InputError(f"{path}, line {number}: {what}: {instead}")
        if item.field in values:
            raise InputError(f"{path}, line {number}: {name} is there twice: leave one out")
        try:
            read = item.read(value)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {name} is {value[:80]!r}: write {error}") from None
        values[item.field] = path.parent / read if isinstance(read, Path) else read
    return values


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    held, began = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not held and (not stripped or stripped[0] in "#!"):
            continue
        began = began or number
        goes_on = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
        held += stripped[:-1] if goes_on else stripped
        if not goes_on:
            lines.append((began, held))
            held, began = "", 0
    if held:
        lines.append((began, held))
    return lines


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).replace("\\", "\\\\")
