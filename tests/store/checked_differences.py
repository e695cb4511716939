"""Every part of a state that is written by differences is joined with those before it and compared with the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from penstock.components import Saved
from penstock.store import differences, state
from penstock.store.differences import Differences, joined
from penstock.store.parts import Part

_ALWAYS = 12
"""So many parts that follow each other are compared one by one, and later ones now and then: each comparison reads all
of them."""


def check_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, until the patches are undone. Small state is written by differences, too."""
    write, remember, seal = Differences.part, Differences.remember, Part.sealed

    def checked_part(self: Differences, tree: dict[str, Any]) -> Part:
        expected = state.decode(state.encode(tree))
        part = write(self, tree)
        parts = [] if part.is_whole else self.__dict__["parts"]
        assert part.number == len(parts)
        self.__dict__["parts"] = parts = [*parts, part.data]
        part.__dict__["expected"] = parts[-1]
        if len(parts) <= _ALWAYS or len(parts) % _ALWAYS == 0:
            assert_same(joined(parts), expected)
        return part

    def checked_seal(self: Part) -> list[state.Bytes]:
        """Whatever has happened to the tree meanwhile, the part is as it was."""
        found = seal(self)
        assert b"".join(found) == self.__dict__.get("expected", b"".join(found)), "the tree has changed with the part"
        return found

    def noted(self: Differences, parts: Sequence[bytes], saved: dict[str, Any]) -> None:
        self.__dict__["parts"] = list(parts)
        remember(self, parts, saved)

    monkeypatch.setattr(Differences, "part", checked_part)
    monkeypatch.setattr(Differences, "remember", noted)
    monkeypatch.setattr(Part, "sealed", checked_seal)
    monkeypatch.setattr(differences, "SMALL", 0)


def assert_same(found: Any, expected: Any, path: str = "state") -> None:
    assert type(found) is type(expected), path
    if isinstance(expected, dict):
        assert vars(found).get("version") == vars(expected).get("version") if isinstance(expected, Saved) else True
        assert list(found) == list(expected), path
        for key, item in expected.items():
            assert_same(found[key], item, f"{path}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), path
        for at, item in enumerate(expected):
            assert_same(found[at], item, f"{path}[{at}]")
    elif isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), path
        different = np.flatnonzero(found.reshape(-1).view(np.uint8) != expected.reshape(-1).view(np.uint8))
        assert not len(different), f"{path}: bytes {different[:5]} of {expected.nbytes}"
    else:
        assert found == expected or found != found, path
