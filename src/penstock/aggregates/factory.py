"""From the planner's kind of a state (see `signatures.kind_of`) to the state. The operator calls nothing else here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.aggregates.count import CountState
from penstock.aggregates.distinct import DistinctState
from penstock.aggregates.extremes import ExtremeState
from penstock.aggregates.moments import ComomentsState, MomentsState
from penstock.aggregates.order_statistics import OrderState
from penstock.aggregates.selective import SelectiveState
from penstock.aggregates.signatures import MERGEABLE
from penstock.aggregates.state import AggregateState, MergeableState, Want
from penstock.aggregates.sums import SumState
from penstock.aggregates.user import UserAggregate, UserState
from penstock.arrays import Int64s
from penstock.store.budget import Account
from penstock.store.device import BlockDevice
from penstock.types import SqlType


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

    `device` lets the selective kinds go beyond memory; `ranks` orders the codes of the last argument if it is a
    STRING; `user` is the aggregate of kind USER. What a state holds is on its `account`.
    """
    if kind in _SELECTIVE:
        make_selective = ExtremeState if kind in MERGEABLE else SelectiveState
        return make_selective(kind, types, account=account, device=device, ranks=ranks)
    if kind == "USER":
        assert user is not None, "the planner names a user-defined aggregate that the app knows"
        return UserState(user, account)
    make = _MAKERS[kind]
    return make(types, wants, account)


def create_mergeable(
    kind: str,
    types: tuple[SqlType, ...],
    wants: Sequence[Want],
    *,
    account: Account,
    ranks: Callable[[], Int64s] | None = None,
) -> MergeableState:
    """The state of a kind in `MERGEABLE`, made to take in partials: it keeps no rows, so it needs no device."""
    state = create_state(kind, types, wants, account=account, ranks=ranks)
    assert isinstance(state, MergeableState), f"the planner asks whether {kind} can be merged"
    return state


_SELECTIVE = ("MIN", "MAX", "FIRST", "LAST", "ARG_MIN", "ARG_MAX")

_MAKERS: dict[str, Callable[[tuple[SqlType, ...], Sequence[Want], Account], AggregateState]] = {
    "COUNT": lambda types, wants, account: CountState(account),
    "SUM": lambda types, wants, account: SumState(types[0].is_integer, wants, account),
    "MOMENTS": lambda types, wants, account: MomentsState(wants, types[0].is_integer, account),
    "COMOMENTS": lambda types, wants, account: ComomentsState(wants, types[0].is_integer, types[1].is_integer, account),
    "DISTINCT": lambda types, wants, account: DistinctState(wants, types[0], account),
    "ORDER": lambda types, wants, account: OrderState(wants, types[0], account),
}
