"""From the stages of a physical plan to what runs: stored windows, aggregations, families of panes and join cores.

Nothing is decided here. The stages of one query alone are operators, which its pipeline makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, assert_never

from penstock.engine.running import Shared
from penstock.engine.saved_queries import Names, SavedQueries
from penstock.lang.fingerprint import fingerprint
from penstock.operators.joins.core import JoinCore
from penstock.operators.panes.family import PaneFamily
from penstock.operators.parts import PartialEvaluation
from penstock.operators.resources import Resources
from penstock.operators.shared_aggregation import SharedAggregation
from penstock.operators.shared_window import SharedWindow
from penstock.operators.sliding import make_results
from penstock.plan.aggregations import key_of
from penstock.plan.joins.sharing import core_key
from penstock.plan.physical import nodes as physical
from penstock.plan.sharing import stream_of

_Stage = TypeVar("_Stage", SharedWindow, SharedAggregation, PaneFamily, JoinCore)


class Made:
    """What was made of a plan's stages: for each query what its windows are part of, and the cores of its joins, both
    in their order."""

    def __init__(self) -> None:
        self.shared: dict[str, dict[int, Shared]] = {}
        self.cores: dict[str, dict[int, JoinCore]] = {}
        self._all: list[SharedWindow | Shared | JoinCore] = []

    def note(self, one: SharedWindow | Shared | JoinCore) -> None:
        self._all.append(one)

    def shared_of(self, query: str) -> list[Shared]:
        return [shared for _, shared in sorted(self.shared.get(query, {}).items())]

    def cores_of(self, query: str) -> list[JoinCore]:
        return [core for _, core in sorted(self.cores.get(query, {}).items())]

    def close_unused(self) -> None:
        """Gives back what no query reads."""
        for one in reversed(self._all):
            if not one.is_used:
                one.close()


class Maker:
    """`window_at_work` finds a stored window at work by its name. With `in_parts` aggregations give partial rows."""

    def __init__(
        self,
        names: Names,
        resources: Callable[[], Resources],
        window_at_work: Callable[[str], SharedWindow],
        *,
        in_parts: bool,
    ) -> None:
        self._names = names
        self._resources = resources
        self._window_at_work = window_at_work
        self._make_evaluation = PartialEvaluation if in_parts else make_results

    def make(self, plan: physical.PhysicalPlan, saved: SavedQueries) -> Made:
        """If a part cannot be made, the parts made before it are given back."""
        made = Made()
        try:
            for stage in plan.stages:
                self._make_stage(stage.form, saved, made)
        except BaseException:
            made.close_unused()
            raise
        return made

    def _make_stage(self, form: physical.Form, saved: SavedQueries, made: Made) -> None:
        match form:
            case physical.StoredWindow():
                window = self._make_window(form, saved, made)
                for member in form.members:
                    self._make_aggregation(member, window, made)
            case physical.PaneFamily():
                self._make_family(form, saved, made)
            case physical.JoinCore():
                self._make_core(form, saved, made)
            case physical.Table():
                """Tables are declared before queries (`engine.tables`)."""
            case (
                physical.OwnWindow()
                | physical.ClosingWindow()
                | physical.PartitionedWindow()
                | physical.RowsWindow()
                | physical.PartitionedRows()
                | physical.SessionRows()
                | physical.Pattern()
                | physical.Lookup()
                | physical.Scan()
                | physical.Edge()
                | physical.Project()
                | physical.Union()
                | physical.Combine()
            ):
                """`operators.pipeline` makes operators of them."""
            case other:
                assert_never(other)

    def _make_window(self, form: physical.StoredWindow, saved: SavedQueries, made: Made) -> SharedWindow:
        if form.at_work:
            return self._window_at_work(form.at_work)
        nodes = form.nodes
        name = form.saved or self._names.free(f"window-{stream_of(nodes[0])}-{fingerprint(nodes)[:12]}")
        state = saved.windows.get(form.saved)
        return self._made(name, lambda own: SharedWindow(name, nodes, own, state), made)

    def _make_aggregation(self, member: physical.Aggregation, window: SharedWindow, made: Made) -> None:
        nodes = member.nodes
        base = f"aggregate-{stream_of(nodes[0])}"
        name = member.saved or self._names.free(f"{base}-{fingerprint(key_of(nodes[0]))[:12]}")
        make = self._make_evaluation
        shared = self._made(name, lambda own: SharedAggregation(name, nodes, own, make, window), made)
        for reader in member.readers:
            made.shared.setdefault(reader.query, {})[reader.number] = shared

    def _make_family(self, form: physical.PaneFamily, saved: SavedQueries, made: Made) -> None:
        nodes = form.nodes
        base = f"family-{stream_of(nodes[0])}"
        name = form.saved or self._names.free(f"{base}-{fingerprint(form.family)[:12]}")
        state = saved.aggregations.get(form.saved)
        family = self._made(name, lambda own: PaneFamily(name, nodes, own, state), made)
        for reader in form.readers:
            made.shared.setdefault(reader.query, {})[reader.number] = family

    def _make_core(self, form: physical.JoinCore, saved: SavedQueries, made: Made) -> None:
        nodes = form.nodes
        name = form.saved or self._names.free(f"join-{fingerprint(core_key(nodes[0]))[:12]}")
        core = self._made(name, lambda own: JoinCore(name, nodes, own, saved.joins.get(form.saved)), made)
        for reader in form.readers:
            made.cores.setdefault(reader.query, {})[reader.number] = core

    def _made(self, name: str, make: Callable[[Resources], _Stage], made: Made) -> _Stage:
        """Made with resources of its own, which go back if that fails; its name is in use from then on."""
        resources = self._resources()
        try:
            one = make(resources)
        except BaseException:
            resources.close()
            raise
        self._names.use(name)
        made.note(one)
        return one
