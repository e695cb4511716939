"""The README claims no more than there is."""

from __future__ import annotations

import re
from pathlib import Path

from conformance.cases import load

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def claimed(pattern: str) -> int:
    found = re.search(pattern, README)
    assert found is not None, f"the README does not say {pattern}"
    return int(found[1].replace(",", ""))


def test_there_are_as_many_conformance_cases_as_it_says() -> None:
    cases = load()
    assert claimed(r"\*\*([\d,]+) conformance cases") <= len(cases)
    assert claimed(r"on Spark, ([\d,]+) of them") <= sum(bool(case.expect) and not case.embedded_only for case in cases)
