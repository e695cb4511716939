"""What a setup that comes from a page may name of this machine, and of others.

A user of the pages can run queries; that is their purpose. A setup from a page must not import a module, start a
program, read or write a file outside the pages' directories, or speak to another machine. That holds for its fields and
for the texts of its queries. Setups on the command line have none of these limits.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import InputError, QueryError
from penstock.instruments import Outside, outside
from penstock_bench.measure.adapters.adapter import adapter_class, adapters
from penstock_bench.measure.adapters.embedded import Embedded, program
from penstock_bench.measure.setup.generators import Scalar
from penstock_bench.measure.setup.model import Setup
from penstock_bench.measure.setup.parameters import put_in

_PROGRAMS = ("python",)
"""Options of adapters that name a program to run."""

_LOOPBACK = r"(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?"
_NEAR = {"master": r"local(?:\[[\d*, ]+\])?", "bootstrap": rf"own|{_LOOPBACK}(?:,{_LOOPBACK})*"}
"""Options of adapters that name a machine to speak to, and what is this machine."""

_WORD = re.compile(r"[\w .:+-]*")
"""A parameter that, put into a text, is a name or a number and adds no clause to it."""

_COMMAND = "that is for the command line: `penstock bench run`"


class Limits:
    def __init__(
        self,
        directories: Sequence[Path] = (),
        classes: Sequence[str] = (),
        texts: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`directories` are those whose files may be read, `classes` adapters that are not installed, `texts` those of
        the setup files that can be chosen."""
        self._directories = tuple(directory.resolve() for directory in directories)
        self._classes = frozenset(classes)
        self._texts = texts

    def refusals(self, setup: Setup) -> list[str]:
        """Each begins with the field that it is about."""
        return self._of_the_system(setup) or [*self._of_files(setup), *self._of_queries(setup)]

    def _of_the_system(self, setup: Setup) -> list[str]:
        system = setup.system
        if system.adapter not in adapters() and system.adapter not in self._classes:
            return [
                f"system.adapter: '{system.adapter}' is not installed; `penstock ui --adapter {system.adapter}` allows"
                " a class of your own"
            ]
        programs = [f"system.options.{n}: names a program to run; {_COMMAND}" for n in _PROGRAMS if n in system.options]
        return programs + [
            f"system.options.{name}: names another machine; {_COMMAND}"
            for name, near in _NEAR.items()
            if name in system.options and re.fullmatch(near, str(system.options[name])) is None
        ]

    def _of_files(self, setup: Setup) -> list[str]:
        return [
            f"drivers[{number}].replay.file: {driver.replay.file} is outside of the directories of these pages"
            for number, driver in enumerate(setup.drivers)
            if driver.replay is not None and not self._has(driver.replay.file)
        ]

    def _has(self, file: Path) -> bool:
        return any(file.resolve().is_relative_to(inside) for inside in self._directories)

    def _of_queries(self, setup: Setup) -> list[str]:
        try:
            dialect = adapter_class(setup.system.adapter).dialect
            if dialect != Embedded.dialect:
                return self._of_others(setup, dialect)
            named = outside(program(setup, dict.fromkeys(setup.tables, "")))
        except InputError as error:
            return [str(error)]
        except QueryError as error:
            return [f"queries: {error}"]
        return [
            f"{_query_that_says(setup, one)}: {one.kind} {one.name} {why}"
            for one in named
            if (why := self._against(one)) is not None
        ]

    def _against(self, named: Outside) -> str | None:
        if named.kind == "function":
            return f"calls an address; {_COMMAND}"
        if named.kind != "table":
            return f"has a place of its own; on these pages drivers send events and sinks take results, {_COMMAND}"
        plain = re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", named.uri) is None and not set(named.uri) & set("*?[\0")
        if not plain:
            return f"is read from elsewhere than a file; {_COMMAND}"
        return None if self._has(Path(named.uri)) else "is read from outside of the directories of these pages"

    def _of_others(self, setup: Setup, dialect: str) -> list[str]:
        """The texts of other systems can read files and call programs in ways that are not known here. So they are run
        as they are in setup files, with the page's parameters as far as these are words, and not otherwise."""
        refused = [
            f"parameters.{name}: is no word, and would change the text of another system; {_COMMAND}"
            for name, value in setup.parameters.items()
            if isinstance(value, str) and _WORD.fullmatch(value) is None
        ]
        known = {text for file in self._texts() for text in _texts_of(file, dialect, setup.parameters)}
        return refused + [
            f"queries.{name}.text.{dialect}: differs from the setup files of these pages, and another system's text can"
            f" read any file; {_COMMAND}"
            for name, query in setup.queries.items()
            if dialect in query.text and query.text[dialect] not in known
        ]


def _texts_of(file: str, dialect: str, parameters: Mapping[str, Scalar]) -> list[str]:
    """The texts of a setup in a dialect, with these parameters; none where they do not fit."""
    try:
        queries: Any = put_in(tomllib.loads(file).get("queries", {}), parameters, "")
        return [str(query["text"][dialect]) for query in queries.values() if dialect in query.get("text", {})]
    except (InputError, ValueError, RecursionError, AttributeError, TypeError):  # it is no setup of this kind
        return []


def _query_that_says(setup: Setup, named: Outside) -> str:
    """The field of the query where it stands, as well as that can be seen."""
    for name, query in setup.queries.items():
        if named.name in query.text.get(Embedded.dialect, ""):
            return f"queries.{name}.text.{Embedded.dialect}"
    return "queries"
