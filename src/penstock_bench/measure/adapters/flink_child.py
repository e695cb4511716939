"""Runs in Flink's own environment, where Penstock is not: plans the queries, starts the job and says how it goes.

A line of JSON on stdin says what to do; lines of JSON on stdout say how it goes: `planned` with the columns of each
query, `done` at the end, or `failed`. Events and results do not pass here: the connector in Flink's Java machine has
sockets of its own to the host.
"""

import json
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any


def say(**message: Any) -> None:
    os.write(SAYS, (json.dumps(message) + "\n").encode())


def connector(source: str, directory: Path) -> Path:
    """The connector as a jar, compiled by the Janino that Flink carries: no JDK is needed."""
    from pyflink.java_gateway import get_gateway

    jvm = get_gateway().jvm
    written = directory / "penstock" / "peers" / "FlinkConnector.java"
    written.parent.mkdir(parents=True)
    written.write_text(source, encoding="utf-8")
    classes = directory / "classes"
    classes.mkdir()
    compiler = jvm.org.codehaus.janino.Compiler()
    compiler.setDestinationDirectory(jvm.java.io.File(str(classes)), False)
    compiler.setTargetVersion(8)
    files = get_gateway().new_array(jvm.java.io.File, 1)
    files[0] = jvm.java.io.File(str(written))
    compiler.compile(files)
    jar = directory / "connector.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for compiled in classes.rglob("*.class"):
            archive.write(compiled, str(compiled.relative_to(classes)))
        archive.writestr(
            "META-INF/services/org.apache.flink.table.factories.Factory", "penstock.peers.FlinkConnector\n"
        )
    return jar


def main(job: dict[str, Any], directory: Path) -> None:
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableDescriptor, TableEnvironment

    jar = connector(job["connector"], directory)
    configuration = Configuration()
    for key, value in {**job["settings"], "pipeline.jars": jar.as_uri()}.items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    environment = TableEnvironment.create(settings)
    for statement in job["tables"]:
        environment.execute_sql(statement)
    together = environment.create_statement_set()
    columns = {}
    for name, query in job["queries"].items():
        try:
            table = environment.sql_query(query["text"])
            schema = table.get_schema()
            columns[name] = [
                [field, str(schema.get_field_data_type(i))] for i, field in enumerate(schema.get_field_names())
            ]
            sink = TableDescriptor.for_connector("penstock")
            for key, value in query["line"].items():
                sink = sink.option(key, value)
            together.add_insert(sink.build(), table)
        except Exception as error:
            say(**{"is": "failed", "query": name, "error": message_of(error)})
            return
    try:
        plan = together.explain().split("== Optimized Execution Plan ==")[-1]
    except Exception as error:
        say(**{"is": "failed", "query": None, "error": message_of(error)})
        return
    scans = {
        name: plan.count(f"default_database, {name}]") + plan.count(f"default_database, {name},")
        for name in job["streams"]
    }
    say(**{"is": "planned", "columns": columns, "scans": scans})
    together.execute().wait()
    say(**{"is": "done"})


def message_of(error: BaseException) -> str:
    """What Flink says of a failure, and of what caused it, without the places in its code."""
    java = getattr(error, "java_exception", None)
    if java is None:
        return str(error).split("\n\tat ")[0]
    said: list[str] = []
    while java is not None:
        text = java.getMessage()
        if text and not any(text in earlier for earlier in said):
            said.append(str(text))
        java = java.getCause()
    return "; ".join(said[-2:]) or str(error)


if __name__ == "__main__":
    # What libraries print must not come between the lines of JSON.
    SAYS = os.dup(1)
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(prefix="penstock-flink-") as made:
        try:
            main(json.loads(sys.stdin.readline()), Path(made))
        except Exception as error:
            say(**{"is": "failed", "query": None, "error": message_of(error)})
