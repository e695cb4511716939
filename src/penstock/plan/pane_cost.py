"""One window or panes: what a family of windows costs either way. The rule `choose_panes` decides by it.

Formulas 2.1 and 2.2 give the space. Here neither way is limited to memory, so space is paid for as time: what does
not fit the memory is written to disk and read back by the tail of each window. The processor's part, for windows of
extents W_i, slides U_i, panes of length p, N states and g groups in a pane:

    one window   λ · Σ_i 2·N·r + Σ_i b/U_i          each row is added to and removed from each window
    panes        λ · N·r + (c + Σ_i 2·N·g·e) / p    each row is added once, each pane row to and from each window

with r for a row and a state, e for a pane row and a state, b for a boundary of one window and c for closing a pane,
measured in seconds below. Results take the same time either way, but for ISTREAM and DSTREAM that need only the groups
that have changed: with panes whole relations are compared, so such windows keep their rows unless panes are asked for.

Why: docs/decisions/panes-by-cost.md
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.plan import cost
from penstock.plan.aggregations import unite
from penstock.plan.panes import Family
from penstock.plan.sizes import pane_row_bytes, row_bytes, state_bytes

ROW, PANE_ROW, BOUNDARY, PANE = 15e-9, 8e-9, 60e-6, 300e-6
"""r, e, b and c: seconds on one core of a common machine."""

BANDWIDTH = 500e6
"""Bytes per second that a disk takes or gives."""

PREFERENCE = 1.2
"""Panes must be better than one window by this factor."""

CHANGE = 2.0
"""Windows at work change their form only for one that is better by this factor: a change takes as long as the longest
window, and both forms are kept meanwhile."""

DEFAULT_MEMORY = 64 << 20


@dataclass(frozen=True)
class Cost:
    """`cpu` is seconds per second of one core, `space` bytes, `io` bytes per second once the space exceeds memory."""

    cpu: float
    space: float
    io: float

    def seconds(self, memory: int) -> float:
        """Seconds of work per second, on disk where the state does not fit the memory."""
        return self.cpu + (self.io / BANDWIDTH if self.space > memory else 0.0)


@dataclass(frozen=True)
class Comparison:
    one_window: Cost
    panes: Cost

    def prefers_panes(self, memory: int, by: float = PREFERENCE) -> bool:
        return self.panes.seconds(memory) * by < self.one_window.seconds(memory)

    def prefers_rows(self, memory: int, by: float = CHANGE) -> bool:
        return self.one_window.seconds(memory) * by < self.panes.seconds(memory)


def compare(family: Family, workload: cost.Workload) -> Comparison:
    """What the family costs either way under a workload, whose groups count only where there is a GROUP BY.

    >>> from penstock.lang import parse
    >>> from penstock.plan.build import build
    >>> from penstock.plan.panes import families
    >>> def cheaper(windows, rate):
    ...     text = "CREATE STREAM s (t TIMESTAMP, x DOUBLE, EVENT TIME t);"
    ...     for minutes in range(1, windows + 1):
    ...         text += f"SELECT AVG(x) AS a FROM s [RANGE {minutes} MINUTES SLIDE 1 SECOND];"
    ...     (family,) = families(build(query.body) for query in parse(text).queries)
    ...     found = compare(family, cost.Workload(rate))
    ...     return "panes" if found.prefers_panes(DEFAULT_MEMORY) else "one window"
    >>> cheaper(1, 1_000), cheaper(1, 100_000), cheaper(2, 1_000), cheaper(100, 1_000)
    ('one window', 'panes', 'one window', 'panes')
    """
    node = family.nodes[0]
    states = unite(family.nodes).states
    if not node.group_by:
        workload = replace(workload, groups_in_slide=1, groups=1)
    length = family.pane.micros / 1e6
    in_pane = min(workload.groups_in_slide, max(1, round(workload.rate * length)))
    windows, aggregates = len(family.windows), len(states) + 1
    longest = max(window.extent for window in family.windows) / 1e6
    row = max(map(row_bytes, family.nodes))
    state, pane_row = state_bytes(states), pane_row_bytes(states)
    others = (windows - 1) * aggregates * workload.groups * state
    boundaries = sum(1e6 / window.slide for window in family.windows)
    one = Cost(
        workload.rate * windows * 2 * aggregates * ROW + boundaries * BOUNDARY,
        cost.space_one_window(workload, aggregates=aggregates, window=longest, row=row, state=state) + others,
        (1 + windows) * workload.rate * row,
    )
    two = cost.space_two_level(
        replace(workload, groups_in_slide=in_pane),
        aggregates=aggregates,
        window=longest,
        slide=length,
        state=state,
        partial=pane_row // aggregates,
    )
    panes = Cost(
        workload.rate * aggregates * ROW + (PANE + windows * 2 * aggregates * in_pane * PANE_ROW) / length,
        two + others,
        (1 + windows) * in_pane / length * pane_row,
    )
    return Comparison(one, panes)
