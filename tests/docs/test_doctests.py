"""Every example in a docstring of the two packages gives what it shows."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module
from types import ModuleType

import pytest

import penstock
import penstock_bench


def _documented() -> list[ModuleType]:
    """The modules with examples. `__main__` modules run when they are imported."""
    found = [
        module
        for package in (penstock, penstock_bench)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    names = [module.name for module in found if not module.name.endswith("__main__")]
    finder = doctest.DocTestFinder(exclude_empty=True)
    modules = [import_module(name) for name in names]
    return [module for module in modules if any(found.examples for found in finder.find(module))]


@pytest.mark.parametrize("module", _documented(), ids=lambda module: module.__name__)
def test_examples_of_docstrings(module: ModuleType) -> None:
    outcome = doctest.testmod(module, verbose=False)
    assert outcome.attempted > 0
    assert outcome.failed == 0
