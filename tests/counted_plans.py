"""Counts how often texts are parsed and queries are planned, for tests that a program is parsed and planned once."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.lang import parsing
from penstock.lang.query import Source
from penstock.plan import build as planning
from penstock.plan.nodes import Node


@dataclass
class Counted:
    parsed: int = 0
    planned: int = 0


def count_plans(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Every module that has loaded `plan.build.build` calls a counting one; a subquery is a part of its query."""
    counted = Counted()
    statements, build = parsing._statements, planning.build
    depth = 0

    def counting_statements(*given: Any) -> Any:
        counted.parsed += 1
        return statements(*given)

    def counting_build(source: Source) -> Node:
        nonlocal depth
        counted.planned += depth == 0
        depth += 1
        try:
            return build(source)
        finally:
            depth -= 1

    monkeypatch.setattr(parsing, "_statements", counting_statements)
    for module in [m for name, m in sys.modules.items() if name.startswith("penstock.")]:
        if getattr(module, "build", None) is build:
            monkeypatch.setattr(module, "build", counting_build)
    return counted
