"""One aggregation over a sliding window, for one query or for all that are the same in it (`plan.aggregations`).

    shared window ─▶ member: policy, tail ─▶ evaluation: states, played once ─┬▶ show: HAVING, select list ─▶ query 1
                                                                             ├▶ show ─┬▶ query 2
                                                                             │        └▶ query 3, which is the same
                                                                             └▶ ...

The window's policy says where evaluations take place and what has left by then; the shared window hands on the rows
that enter and the aggregation's own tail of it gives those that leave; the evaluation plays both against each other.

Invariants:
1. The queries of an aggregation are there from its first row on, or from the moment on at which it was filled with
   rows of the past.
2. States stay until the last query has left, also those that only a query read that is gone.
3. After a restart the aggregation has the states of the queries that are left, found by what they compute.

Made by `engine.flow` for the queries that it starts together, or by `sliding` for one alone.

Why: docs/decisions/one-aggregation.md
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.arrays import Int64s, Slots
from penstock.components import component, is_of
from penstock.lane.row_program import RowPlan
from penstock.operators import column_lane
from penstock.operators.aggregation import Aggregation, RowRun
from penstock.operators.chunk import Chunk
from penstock.operators.column_lane import ColumnLane
from penstock.operators.columns import texts_without_codes, to_data
from penstock.operators.evaluation import Arrivals, Evaluation, RowMoves, Show
from penstock.operators.leaving import Leaving
from penstock.operators.paged.events import PagedEvents
from penstock.operators.paged.group_columns import have_columns
from penstock.operators.paged.results import PagedResults, by_position
from penstock.operators.paged.shard import EnteringRows
from penstock.operators.paged.texts import PagedTexts, TextCount, is_counted_apart, may_leave
from penstock.operators.reorder import START
from penstock.operators.resources import Resources
from penstock.operators.results import Results, ResultShow, slice_of
from penstock.operators.row_lane import RowLane
from penstock.operators.row_plan import plan_rows
from penstock.operators.shared_window import SharedWindow
from penstock.operators.stage import Output
from penstock.operators.window_member import Entered, WindowMember
from penstock.plan.aggregations import unite
from penstock.plan.nodes import AggregateNode
from penstock.plan.reads import GroupingKey
from penstock.rejects import Reject
from penstock.types import SqlType
from penstock.windows.spec import Range, Rows, Since, last_boundary_upto
from penstock.windows.steps import BoundaryPolicy, EventPolicy, Steps, policy_for

MakeEvaluation = Callable[..., Evaluation]
"""Called with a name, the node with all states, what it reads, resources, and `one_group`."""


class AggregationOutput(Output):
    """A query at an aggregation. `shown` is what it reads."""

    __slots__ = ("shown",)

    def __init__(self, reject: Reject, shown: _ShownRows) -> None:
        super().__init__(reject)
        self.shown = shown

    def end(self, last_time: int | None) -> int | None:
        return self.shown.end(last_time)

    def snapshot(self) -> dict[str, Any]:
        return self.shown.show.snapshot()

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.shown.show.restore(snapshot)


class _ShownRows:
    """The rows of one show and the queries that read them: these are the same."""

    def __init__(self, node: AggregateNode, end: Callable[[int | None], int | None]) -> None:
        self.node = node
        self.end = end
        self.outputs: list[AggregationOutput] = []
        self.is_silent = False
        self.rejected = 0
        self.show: Show

    def reject(self, reason: str, row: dict[str, Any]) -> None:
        self.rejected += 1
        for output in () if self.is_silent else self.outputs:
            output.reject(reason, row)

    def send_rows(self, chunks: list[Chunk]) -> None:
        for output in () if self.is_silent else self.outputs:
            output.send_rows(chunks)

    def send(self, reached: int) -> None:
        chunks = self.show.outgoing.take()
        for output in self.outputs:
            output.send(chunks, reached)

    @property
    def made(self) -> int:
        """How many rows have come of evaluations so far, with those that were rejected."""
        return self.show.outgoing.made + self.rejected


def _in_memory(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Version 1: no groups were in shards."""
    return snapshot


