"""From the name of a kind (`kinds.KINDS`) to the state: one maker for each. Operators make states here only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.aggregates.count import CountState
from penstock.aggregates.distinct import DistinctState
from penstock.aggregates.extremes import ExtremeState
from penstock.aggregates.moments import ComomentsState, MomentsState
from penstock.aggregates.order_statistics import OrderState
from penstock.aggregates.selective import SelectiveState
from penstock.aggregates.state import AggregateState, MergeableState, Want
from penstock.aggregates.sums import SumState
from penstock.aggregates.user import UserAggregate, UserState
from penstock.arrays import Int64s
from penstock.store.budget import Account
from penstock.store.device import BlockDevice
from penstock.types import SqlType


class _Order(NamedTuple):
    """What a state is made of: see `create_state`."""

    types: tuple[SqlType, ...]
    wants: Sequence[Want]
    account: Account
    device: BlockDevice | None
    ranks: Callable[[], Int64s] | None
    user: UserAggregate | None


def create_state(
    kind: str,
    types: tuple[SqlType, ...],
    wants: Sequence[Want],
    *,
    account: Account,
    device: BlockDevice | None = None,
    ranks: Callable[[], Int64s] | None = None,
    user: UserAggregate | None = None,
) -> AggregateState:
    """The state of a kind over arguments of these types, serving `wants` in their order.

    `device` lets kinds that are paged go beyond memory; `ranks` orders the codes of the last argument if it is a
    STRING; `user` is the aggregate of kind USER. What a state holds is on its `account`.
    """
    return MAKERS[kind](_Order(types, wants, account, device, ranks, user))


def create_mergeable(
    kind: str,
    types: tuple[SqlType, ...],
    wants: Sequence[Want],
    *,
    account: Account,
    ranks: Callable[[], Int64s] | None = None,
) -> MergeableState:
    """The state of a kind that is mergeable, made to take in partials: it keeps no rows, so it needs no device."""
    state = create_state(kind, types, wants, account=account, ranks=ranks)
    assert isinstance(state, MergeableState), f"the planner asks whether {kind} can be merged"
    return state


def _extreme(function: str) -> _Maker:
    return lambda order: ExtremeState(
        function, order.types, account=order.account, device=order.device, ranks=order.ranks
    )


def _selective(function: str) -> _Maker:
    return lambda order: SelectiveState(
        function, order.types, account=order.account, device=order.device, ranks=order.ranks
    )


def _comoments(order: _Order) -> AggregateState:
    first, second = order.types
    return ComomentsState(order.wants, first.is_integer, second.is_integer, order.account)


def _user(order: _Order) -> AggregateState:
    assert order.user is not None, "the planner names a user-defined aggregate that the app knows"
    return UserState(order.user, order.account)


_Maker = Callable[[_Order], AggregateState]

MAKERS: dict[str, _Maker] = {
    "COUNT": lambda order: CountState(order.account),
    "SUM": lambda order: SumState(order.types[0].is_integer, order.wants, order.account),
    "MOMENTS": lambda order: MomentsState(order.wants, order.types[0].is_integer, order.account),
    "COMOMENTS": _comoments,
    "MIN": _extreme("MIN"),
    "MAX": _extreme("MAX"),
    "FIRST": _selective("FIRST"),
    "LAST": _selective("LAST"),
    "ARG_MIN": _selective("ARG_MIN"),
    "ARG_MAX": _selective("ARG_MAX"),
    "ORDER": lambda order: OrderState(order.wants, order.types[0], order.account, order.device),
    "DISTINCT": lambda order: DistinctState(order.wants, order.types[0], order.account, order.device),
    "USER": _user,
}
