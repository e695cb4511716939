"""Reads a setup: TOML text, parameters put in, every field checked; errors name the field and what to write.

A relative path in a setup is looked for beside the setup file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from penstock.errors import InputError
from penstock_bench.measure.setup.checks import mistakes
from penstock_bench.measure.setup.generators import (
    Constant,
    Listed,
    Normal,
    RandomWalk,
    Scalar,
    Sequential,
    Uniform,
    Zipf,
)
from penstock_bench.measure.setup.model import Setup
from penstock_bench.measure.setup.parameters import given_parameters, put_in

Given = Mapping[str, Scalar]


def read_text(path: Path) -> str:
    """The text of a setup file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{path}: cannot be read: {reason}") from None


def read_setup(path: Path, parameters: Given | None = None, adapter: str | None = None) -> Setup:
    """The setup in a file, with other values for some of its parameters and another adapter if one is given."""
    return parse_setup(resolved(read_text(path), path.name, path.parent, parameters, adapter), path.name)


def resolved(
    text: str, where: str, beside: Path, parameters: Given | None = None, adapter: str | None = None
) -> dict[str, Any]:
    """The setup as plain values, all parameters put in and all paths absolute: what a run keeps as `setup.json`."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where}: is no TOML: {error}") from None
    except (RecursionError, ValueError) as error:  # tables in tables without end, or a number without end
        raise InputError(f"{where}: cannot be read: {error}") from None
    values = given_parameters(where, raw.get("parameters", {}), parameters or {})
    try:
        made: dict[str, Any] = put_in({key: item for key, item in raw.items() if key != "parameters"}, values, "")
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    made["parameters"] = values
    if adapter is not None:
        system = made.setdefault("system", {})
        if isinstance(system, dict) and system.get("adapter", "embedded") != adapter:
            # Options are one adapter's own: another one does not know them.
            others = system.get("others")
            options = others.get(adapter, {}) if isinstance(others, dict) else {}
            made["system"] = {"adapter": adapter, "options": options}
    for replay in _replays(made):
        if isinstance(replay.get("file"), str):
            replay["file"] = _resolved(where, beside / replay["file"])
    return made


def _resolved(where: str, path: Path) -> str:
    try:
        return str(path.resolve())
    except (OSError, ValueError) as error:
        raise InputError(f"{where}: drivers.replay.file: is no path: {error}") from None


def _replays(raw: dict[str, Any]) -> Iterator[dict[str, Any]]:
    drivers = raw.get("drivers")
    for driver in drivers if isinstance(drivers, list) else ():
        if isinstance(driver, dict) and isinstance(driver.get("replay"), dict):
            yield driver["replay"]


def parse_setup(raw: Mapping[str, Any], where: str = "setup") -> Setup:
    """The setup of plain values, checked as a whole; all mistakes are told at once."""
    try:
        setup = Setup.model_validate(raw)
    except ValidationError as error:
        raise _refusal(where, [_told(one) for one in error.errors()]) from None
    found = mistakes(setup)
    if found:
        raise _refusal(where, found)
    return setup


def _refusal(where: str, found: list[str]) -> InputError:
    return InputError("\n  ".join([f"{where}: {'a mistake' if len(found) == 1 else f'{len(found)} mistakes'}", *found]))


def _told(error: Any) -> str:
    """One of pydantic's errors in our words: the field's path, what is wrong, what to write."""
    location = tuple(part for place, part in enumerate(error["loc"]) if not _is_inner(error["loc"], place))
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    kind = error["type"]
    if kind == "extra_forbidden":
        names = _fields_at(error["loc"][:-1])
        close = get_close_matches(str(location[-1]), names, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(names)}"
        return f"{path}: unknown field; {hint}"
    if kind == "missing":
        return f"{path}: is missing"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return f"{path}.generator: there are {', '.join(_GENERATORS)}"
    if kind == "value_error":
        return f"{path}: {error['msg'].removeprefix('Value error, ')}"
    if kind == "string_pattern_mismatch":
        return f"{path}: '{error['input']}' is no name: letters, digits, spaces, _ and -, beginning with a letter"
    if kind == "too_short":
        return f"{path}: there must be at least one"
    shown = error["input"] if isinstance(error["input"], (bool, int, float, str)) else type(error["input"]).__name__
    message = error["msg"][0].lower() + error["msg"][1:]
    return f"{path}: {message.replace('input should', 'should')}, not {shown!r}"


_GENERATORS: dict[str, type[BaseModel]] = {
    model.model_fields["generator"].annotation.__args__[0]: model  # type: ignore[union-attr]
    for model in (Sequential, Uniform, Normal, Zipf, RandomWalk, Constant, Listed)
}


def _is_inner(location: tuple[str | int, ...], place: int) -> bool:
    """Pydantic names the alternative of a union that it tried; a reader of the setup has not written that."""
    part = location[place]
    after_a_column = place == (5 if location[0] == "drivers" else 4) and part in _GENERATORS
    return isinstance(part, str) and (after_a_column or part.startswith(("function-", "literal[", "[key]")))


def _fields_at(location: tuple[str | int, ...]) -> list[str]:
    """The fields of the model at a place of a setup."""
    model: Any = Setup
    for part in location:
        if part in _GENERATORS:
            model = _GENERATORS[str(part)]
        elif isinstance(model, type) and issubclass(model, BaseModel) and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation)
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _model_in(annotation: Any) -> Any:
    """The model inside `tuple[Model, ...]`, `Mapping[str, Model]` or `Model | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in getattr(annotation, "__args__", ()) if (found := _model_in(inner))), None)
