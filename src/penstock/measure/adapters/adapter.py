"""The interface of all adapters, and where they are found.

A package offers an adapter by an entry point of the group `penstock.adapters`: a class derived from `Adapter`, or from
`Hosted` (see `hosted`) when the framework shall run the system in a process of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import ClassVar

import pyarrow as pa

from penstock.errors import InputError
from penstock.measure.setup.generators import Scalar
from penstock.measure.setup.model import Setup


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
    the run: what the processes must agree on (a port, a topic), chosen once by `begin`."""

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

    @abstractmethod
    def check(self) -> None:
        """Raises InputError that says what to install, or what is wrong, if a run cannot begin."""

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
            found: type[Adapter] = point.load()
            return found
    raise InputError(f"system.adapter = '{name}': unknown; there are {', '.join(adapters())}")
