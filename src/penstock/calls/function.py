"""What the CALL of a rule reaches: a Python function that was registered, or one outside (`http`).

A function returns once it has taken the call for good, and raises `CallFailed` if it gives up. It may be called again
with the same key after a restart, so a function that must not do a thing twice remembers the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

Pause = Callable[[float], bool]
"""Waits so many seconds before the next try; False if there is no time for another one."""


class CallFailed(Exception):
    """Why a call was given up; the call and this go to the rejects."""


class Function(Protocol):
    def check(self) -> None:
        """Raises `QueryError` if it cannot be called here; asked before the first event."""

    def call(self, arguments: Mapping[str, Any], key: str, pause: Pause) -> None: ...

    def close(self) -> None: ...


class PythonFunction:
    """Called with the arguments in their order and `idempotency_key`. What it raises gives the call up."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def check(self) -> None:
        pass

    def call(self, arguments: Mapping[str, Any], key: str, pause: Pause) -> None:
        try:
            self._function(*arguments.values(), idempotency_key=key)
        except Exception as error:
            raise CallFailed(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        pass
