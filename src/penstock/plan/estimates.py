"""What EXPLAIN says of the space, the I/O and the processor time of windows."""

from __future__ import annotations

from penstock.lang.render import render_duration
from penstock.plan import cost
from penstock.plan.aggregations import unite
from penstock.plan.nodes import AggregateNode
from penstock.plan.pane_cost import Comparison, compare
from penstock.plan.panes import Family, family_of, why_not
from penstock.plan.shared_io import SharedStore
from penstock.plan.sizes import pane_row_bytes, row_bytes, state_bytes


def estimates_of_rows(node: AggregateNode, workload: cost.Workload, block_size: int) -> list[str]:
    """Of a window that stores its rows."""
    row = row_bytes(node)
    io = (
        f"{cost.iops(workload.rate, block_size=block_size, row=row):.2f} requests/s (3.1), "
        f"{_size(cost.io_bandwidth(workload.rate, block_size=block_size, row=row))}/s (3.2)"
    )
    lines = [f"stores   rows of {row} bytes, each written once and read once"]
    if why_not(node) is None:
        lines += _comparison(compare(family_of([node]), workload), panes_used=False)
    elif node.window.extent.length is not None:
        window, state = node.window.extent.length / 1e6, state_bytes(node.states)
        one = cost.space_one_window(workload, aggregates=len(node.states) + 1, window=window, row=row, state=state)
        lines.append(f"space    one window (1W) {_size(one)} (2.2)")
    return [*lines, f"I/O      {io} once the window is larger than memory"]


def estimates_of_panes(family: Family, workload: cost.Workload) -> list[str]:
    """Of a window that is made of panes."""
    windows, row = len(family.windows), pane_row_bytes(unite(family.nodes).states)
    made = f"for {windows:,} windows" if windows > 1 else "for this window"
    return [
        f"stores   panes of {render_duration(family.pane.micros)} {made}, rows of {row} bytes for each group in a pane",
        *_comparison(compare(family, workload), panes_used=True),
    ]


def estimates_of_store(store: SharedStore, memory: int) -> list[str]:
    """Of stored rows that several windows share."""
    needed = (
        f"at most {store.requests:.2f} requests/s (4.1), {store.hit_rate:.0%} of the blocks found in memory (4.2)"
        if store.hit_rate < 1
        else "none: all blocks stay in memory"
    )
    return [
        f"\nthe stored rows of {store.stream}, shared by {', '.join(store.queries)}",
        f"   stores   rows of {store.row} bytes, each written once",
        f"   space    {_size(store.space)}, that of the largest window; {_size(store.space_apart)} for windows apart",
        f"   I/O      {needed} with {_size(memory)}; {store.requests_apart:.2f} for windows apart (3.1)",
    ]


def _comparison(found: Comparison, *, panes_used: bool) -> list[str]:
    one, panes = found.one_window, found.panes
    used, not_used = ("", ", used") if panes_used else (", used", "")
    return [
        f"space    one window (1W) {_size(one.space)} (2.2){used}",
        f"         two levels (2LA) {_size(panes.space)} (2.1){not_used}",
        f"CPU      one window {one.cpu:.3%} of a core, panes {panes.cpu:.3%}",
    ]


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
