"""The interface of all adapters, and where they are found.

A package offers an adapter by an entry point of the group `penstock.adapters`: a class derived from `Adapter`, or from
`Hosted` (see `hosted`) when the framework shall run the system in a process of its own. A setup may also name the class
itself: `adapter = "package.module:Class"`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from penstock.errors import InputError
from penstock_bench.measure.setup.generators import Scalar
from penstock_bench.measure.setup.model import Setup


@dataclass(frozen=True)
class Results:
    """A batch of results of one query as a sink gets it."""

    query: str
    rows: pa.RecordBatch
    emitted_ns: int
    """When the adapter got it from the system, by the run's clock."""


class Sender(ABC):
    """A driver's way to the system."""

    @abstractmethod
    def send(self, stream: str, batch: pa.RecordBatch) -> None:
        """Returns when the system, or what stands before it, has taken the batch; may block."""

    @abstractmethod
    def close(self) -> None:
        """The driver has no more events."""


class Receiver(ABC):
    """A sink's way from the system."""

    @abstractmethod
    def __iter__(self) -> Iterator[Results | None]:
        """Results as they come; None at least every 0.2 s when there are none, so that a sink can look around. Ends
        when the system has said its last."""

    @abstractmethod
    def close(self) -> None: ...


class Adapter(ABC):
    """One for each kind of system. It is made anew in every process that needs it, from the setup and the `place` of
    the run: what the processes must agree on (a port, a topic), chosen once by `begin`.

    In the process of the system under test (the host) `begin`, `finish` and `end` are called, in this order, by one
    thread; in a driver `sender`, in a sink `receiver`.
    """

    dialect: ClassVar[str]
    """Which text of each query it runs: `penstock`, `spark`, `flink`, `esper`…"""

    options: ClassVar[Mapping[str, str]] = {}
    """The options it knows, each with what it means; others are refused."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        unknown = sorted(set(setup.system.options) - set(self.options))
        if unknown:
            known = ", ".join(self.options) or "none"
            raise InputError(
                f"system.options.{unknown[0]}: unknown to adapter '{setup.system.adapter}'; it knows {known}"
            )

    def option(self, name: str, default: Scalar) -> Scalar:
        return self.setup.system.options.get(name, default)

    def whole_option(self, name: str, default: int) -> int:
        """One that must be a whole number above 0."""
        given = self.option(name, default)
        if isinstance(given, int) and not isinstance(given, bool) and given > 0:
            return given
        raise InputError(f"system.options.{name} = '{given}': write a whole number above 0")

    @abstractmethod
    def check(self) -> None:
        """Raises InputError that says what to install, or what is wrong, if a run cannot begin."""

    @abstractmethod
    def begin(self, run: Path) -> Mapping[str, Scalar]:
        """Starts what the run needs and returns its place. `run` is the directory of the run."""

    @abstractmethod
    def finish(self) -> None:
        """All drivers have closed: returns when the system has made its last result. Sinks are told then; one whose
        receiver does not end by itself ends when nothing comes any more."""

    @abstractmethod
    def end(self) -> None:
        """Stops what `begin` has started, whatever state it is in; also called when `begin` failed."""

    def progress(self) -> dict[str, Any]:
        """What the host tells every 0.25 s between `begin` and `end`: `accepted` (events per stream), `status` (for
        people). It raises what has gone wrong since; while `finish` is at work it is called by another thread."""
        return {}

    @abstractmethod
    def sender(self, place: Mapping[str, Scalar], driver: str) -> Sender: ...

    @abstractmethod
    def receiver(self, place: Mapping[str, Scalar], sink: str) -> Receiver: ...


def adapters() -> dict[str, str]:
    """The names of all adapters that are installed, and where each is."""
    return {point.name: point.value for point in sorted(entry_points(group="penstock.adapters"))}


def adapter_class(name: str) -> type[Adapter]:
    """The adapter of that name; it is not yet known whether what it needs is there (see `Adapter.check`)."""
    for point in entry_points(group="penstock.adapters"):
        if point.name == name:
            return _adapter(name, point)
    if ":" in name:
        return _adapter(name, EntryPoint(name, name, "penstock.adapters"))
    raise InputError(
        f"system.adapter = '{name}': unknown; there are {', '.join(adapters())}, or name a class:"
        " 'package.module:Class'"
    )


def _adapter(name: str, point: EntryPoint) -> type[Adapter]:
    try:
        found = point.load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"system.adapter = '{name}': {point.value} cannot be loaded: {error}") from None
    if not (isinstance(found, type) and issubclass(found, Adapter)):
        raise InputError(f"system.adapter = '{name}': {point.value} is not derived from Adapter")
    return found
