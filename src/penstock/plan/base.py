"""What is asked of every node of a plan. A node that says nothing is no stream and has no window of its own."""

from __future__ import annotations

from penstock.windows.spec import WindowSpec


class PlanNode:
    @property
    def stream_name(self) -> str | None:
        """The name of the stream, if the node is one."""
        return None

    @property
    def own_window(self) -> WindowSpec | None:
        """The window that the node keeps over its input. The windows of a join belong to its sides."""
        return None
