"""A process that pushes, writes results to a file and takes checkpoints, to be killed at any moment.

The file is a line per result: query, number, values. After a restart it is cut back to what the checkpoint says was
written, as a sink does, and the events are pushed again from the checkpoint's position on.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.operators import shared_window
from penstock.operators.paged import shards
from penstock.store import differences

differences.SMALL = 0  # what this program saves is small, and is to be written as changes all the same

PROGRAM = """
    CREATE STREAM s (t TIMESTAMP, k STRING, v BIGINT, x DOUBLE, EVENT TIME t LATENESS 20 MILLISECONDS);
    CREATE QUERY per_event AS SELECT k, SUM(x) AS total, MAX(v) AS most FROM s [RANGE 50 MILLISECONDS] GROUP BY k;
    INSERT INTO slides SELECT k, COUNT(*) AS n, MEDIAN(v) AS mid
        FROM s [RANGE 100 MILLISECONDS SLIDE 10 MILLISECONDS] GROUP BY k;
    CREATE QUERY groups AS SELECT v, SUM(x) AS total, COUNT(*) AS n FROM s [RANGE 900 MILLISECONDS] GROUP BY v;
    CREATE QUERY chained AS SELECT SUM(n) AS n FROM slides [RANGE 50 MILLISECONDS SLIDE 50 MILLISECONDS];
"""
BATCH = 40


def events(start: int, stop: int) -> list[dict[str, Any]]:
    """A millisecond apart, out of order by up to 16."""
    return [
        {"t": 1000 * (i + i * 7 % 17), "k": f"k{i * i % 5}", "v": i * 31 % 1009, "x": 1.0 / (i % 97 + 1)}
        for i in range(start, stop)
    ]


def page_groups() -> None:
    """Groups go to shards as soon as there are some, and shards are small."""
    shared_window._LEAST_FREE, shared_window._MANY_GROUPS, shared_window._LEAST_GROUP_BYTES = 0, 1 << 60, 0
    shards._BITS, shards._SHARD = 1, 1 << 8


def main(directory: Path, total: int) -> None:
    with ps.App(PROGRAM, checkpoint=directory / "app", memory="1MB", block_size=1024) as app:
        saved = app.restored or {"offset": 0, "written": 0}
        output = os.open(directory / "results", os.O_RDWR | os.O_CREAT)
        os.ftruncate(output, saved["written"])
        os.lseek(output, 0, os.SEEK_END)

        def write(batch: pa.RecordBatch) -> None:
            query = batch.schema.metadata[b"penstock.query"].decode()
            number = int(batch.schema.metadata[b"penstock.sequence"])
            for i, row in enumerate(batch.to_pylist()):
                line = json.dumps([query, number + i, {k: str(v) for k, v in row.items()}])
                os.write(output, line.encode() + b"\n")

        for query in app.queries:
            app.subscribe(query, write)
        print("ready", flush=True)
        offset = int(saved["offset"])
        while offset < total:
            upto = min(offset + BATCH, total)
            app.push("s", events(offset, upto))
            offset = upto
            if offset % (3 * BATCH) == 0:
                os.fsync(output)
                saved = {"offset": offset, "written": os.lseek(output, 0, os.SEEK_CUR)}
                app.checkpoint(saved, wait=offset % (6 * BATCH) == 0)
        app.finish()
        os.fsync(output)
        (directory / "done").touch()


if __name__ == "__main__":
    if "--page-groups" in sys.argv:
        page_groups()
    main(Path(sys.argv[1]), int(sys.argv[2]))
