"""New aggregations over one stream are members of one stored window. An aggregation joins a window at work instead if
that window stores all that the aggregation reads.

Why: docs/decisions/one-stored-window.md
"""

from __future__ import annotations

from penstock.plan.nodes import AggregateNode
from penstock.plan.physical.circumstances import Circumstances
from penstock.plan.physical.merging import merged
from penstock.plan.physical.nodes import Aggregation, PhysicalPlan, Shareable, Stage, StoredWindow
from penstock.plan.sharing import stream_of


def share_windows(plan: PhysicalPlan, circumstances: Circumstances) -> PhysicalPlan:
    found: dict[tuple[str, str], list[tuple[Stage, Aggregation]]] = {}
    for stage, new in plan.new_windows:
        (member,) = new.members
        key = (_window_for(member.nodes, circumstances), stream_of(member.nodes[0]))
        found.setdefault(key, []).append((stage, member))
    groups: list[tuple[list[Stage], Shareable]] = []
    for (at_work, _), together in found.items():
        window = StoredWindow(tuple(member for _, member in together), at_work=at_work)
        groups.append(([stage for stage, _ in together], window))
    return merged(plan, groups)


def _window_for(nodes: tuple[AggregateNode, ...], circumstances: Circumstances) -> str:
    """The name of a window at work that these can join; "" if there is none."""
    return next((rows.name for rows in circumstances.at_work if all(map(rows.takes, nodes))), "")
