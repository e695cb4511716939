"""The page of adapters tells every option of every adapter that it describes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock_bench.measure.adapters.adapter import adapter_class, adapters
from penstock_bench.measure.adapters.embedded import Embedded

_PAGE = (Path(__file__).parents[3] / "docs" / "adapters.md").read_text()


@pytest.mark.parametrize("name", [name for name in adapters() if f"\n## {name}\n" in _PAGE])
def test_the_options_are_those_of_the_adapter(name: str) -> None:
    section = _PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    known = adapter_class(name).options
    inherited = Embedded.options if name == "kafka" else {}
    assert told == [option for option in known if option not in inherited]
