"""Every rule against its cases: plain text of plans before and after it (`cases`)."""

from __future__ import annotations

import pytest

from penstock.plan.physical.rules import RULES, Rule
from plan.physical.cases import FIXTURES, Case, read

CASES = [(rule, case) for rule in RULES for case in read(FIXTURES / f"{rule.__name__}.txt")]


@pytest.mark.parametrize(("rule", "case"), CASES, ids=[f"{rule.__name__}-{case.title}" for rule, case in CASES])
def test_a_rule_makes_of_a_plan_what_its_case_says(rule: Rule, case: Case) -> None:
    assert case.plans(rule) == (case.before, case.after)


def test_every_rule_has_cases_and_every_file_a_rule() -> None:
    assert {rule.__name__ for rule, _ in CASES} == {rule.__name__ for rule in RULES}
    assert {path.stem for path in FIXTURES.glob("*.txt")} == {rule.__name__ for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_some_case_shows_that_the_rule_changes_a_plan_and_has_a_file_of_its_own(rule: Rule) -> None:
    assert any(case.before != case.after for own, case in CASES if own is rule)
    assert rule.__module__.endswith(f".rules.{rule.__name__}")
