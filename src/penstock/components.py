"""What saved state is made of: components, each with a name, a version of its own and readers for older versions.

A class with `snapshot` and `restore` is declared a component right above them:

    @component("Emitter")                            version 1
    @component("Emitter", 2, _with_times)            version 2; `_with_times` makes it from version 1
    @component("Emitter", 3, _with_times, _sorted)   version 3; `_sorted` makes it from version 2

A new version is needed whenever the keys, the types or the meaning of what `snapshot` returns change. A test compares
their shapes with those that are on record.

Invariants:
1. What `snapshot` returns has the name and the version of its component. The format of state writes both beside it.
2. `restore` is given the shape of today. What is older goes through the readers, one for each step, the oldest first.
3. A newer version, or another component, ends in `CheckpointError` before anything is restored.
4. A plain dictionary has the shape of today: it was made by this code. State of format 7 names no components; all of
   it is version 1.

Why: docs/decisions/versions-of-components.md
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.errors import CheckpointError

Reader = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes of a snapshot of one version that of the next."""

_Class = TypeVar("_Class", bound=type)
_declared: dict[str, Component] = {}
_DECLARED = "_component"


class Saved(dict[str, Any]):
    """The snapshot of a component. Without a name it was read from format 7 and may be that of any component."""

    def __init__(self, content: dict[str, Any], component: str, version: int) -> None:
        super().__init__(content)
        self.component = component
        self.version = version
        self.changes: object = getattr(content, "changes", None)
        """What says where its arrays by slot change (`store.changes`), if it was made of a snapshot that has such."""


@dataclass(frozen=True)
class Component:
    """
    >>> swapped = Component("Pair", 2, (lambda saved: {"right": saved["left"], "left": saved["right"]},))
    >>> swapped.read(Saved({"left": 1, "right": 2}, "Pair", 1))
    {'right': 1, 'left': 2}
    >>> swapped.read(Saved({}, "Pair", 3))
    Traceback (most recent call last):
    ...
    penstock.errors.CheckpointError: the saved state has Pair in version 3, this Penstock reads it up to version 2; \
use the version of Penstock that wrote it or a later one
    """

    name: str
    version: int = 1
    readers: tuple[Reader, ...] = ()

    def __post_init__(self) -> None:
        if len(self.readers) != self.version - 1:
            raise TypeError(f"{self.name} has version {self.version} and {len(self.readers)} readers of older ones")

    def saved(self, content: dict[str, Any]) -> Saved:
        """What is written with the name and the version of today."""
        return Saved(content, self.name, self.version)

    def read(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """The snapshot in the shape of today."""
        if not isinstance(snapshot, Saved):
            return snapshot
        if snapshot.component not in ("", self.name):
            raise CheckpointError(
                f"the saved state has {snapshot.component} where {self.name} is expected: it was made with other "
                "settings or by another version of Penstock; go on with those, or use a new checkpoint directory"
            )
        if snapshot.version > self.version:
            raise CheckpointError(
                f"the saved state has {self.name} in version {snapshot.version}, this Penstock reads it up to version "
                f"{self.version}; use the version of Penstock that wrote it or a later one"
            )
        read: dict[str, Any] = snapshot
        for reader in self.readers[snapshot.version - 1 :]:
            read = reader(read)
        return read


def component(name: str, version: int = 1, *readers: Reader) -> Callable[[_Class], _Class]:
    """Declares a class: its `snapshot` says what it is, its `restore` reads all versions up to this one."""
    declared = Component(name, version, readers)

    def declare(cls: _Class) -> _Class:
        if name in _declared:
            raise TypeError(f"there are two components with the name {name}")
        _declared[name] = declared
        setattr(cls, _DECLARED, declared)
        for method, around in (("snapshot", _saving), ("restore", _reading)):
            if method in vars(cls):
                setattr(cls, method, around(vars(cls)[method], declared))
        return cls

    return declare


def component_of(cls: type) -> Component:
    """What a class is declared as."""
    found = getattr(cls, _DECLARED)
    assert isinstance(found, Component)
    return found


def name_of(snapshot: dict[str, Any]) -> str:
    """The component that a snapshot is of; nothing if it is not known."""
    return snapshot.component if isinstance(snapshot, Saved) else ""


def is_of(cls: type, snapshot: dict[str, Any], known_by: str) -> bool:
    """Whether it is the snapshot of a class; without a name the class is known by a key of version 1."""
    return name_of(snapshot) == component_of(cls).name if name_of(snapshot) else known_by in snapshot


def read_as(cls: type, snapshot: dict[str, Any]) -> dict[str, Any]:
    """The snapshot of a class in the shape of today, for code that looks into it without restoring it."""
    return component_of(cls).read(snapshot)


def read_by(name: str, snapshot: dict[str, Any]) -> dict[str, Any]:
    """The same for a component by its name, whose module has been loaded."""
    return _declared[name].read(snapshot)


def _saving(method: Callable[..., dict[str, Any]], declared: Component) -> Callable[..., dict[str, Any]]:
    """A subclass that is a component itself adds to what its base class returns, and names the whole."""

    @functools.wraps(method)
    def snapshot(self: object, *rest: Any) -> dict[str, Any]:
        content = method(self, *rest)
        return declared.saved(content) if component_of(type(self)) is declared else content

    return snapshot


def _reading(method: Callable[..., None], declared: Component) -> Callable[..., None]:
    @functools.wraps(method)
    def restore(self: object, *given: Any, **named: Any) -> None:
        if given and component_of(type(self)) is declared:
            given = (declared.read(given[0]), *given[1:])
        method(self, *given, **named)

    return restore
