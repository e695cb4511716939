"""Aggregates over the events of a repeated element: each match is a group of its own, looked at once and forgotten."""

from __future__ import annotations

import numpy as np

from penstock.aggregates.factory import create_state
from penstock.aggregates.state import Argument, Emitted, Rows, Schedule
from penstock.arrays import Bools, Int64s
from penstock.expressions.batch import Batch, Data
from penstock.expressions.evaluate import compile_expression
from penstock.expressions.tree import Column, walk
from penstock.expressions.vector import RowErrors, Vector
from penstock.operators.columns import to_argument, to_data
from penstock.operators.emitter import OVERFLOW, as_row
from penstock.operators.interner import Interner
from penstock.operators.patterns.matches import Found, View
from penstock.operators.resources import Resources
from penstock.plan.nodes import StateSpec
from penstock.plan.patterns.nodes import RepeatPlan
from penstock.rejects import Reject
from penstock.store.budget import Account
from penstock.types import SqlType

_NONE = np.empty(0, np.int64)


class _State:
    """How one state is fed."""

    def __init__(self, spec: StateSpec) -> None:
        self.spec = spec
        self.arguments = [compile_expression(arg) for arg in spec.args]
        self.filter = None if spec.filter is None else compile_expression(spec.filter)
        self.types = tuple(arg.type for arg in spec.args)


class RepeatAggregates:
    """`event_bytes` is what an event of the element takes up while its match is aggregated."""

    def __init__(self, name: str, plan: RepeatPlan, view: View, resources: Resources, reject: Reject) -> None:
        self.element = plan.element
        self._plan = plan
        self._states = [_State(spec) for spec in plan.states]
        self._view = view
        self._users = resources.user_aggregates
        self._reject = reject
        self._accounts = [resources.account(f"{name}: {spec.kind} of {plan.element}") for spec in plan.states]
        read = [e for spec in plan.states for e in (*spec.args, *(() if spec.filter is None else (spec.filter,)))]
        self._columns = list(dict.fromkeys(c for e in read for c in walk(e) if isinstance(c, Column)))
        self.event_bytes = 8 * view.elements + 16 * (len(self._columns) + len(read))

    def columns(self, found: Found) -> tuple[dict[str, Data], Bools]:
        """The aggregates of each match, by name, and for which matches they could be computed."""
        repeats = found.repeats[self.element]
        matches = len(found)
        fine = np.ones(matches, np.bool_)
        nodes = found.nodes[repeats.owners]
        nodes[:, self.element] = repeats.nodes
        rows = self._view.batch(nodes, self._columns)
        emitted: list[tuple[tuple[Emitted, ...], Interner | None]] = []
        for state, account in zip(self._states, self._accounts, strict=True):
            emitted.append(self._play(state, account, rows, repeats.owners, matches, fine))
        data: dict[str, Data] = {}
        for number, answer in zip(self._plan.numbers, self._plan.answers, strict=True):
            if answer.state < 0:
                data[f"${number}"] = Vector(np.bincount(repeats.owners, minlength=matches), None)
                continue
            results, interner = emitted[answer.state]
            result = results[answer.want]
            if result.failed is not None:
                for match in np.flatnonzero(result.failed & fine):
                    self._reject(OVERFLOW, as_row(rows, int(np.searchsorted(repeats.owners, match))))
                fine &= ~result.failed
            text = interner if answer.type is SqlType.STRING else None
            data[f"${number}"] = to_data(result.values, result.valid, answer.type, text)
        return data, fine

    def _play(
        self, state: _State, account: Account, rows: Batch, owners: Int64s, matches: int, fine: Bools
    ) -> tuple[tuple[Emitted, ...], Interner | None]:
        """What the state answers for each match; those with an event on which it fails are not `fine` any more."""
        interners = [Interner() if kind is SqlType.STRING else None for kind in state.types]
        slots = owners.astype(np.int32)
        if state.filter is not None:
            passed = state.filter(rows)
            self._note(rows, passed.errors, owners, fine, np.ones(len(owners), np.bool_))
            slots = np.where(passed.true, slots, np.int32(-1))
        arguments: list[Argument] = []
        for compiled, kind, interner in zip(state.arguments, state.types, interners, strict=True):
            value = compiled(rows)
            self._note(rows, value.errors, owners, fine, slots >= 0)
            arguments.append(to_argument(value, kind, interner))
        ranks = next((i.ranks for i in interners[-1:] if i is not None), None)
        made = create_state(
            state.spec.kind,
            state.types,
            state.spec.wants,
            account=account,
            ranks=ranks,
            user=None if state.spec.user is None else self._users[state.spec.user],
        )
        made.ensure(matches)
        one, nothing = np.ones(1, np.int64), np.zeros(1, np.int64)
        schedule = Schedule(one * len(owners), nothing, one * matches, np.arange(matches, dtype=np.int32))
        added = Rows(np.arange(len(owners)), slots, tuple(arguments))
        removed = Rows(_NONE, _NONE.astype(np.int32), tuple(argument.at(slice(0)) for argument in arguments))
        results = made.advance(added, removed, schedule)
        made.reset(schedule.emit_slots)
        account.resize(0)
        return results, interners[0] if interners else None

    def _note(self, rows: Batch, errors: RowErrors | None, owners: Int64s, fine: Bools, among: Bools) -> None:
        """Matches with an event on which something fails are rejected."""
        if errors is None:
            return
        for row in np.flatnonzero(errors.mask & among & fine[owners]):
            self._reject(errors.reasons[errors.codes[row] - 1], as_row(rows, int(row)))
        fine[owners[errors.mask & among]] = False
