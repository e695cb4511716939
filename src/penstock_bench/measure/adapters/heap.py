"""The memory of a Java machine, as an option of a setup says it."""

from __future__ import annotations

import re

from penstock.errors import InputError


def heap_size(given: object) -> str:
    """
    >>> heap_size("512m")
    '512m'
    """
    if isinstance(given, str) and re.fullmatch(r"[1-9]\d*[kmgKMG]", given):
        return given
    raise InputError(f"system.options.heap = '{given}': write a size such as 512m or 4g")
