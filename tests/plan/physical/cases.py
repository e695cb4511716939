"""Cases of rules as text: a program, the plan before the rule and the plan after it.

    # what the case shows
    CREATE STREAM ...; SELECT ...;
    -- strategy a = panes
    ---- before
    ...
    ---- after
    ...

Lines that begin with "--" say what is known outside the plan (`CIRCUMSTANCES`). The plan before a rule is made by the
rules before it. Run this file to write all plans anew; then look at the difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.lang import parse
from penstock.lang.query import Program
from penstock.plan.build import build
from penstock.plan.nodes import AggregateNode
from penstock.plan.physical.circumstances import Circumstances, OnSpark, StoredRows
from penstock.plan.physical.lower import lower
from penstock.plan.physical.render import render_plan
from penstock.plan.physical.rules import RULES, Rule
from penstock.plan.placement import Spread
from penstock.plan.reads import grouping_of, reads_of
from penstock.plan.sharing import stream_of

FIXTURES = Path(__file__).parent / "fixtures"


def _strategy(known: Circumstances, program: Program, query: str, asked: str) -> Circumstances:
    return replace(known, strategies={**known.strategies, query: asked})


def _rate(known: Circumstances, program: Program, stream: str, rate: str) -> Circumstances:
    return replace(known, rates={**known.rates, stream: float(rate)})


def _groups(known: Circumstances, program: Program, query: str, groups: str) -> Circumstances:
    """So many groups are known of the query's window."""
    node = _window(program, query)
    return replace(known, groups={**known.groups, (stream_of(node), grouping_of(node)): int(groups)})


def _memory(known: Circumstances, program: Program, _: str, size: str) -> Circumstances:
    return replace(known, memory=int(size))


def _with_panes(known: Circumstances, program: Program, _: str, told: str) -> Circumstances:
    return replace(known, with_panes=told == "yes")


def _existing(known: Circumstances, program: Program, query: str, name: str) -> Circumstances:
    """The query has an aggregation, with the window it is in unless it is a family."""
    name, _, window = name.partition(" in ")
    before = known.existing
    windows = {**before.windows, name: window} if window else before.windows
    aggregations = {**before.aggregations, query: (*before.aggregations.get(query, ()), name)}
    return replace(known, existing=replace(before, aggregations=aggregations, windows=windows))


def _join(known: Circumstances, program: Program, query: str, name: str) -> Circumstances:
    before = known.existing
    joins = {**before.joins, query: (*before.joins.get(query, ()), name)}
    return replace(known, existing=replace(before, joins=joins))


def _at_work(known: Circumstances, program: Program, name: str, query: str) -> Circumstances:
    """A window of this name was made for a query like that."""
    node = _window(program, query)
    key = grouping_of(node)
    columns = frozenset({"time", key.name, *(read.name for read in reads_of(node.states))})
    texts = frozenset(read.name for read in reads_of(node.states) if read.is_text)
    return replace(known, at_work=(*known.at_work, StoredRows(name, stream_of(node), columns, (key,), texts)))


def _on_spark(known: Circumstances, program: Program, query: str, spread: str) -> Circumstances:
    """ "all = by key", "all = partials", or the spread that one query had before."""
    before = known.on_spark or OnSpark()
    if query == "all":
        return replace(known, on_spark=replace(before, in_parts=spread == "partials"))
    return replace(known, on_spark=replace(before, before={**before.before, query: Spread(spread)}))


CIRCUMSTANCES: dict[str, Callable[[Circumstances, Program, str, str], Circumstances]] = {
    "strategy": _strategy,
    "rate": _rate,
    "groups": _groups,
    "memory": _memory,
    "with panes": _with_panes,
    "existing": _existing,
    "join": _join,
    "at work": _at_work,
    "on Spark": _on_spark,
}


@dataclass(frozen=True)
class Case:
    title: str
    text: str
    before: str
    after: str

    def plans(self, rule: Rule) -> tuple[str, str]:
        """The plan that the rules before this one make, and the one that the rule makes of it."""
        program = parse(self.text)
        known = Circumstances()
        for what, name, value in re.findall(r"^-- ([\w ]+) (\S+) = (.+)$", self.text, re.MULTILINE):
            known = CIRCUMSTANCES[what](known, program, name, value)
        plan = lower([(query, build(query.body)) for query in program.queries if not query.name.startswith("_")])
        for earlier in RULES[: RULES.index(rule)]:
            plan = earlier(plan, known)
        return render_plan(plan), render_plan(rule(plan, known))

    def __str__(self) -> str:
        return f"# {self.title}\n{self.text}\n---- before\n{self.before}\n---- after\n{self.after}\n"


def read(path: Path) -> list[Case]:
    cases = []
    for part in re.split(r"^# ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, rest = part.partition("\n")
        text, _, plans = rest.partition("\n---- before\n")
        before, _, after = plans.partition("\n---- after\n")
        cases.append(Case(title, text.strip("\n"), before.strip("\n"), after.strip("\n")))
    return cases


def _window(program: Program, query: str) -> AggregateNode:
    (body,) = [found.body for found in program.queries if found.name == query]
    node = build(body)
    assert isinstance(node, AggregateNode)
    return node


if __name__ == "__main__":
    for rule in RULES:
        path = FIXTURES / f"{rule.__name__}.txt"
        written = [replace(c, before=b, after=a) for c in read(path) for b, a in [c.plans(rule)]]
        path.write_text("\n".join(map(str, written)), encoding="utf-8")
