"""Rows that cannot be computed or read."""

from collections.abc import Callable
from typing import Any

Reject = Callable[[str, dict[str, Any]], None]
"""Where such a row goes: the reason and the row."""
