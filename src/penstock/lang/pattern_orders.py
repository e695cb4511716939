"""The orders in which the elements of a pattern may come: what SEQ, AND and OR stand for.

SEQ(A a, OR(B b, C c), D d)      a b d, a c d
SEQ(A a, AND(B b, C c))          a b c, a c b
AND(SEQ(A a, B b), C c)          a b c, a c b, c a b
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice, pairwise, product

from penstock.lang.places import QueryText
from penstock.lang.query import Role
from penstock.lang.syntax import ElementSyntax, OperatorSyntax

MOST = 64
"""Orders of one pattern; each is looked for by itself."""

Order = tuple[int, ...]


class Orders:
    """`numbers` has the number of each element, `roles` its role, by number."""

    def __init__(self, source: QueryText, numbers: Mapping[ElementSyntax, int], roles: list[Role]) -> None:
        self._source = source
        self._numbers = numbers
        self._roles = roles

    def of(self, root: OperatorSyntax) -> tuple[Order, ...]:
        found = tuple(islice(self._orders(root), MOST + 1))
        if len(found) > MOST:
            raise self._source.refusal(
                f"the elements of this pattern may come in more than {MOST} orders",
                root.span,
                "write fewer elements into AND, or several queries",
            )
        for order in found:
            self._check(order, root)
        return found

    def _orders(self, part: ElementSyntax | OperatorSyntax) -> Iterator[Order]:
        if isinstance(part, ElementSyntax):
            yield (self._numbers[part],)
        elif part.kind == "OR":
            yield from chain.from_iterable(map(self._orders, part.parts))
        else:
            if part.kind == "AND":
                self._check_conjunction(part)
            # More than can be used are never made: each part has at least one order.
            for chosen in product(*(tuple(islice(self._orders(below), MOST + 1)) for below in part.parts)):
                if part.kind == "SEQ":
                    yield tuple(chain.from_iterable(chosen))
                else:
                    yield from shuffles(chosen)

    def _check_conjunction(self, part: OperatorSyntax) -> None:
        for element in elements_of(part):
            if element.absent or element.repeated:
                what = "must not come" if element.absent else "is repeated"
                raise self._source.refusal(
                    f"an element that {what} cannot stand in AND",
                    element.span,
                    "it lies between two others: put it into SEQ, around or beside AND(...)",
                )

    def _check(self, order: Order, root: OperatorSyntax) -> None:
        roles = [self._roles[number] for number in order]
        if Role.PLAIN not in roles:
            raise self._source.refusal(
                "a pattern needs an element that is neither negated nor repeated",
                root.span,
                "add one before or after: absence and repetition are measured from it",
            )
        seen = [role for role in roles if role is not Role.ABSENT]
        if any(a is b is Role.REPEATED for a, b in pairwise(seen)):
            raise self._source.refusal(
                "two repeated elements follow each other",
                root.span,
                "put a plain element between them: each takes all events up to its neighbours",
            )
        if seen[0] is Role.REPEATED and roles[-1] is not Role.PLAIN:
            raise self._source.refusal(
                "a pattern that begins with a repeated element must end with a plain one",
                root.span,
                "the time of WITHIN is counted from its first event or back from its last",
            )


def shuffles(sequences: tuple[Order, ...]) -> Iterator[Order]:
    """All ways to lay sequences into each other, each kept in its own order.

    >>> list(shuffles(((1, 2), (3,))))
    [(1, 2, 3), (1, 3, 2), (3, 1, 2)]
    """
    if not any(sequences):
        yield ()
    for i, sequence in enumerate(sequences):
        if sequence:
            for rest in shuffles((*sequences[:i], sequence[1:], *sequences[i + 1 :])):
                yield (sequence[0], *rest)


def elements_of(part: ElementSyntax | OperatorSyntax) -> Iterator[ElementSyntax]:
    if isinstance(part, ElementSyntax):
        yield part
    else:
        for below in part.parts:
            yield from elements_of(below)
