"""Components: what is written says its version, and what is older is led through the readers."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.components import Component, Saved, component, is_of, read_as
from penstock.errors import CheckpointError
from penstock.store import state as state_format
from penstock.store.state import decode, encode


def _with_unit(saved: dict[str, Any]) -> dict[str, Any]:
    return {**saved, "unit": "seconds"}


def _in_micros(saved: dict[str, Any]) -> dict[str, Any]:
    return {"micros": saved["time"] * 1_000_000}


@component("a clock of the tests", 3, _with_unit, _in_micros)
class Clock:
    def __init__(self) -> None:
        self.micros = 0

    def snapshot(self) -> dict[str, Any]:
        return {"micros": self.micros}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.micros = snapshot["micros"]


@component("a clock of the tests with a name")
class NamedClock(Clock):
    def snapshot(self) -> dict[str, Any]:
        return super().snapshot() | {"name": "noon"}


def named(version: int, **content: Any) -> Saved:
    return Saved(content, "a clock of the tests", version)


@pytest.mark.parametrize(
    "saved",
    [named(1, time=5), named(2, time=5, unit="seconds"), named(3, micros=5_000_000), {"micros": 5_000_000}],
    ids=["version 1", "version 2", "version 3", "of today"],
)
@pytest.mark.parametrize("through_bytes", [False, True])
def test_every_older_version_is_read(saved: dict[str, Any], through_bytes: bool) -> None:
    clock = Clock()
    clock.restore(decode(encode(saved)) if through_bytes else saved)
    assert clock.micros == 5_000_000
    assert decode(encode(clock.snapshot())) == {"micros": 5_000_000}


def test_format_7_is_version_1_of_everything() -> None:
    unnamed = Saved({"time": 5}, "", 1)
    assert is_of(Clock, unnamed, known_by="time")
    assert not is_of(Clock, Saved({"time": 5}, "another", 1), known_by="time")
    assert read_as(Clock, unnamed) == {"micros": 5_000_000}


def test_names_and_versions_are_written_beside_the_tree() -> None:
    clock = Clock()
    back = decode(encode({"clocks": [clock.snapshot(), NamedClock().snapshot()], "plain": {"micros": 1}}))
    first, second = back["clocks"]
    assert (first.component, first.version) == ("a clock of the tests", 3)
    assert (second.component, second.version, second["name"]) == ("a clock of the tests with a name", 1, "noon")
    assert type(back["plain"]) is dict


def test_a_newer_version_is_refused_with_what_to_do() -> None:
    clock = Clock()
    with pytest.raises(CheckpointError, match=r"has a clock of the tests in version 4, .* up to version 3; use"):
        clock.restore(named(4, nanos=1))
    assert clock.micros == 0


def test_another_component_is_refused() -> None:
    with pytest.raises(CheckpointError, match="another where a clock of the tests is expected"):
        Clock().restore(Saved({"micros": 1}, "another", 1))


def test_a_version_has_a_reader_for_each_step() -> None:
    with pytest.raises(TypeError, match="X has version 3 and 1 readers of older ones"):
        Component("X", 3, (_with_unit,))
    with pytest.raises(TypeError, match="there are two components with the name a clock of the tests"):
        component("a clock of the tests")(Clock)


def test_older_formats_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode({"a": 1})
    monkeypatch.setattr(state_format, "OLDEST", state_format.VERSION + 1)
    with pytest.raises(CheckpointError, match="start with a new checkpoint directory"):
        decode(data)