def _with_codes(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Version 2: all texts had codes."""
    return {**snapshot, "texts": None}


@component("SharedAggregation", 3, _in_memory, _with_codes)
class SharedAggregation:
    """For the queries whose `nodes` are given, each of which is to `join`; `resources` are its own, and go with it.
    Without a `window` to share it has one of its own."""

    def __init__(
        self,
        name: str,
        nodes: Sequence[AggregateNode],
        resources: Resources,
        make_evaluation: MakeEvaluation,
        window: SharedWindow | None = None,
    ) -> None:
        united = unite(nodes)
        node = replace(nodes[0], states=united.states, answers=united.answers[0])
        self.name = name
        self._resources = resources
        self._answers = dict(zip(nodes, united.answers, strict=True))
        self._shown: list[_ShownRows] = []
        self._lag = node.window.lag
        self._owns_window = window is None
        self.window = SharedWindow(name, (node,), resources.apart()) if window is None else window
        self._member = member = self.window.join(node, self)
        resources.at_end(lambda: self.window.leave(member))
        self._evaluation = make_evaluation(name, node, member, resources, one_group=not member.has_slots)
        self._policy = policy_for(node.window, resources.rows_before(node.input))
        self._paged: PagedResults | PagedEvents | None = None
        """The groups, once they are in shards."""
        self._texts: PagedTexts | None = None
        """What counts texts, once they are in shards."""
        self._watermark = START
        self._lane = self._evaluation.lane(node, member) if isinstance(self._evaluation, Results) else None
        self._column_lane: ColumnLane | None = None
        self._knows_columns = False
        """Whether it is known if there is a column lane: it depends on the queries and on the members of the window."""
        self._drain = node.emission.drain
        self._node = node
        self._compares = any(own.emission.emit.compares for own in nodes)
        self._none = RowRun(0, np.empty(0, np.int32), member.no_columns())

    # Queries come and go

    @property
    def stage(self) -> SharedWindow:
        """What is called with the rows of the stream."""
        return self.window

    @property
    def is_used(self) -> bool:
        return bool(self._shown)

    def join(self, node: AggregateNode, resources: Resources) -> AggregationOutput:
        """One of the queries that it was made for; it leaves with its resources."""
        shown = next((one for one in self._shown if one.node == node), None)
        if shown is None:
            shown = _ShownRows(node, self.end)
            shown.show = self._evaluation.show(node, self._answers[node], shown.reject)
            shown.show.outgoing.receiver = shown.send_rows
            shown.show.outgoing.share = self.window.share
            self.window.share.change(1)
            self._shown.append(shown)
            self._knows_columns = False
        output = AggregationOutput(resources.reject, shown)
        shown.outputs.append(output)
        self._member.grouping.rejects.append(resources.reject)
        resources.at_end(lambda: self._leave(output))
        return output

    def _leave(self, output: AggregationOutput) -> None:
        """A query goes, and with the last one the aggregation."""
        shown = output.shown
        shown.outputs.remove(output)
        self._member.grouping.rejects.remove(output.reject)
        if not shown.outputs:
            self._shown.remove(shown)
            self._evaluation.drop(shown.show)
            self.window.share.change(-1)
            self._knows_columns = False
        if not self._shown:
            self.close()

    def groups_of(self, grouping: GroupingKey) -> int | None:
        """How many groups there are now; None if it groups otherwise."""
        own = self._member.grouping
        return own.groups.size if own.key == grouping else None

    def close(self) -> None:
        """Gives everything back; the queries are gone, or never came."""
        self._resources.close()

    def begin_at(self, reached: int) -> None:
        """The stream had rows before the first that comes, and has reached this time."""
        self._policy.observe(np.array([reached]))

    # Rows of the past

    def begins_at(self, reached: int, last_time: int) -> int:
        """The time of the oldest row that can be in its window once the stream has reached a time. At every event,
        ISTREAM and DSTREAM compare with the window of the stream's last one."""
        length, slide = self._node.window.extent.length, self._node.window.time_slide
        assert length is not None, "the planner backfills no other windows"
        if slide is not None:
            return last_boundary_upto(reached, slide) - length
        return (last_time if self._compares else reached) - length + 1

    def fill(self, others: Sequence[SharedAggregation], reached: int) -> bool:
        """Takes over what others have stored, as if its queries had been there all along; False if not all of it is
        there. The stream has reached the time given."""
        source = next((other for other in others if other.has_rows_of(self, reached)), None)
        if source is None or not self.window.has_kept(self._member):
            return False
        self._fill_from(source, reached)
        return True

    def has_rows_of(self, other: SharedAggregation, reached: int) -> bool:
        """Whether another aggregation finds all its rows of the past in this one's part of the store."""
        policy, member = self._policy, self._member
        if other.window is not self.window or other._member.grouping is not member.grouping or self._paged is not None:
            return False
        length = policy.extent.length
        if not isinstance(policy, BoundaryPolicy) or length is None or policy.first_time is None:
            return False
        since = other.begins_at(reached, policy.stream_last)
        if member.began > 0 and since <= policy.first_time:
            return False
        return policy.closed is None or since >= policy.closed - length

    def _fill_from(self, other: SharedAggregation, reached: int) -> None:
        """Evaluates the last boundary or event without results: ISTREAM and DSTREAM compare the next one with it."""
        known, slide = other._policy.snapshot(), self._node.window.time_slide
        since = self.begins_at(reached, known["stream_last"])
        boundary = None if slide is None else last_boundary_upto(reached, slide)
        start = since if boundary is not None else since - 1
        looked = self._node.window.when_full and start < known["first_time"]
        found = False
        for times, run in self.window.stored(self._member, other._member.position):
            begin, end = int(np.searchsorted(times, since)), len(times)
            if begin == end:
                continue
            if not found:
                self._member.seek(run.first + begin)
                found = True
            if not looked and boundary is not None and times[-1] >= boundary:
                upto = max(begin, int(np.searchsorted(times, boundary)))
                self._add(run.part(begin, upto))
                self._look_back(boundary)
                looked, begin = True, upto
            self._add(run.part(begin, end))
        if not looked:
            self._look_back(reached if boundary is None else boundary)
        if boundary is not None:
            self._policy.restore(known | {"closed": boundary})
        else:
            self._policy.restore(self._policy.snapshot() | {"first_time": known["first_time"]})

    def _add(self, rows: RowRun) -> None:
        """Rows enter without an evaluation."""
        one = np.full(1, len(rows.slots), np.int64)
        self._evaluation.play(RowMoves(rows, self._none, one, one * 0, one < 0, one * 0, one * 0), None)

    def _look_back(self, boundary: int) -> None:
        if not self._compares:
            return
        end = np.full(1, boundary, np.int64)
        none = np.zeros(1, np.int64)
        for shown in self._shown:
            shown.is_silent = True
        self._evaluation.play(RowMoves(self._none, self._none, none, none, none == 0, none, end), None)
        for shown in self._shown:
            shown.show.outgoing.take()
            shown.is_silent = False

    # Rows pass

    def finish(self, last_time: int | None) -> None:
        """The end of a bounded run, which is the same for all queries of the aggregation."""
        end = self.end(last_time)
        if end is not None:
            self.window.pass_time(self._member, end)
            for shown in self._shown:
                last = shown.show.outgoing.take()
                if last:
                    shown.send_rows(last)

    def end(self, last_time: int | None) -> int | None:
        """The last boundary of a bounded run."""
        return self._policy.last_boundary(self._drain, last_time)

    def waits_for(self, watermark: int) -> bool:
        return self._policy.waits_for(watermark)

    def send(self, watermark: int) -> None:
        self._watermark = watermark
        if isinstance(self._paged, PagedEvents) and self._paged.waits_since is not None:
            watermark = min(watermark, self._paged.waits_since - 1)
        reached = watermark - self._lag
        for shown in self._shown:
            shown.send(reached)

    def enter(self, entered: Entered, watermark: int) -> None:
        """Rows have entered the shared window, and the stream has reached this time."""
        self._policy.observe(entered.stream_times)
        added, arrivals, times = self._none, None, entered.times
        if self._paged is not None:
            if isinstance(self._paged, PagedEvents):
                self._let_wait(self._paged, entered)
                return
            if len(times):
                self._paged.add(self._entering(entered))
        elif len(times):
            name = self._member.grouping.key.name
            slots = entered.slots[name]
            added = RowRun(entered.first, slots, tuple([entered.columns[column] for column in self._member.names]))
            if self._texts is not None:
                self._log_texts(self._texts, entered, slots)
            if self._evaluation.of_events:
                arrivals = Arrivals(slots, entered.keys[name], 0)
        done, silent, tail, paged = self._enter_lane(entered), False, self._member.tail, self._paged
        stores = self.reads_stored_rows
        if done and done == len(times):
            return
        while True:
            oldest = START if tail is None else tail.oldest if paged is None or stores else paged.oldest
            rest = times[done:] if done else times
            steps = self._policy.steps(rest, entered.first + done, watermark, silent, oldest)
            made = 0 if steps.complete else self._made
            if self._texts is not None:
                self._texts.play(steps, entered.first + done)
            if paged is not None:
                if stores:
                    steps = self._by_position(steps)
                paged.play(steps, entered.first + done)
            else:
                self._play(added.part(done, len(times)) if done else added, steps, arrivals, done)
            if steps.complete:
                return
            silent = self._made == made
            done += int(steps.add_upto[-1])

    def _entering(self, entered: Entered) -> EnteringRows:
        """Rows that wait in the logs of their shards."""
        name, member, rows = self._member.grouping.key.name, self._member, len(entered.times)
        positions = np.arange(entered.first, entered.first + rows)
        keys = [slice_of(key, 0, rows) for key in entered.keys[name]]
        columns = [
            entered.texts[column].values if column in entered.texts else entered.columns[column]
            for column in member.names
        ]
        return EnteringRows(entered.times, positions, keys, columns, member.interners, entered.keeps[name])

    def _let_wait(self, paged: PagedEvents, entered: Entered) -> None:
        """Events wait for others, until there are many or the runtime is about to return."""
        assert isinstance(self._policy, EventPolicy)
        rows = len(entered.times)
        if rows:
            waiting = self._entering(entered)
            if self.reads_stored_rows:
                steps = self._policy.steps(entered.times, entered.first, START)
                waiting = waiting._replace(windows=lambda: (self._by_position(steps).window_start, entered.times))
            else:
                self._policy.pass_rows(rows)
            paged.add(waiting)
        if paged.has_many:
            paged.play(self._policy.first_time)
        elif rows and self._play_waiting not in self._resources.later:
            self._resources.later.append(self._play_waiting)

    def _play_waiting(self) -> None:
        if isinstance(self._paged, PagedEvents):
            self._paged.play(self._policy.first_time)
            self.send(self._watermark)

    # Groups page

    @property
    def may_page(self) -> bool:
        """Groups page where all of them are in stored rows, or no row leaves them and no state needs its rows. At every
        event they do if the event shows its own group alone."""
        window = self._node.window
        is_landmark = window.extent.since is not None
        has_rows = have_columns(self._node.states) if is_landmark else self._member.tail is not None
        if not (has_rows and self._node.group_by and isinstance(self._evaluation, Results)):
            return False
        if window.is_per_event:
            return isinstance(window.extent, Range | Rows) and self._evaluation.of_events
        return isinstance(window.extent, Range | Rows | Since)

    @property
    def group_bytes(self) -> int:
        """What only shards relieve memory of."""
        assert isinstance(self._evaluation, Results)
        aggregation = self._evaluation.aggregation
        return aggregation.nbytes - aggregation.pageable_nbytes

    def page(self) -> None:
        member, groups = self._member, self._member.groups
        paged = self._begin_paging()
        if member.tail is None:
            assert isinstance(paged, PagedResults)
            assert isinstance(self._evaluation, Results)
            paged.take(self._evaluation.aggregation)
            return
        for times, run in self.window.stored(member, member.position):
            chosen = np.flatnonzero(run.slots >= 0)
            if len(chosen) == 0:
                continue
            columns = [
                texts_without_codes(column.at(chosen)) if name in self.window.uncoded else column.at(chosen)
                for name, column in zip(member.names, run.columns, strict=True)
            ]
            keys = groups.keys(run.slots[chosen])
            rows = EnteringRows(times[chosen], run.first + chosen, keys, columns, member.interners)
            paged.add(rows._replace(windows=rows.no_windows))
        if isinstance(paged, PagedEvents):
            paged.pass_over()

    @property
    def reads_stored_rows(self) -> bool:
        """Where positions say which rows are in."""
        return self._paged is not None and self._member.tail is not None and by_position(self._node.window)

    @property
    def logs_texts(self) -> bool:
        return not by_position(self._node.window)

    def _by_position(self, steps: Steps) -> Steps:
        """The steps with the positions before which rows leave, and with the starts of windows. The stored rows know
        both; what they hold besides is in the log."""
        leaves: list[Int64s] = []
        starts: list[Int64s] = []
        at = 0
        while at < len(steps):
            leaving = self._leaving(steps, at)
            count = len(leaving.left) - leaving.more  # more rows leave at the last one of these steps
            leaves.append(leaving.first + leaving.left[:count])
            starts.append(leaving.starts[:count])
            if leaving.columns:
                self.window.let_go(self._member, leaving)
            at += count
        if not leaves:
            return steps
        return replace(steps, leave_before=np.concatenate(leaves), window_start=np.concatenate(starts))

    def _begin_paging(self) -> PagedResults | PagedEvents:
        assert isinstance(self._evaluation, Results)
        results = self._evaluation
        make = PagedEvents if results.of_events else PagedResults
        paged = make(self.name, self._node, self._member.columns, results.shows, self._resources)
        self._paged = paged
        self._lane = None
        return paged

    def forget_groups(self) -> None:
        """The groups are in shards."""
        assert isinstance(self._evaluation, Results)
        self._evaluation.empty()

    # Texts page

    def can_do_without(self, text: str) -> bool:
        """Texts are not read if only their rows are counted, or if groups are in shards. Different texts are counted
        in shards where there is one group."""
        place, member = self._member.names.index(text), self._member
        columns = zip(self._node.states, member.state_columns, strict=True)
        readers = [state for state, own in columns if place in own.arguments]
        is_logged = self._paged is not None and self.logs_texts
        if is_logged or not any(map(is_counted_apart, readers)):
            return is_logged or all(map(may_leave, readers))
        if self._node.group_by or not isinstance(self._node.window.extent, Range) or member.tail is None:
            return False
        is_by_clock = self._node.window.wall_clock_slide is not None
        return isinstance(self._evaluation, Results) and not is_by_clock and all(map(may_leave, readers))

    def page_text(self, text: str) -> None:
        counts = self._begin_counts(text)
        if not counts or self._texts is None:
            return
        member, place = self._member, self._member.names.index(text)
        interner = member.interners[place]
        assert interner is not None
        for times, run in self.window.stored(member, member.position):
            strings = to_data(*run.columns[place], SqlType.STRING, interner)
            self._texts.add(counts, times, run.first, run.slots, run.columns, {text: strings})

    def begin_text(self, text: str) -> None:
        self._begin_counts(text)

    def _begin_counts(self, text: str) -> list[TextCount]:
        if self._node.group_by or not isinstance(self._evaluation, Results):
            return []
        if self._texts is None:
            self._texts = PagedTexts(self.name, self._node, self._member.columns, self._resources)
            self._evaluation.texts = self._texts
        return self._texts.begin(text, self._evaluation.aggregation)

    def _log_texts(self, texts: PagedTexts, entered: Entered, slots: Slots) -> None:
        columns = [entered.columns[column] for column in self._member.names]
        strings = {name: column.values for name, column in entered.texts.items()}
        texts.add(texts.counts, entered.times, entered.first, slots, columns, strings)

    def _enter_lane(self, entered: Entered) -> int:
        """How many of the rows that entered are played by the lane; the others are for the ordinary path."""
        if self._lane is None or not len(entered.times) or self.window.has_texts:
            return 0
        assert isinstance(self._evaluation, Results)
        assert isinstance(self._policy, EventPolicy)
        done, left = self._evaluation.enter(self._lane, entered, entered.keys[self._member.grouping.key.name])
        self._policy.pass_rows(done)
        self.window.note_left(self._member, left)
        return done

    def row_lane(self) -> tuple[RowLane, ResultShow] | None:
        """A lane for single events, where one query is all that the window is for; and what shows its results."""
        found = self._sole_show(finds_slots=True)
        return None if found is None else (RowLane(found[0], *self._laned()), found[1])

    @property
    def takes_columns(self) -> bool:
        return self._lane is not None and not self.window.has_texts

    def enter_columns(self, chunk: Chunk) -> int:
        if chunk.rows < column_lane.LEAST_ROWS:
            return 0
        if not self._knows_columns:
            self._knows_columns = True
            found = None if self._member.grouping.key.fallible else self._sole_show(finds_slots=False)
            self._column_lane = None if found is None else ColumnLane(found[0], *self._laned(), found[1])
        return 0 if self._column_lane is None else self._column_lane.enter(chunk)

    def _sole_show(self, *, finds_slots: bool) -> tuple[RowPlan, ResultShow] | None:
        """What a lane does that stores its rows itself, if one query is all that the window is for."""
        if self._lane is None or self.window.only is not self._member or len(self._shown) != 1:
            return None
        shown = self._shown[0]
        assert isinstance(shown.show, ResultShow)
        if finds_slots and len(shown.outputs) != 1:
            return None
        assert self.window.store is not None
        plan = plan_rows(shown.node, self._answers[shown.node], self._node, self.window.store, finds_slots=finds_slots)
        return None if plan is None else (plan, shown.show)

    def _laned(self) -> tuple[AggregateNode, SharedWindow, WindowMember, Aggregation, EventPolicy]:
        """What such a lane works on."""
        assert isinstance(self._evaluation, Results)
        assert isinstance(self._policy, EventPolicy)
        return self._node, self.window, self._member, self._evaluation.aggregation, self._policy

    @property
    def _made(self) -> int:
        """How many rows have come of evaluations so far, with those that were rejected."""
        return sum(shown.made for shown in self._shown)

    def _play(self, added: RowRun, steps: Steps, arrivals: Arrivals | None, offset: int) -> None:
        """Plays all steps, in turns where more rows leave than can be brought together. The step between two turns is
        played in two parts, and its evaluation waits for the second."""
        at = entered = 0
        while at < len(steps):
            leaving = self._leaving(steps, at)
            upto = at + len(leaving.left)
            evaluates, add_upto = steps.evaluates[at:upto], steps.add_upto[at:upto]
            if leaving.more:
                evaluates = evaluates.copy()
                evaluates[-1] = False
            within = add_upto - entered if entered else add_upto
            removed = self._removed(leaving)
            turn = RowMoves(added, removed, within, leaving.left, evaluates, leaving.starts, steps.window_end[at:upto])
            if arrivals is not None:
                arrivals = Arrivals(arrivals.slots, arrivals.keys, offset - 1 + int(add_upto[0]))
            self._evaluation.play(turn, arrivals)
            if leaving.columns:
                self.window.let_go(self._member, leaving)
            if not leaving.more:
                return
            added = added.part(int(add_upto[-1]) - entered, len(added.slots))
            entered = int(add_upto[-1])
            at += len(leaving.left) - 1

    def _leaving(self, steps: Steps, at: int) -> Leaving:
        if self._member.tail is not None:
            return self._member.tail.leaving(steps, at)
        nothing = np.zeros(len(steps) - at, np.int64)
        return Leaving(0, (), nothing, steps.window_start[at:], False)

    def _removed(self, leaving: Leaving) -> RowRun:
        if not leaving.columns:
            return self._none
        columns, count = leaving.columns, len(self._member.names)
        if self._member.has_slots:
            return RowRun(leaving.first, columns[1].values, columns[2 : 2 + count])
        return RowRun(leaving.first, np.zeros(len(columns[0].values), np.int32), columns[1 : 1 + count])

    # Durability

    def snapshot(self) -> dict[str, Any]:
        return {
            "window": self.window.snapshot() if self._owns_window else self.window.name,
            "policy": self._policy.snapshot(),
            "evaluation": (self._paged or self._evaluation).snapshot(),
            "position": self._member.position,
            "texts": None if self._texts is None else self._texts.snapshot(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """A window that is shared has been restored before."""
        if self._owns_window:
            self.window.restore(snapshot["window"])
        self._policy.restore(snapshot["policy"])
        kinds = (PagedResults, PagedEvents)
        if any(is_of(kind, snapshot["evaluation"], known_by="shards") for kind in kinds):
            self._begin_paging().restore(snapshot["evaluation"])
            self.window.forget_groups(self._member.grouping.key.name)
        else:
            self._evaluation.restore(snapshot["evaluation"])
        if self._texts is not None:
            self._texts.restore(snapshot["texts"])
        self._member.seek(snapshot["position"])
