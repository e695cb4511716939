"""The names of streams and queries as people write them."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import InputError
from penstock.lang.places import did_you_mean


def find(name: str, what: str, known: Iterable[str]) -> str:
    """The name as it was declared, whatever its case."""
    known = tuple(known)
    found = next((k for k in known if k.lower() == name.lower()), None)
    if found is None:
        hint = did_you_mean(name, known)
        raise InputError(
            f"there is no {what} {name}; there are: {', '.join(known) or 'none'}"
            + (f"\n  hint: {hint}" if hint else "")
        )
    return found
