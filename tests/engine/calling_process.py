"""A process that pushes events whose rules call a server, and takes checkpoints, to be killed at any moment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import penstock as ps

BATCH = 20


def program(url: str) -> str:
    return f"""
    CREATE STREAM s (t TIMESTAMP, k STRING, v BIGINT, EVENT TIME t LATENESS 20 MILLISECONDS);
    CREATE FUNCTION note AS HTTP POST '{url}' WITH ('retries' = '100', 'timeout' = '5 SECONDS');
    CREATE RULE high WHEN SELECT k, SUM(v) AS total FROM s [RANGE 10 MILLISECONDS] GROUP BY k HAVING SUM(v) > 1500
        THEN CALL note(k, total), EMIT INTO alarms;
    """


def events(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"t": 1000 * (i + i * 7 % 17), "k": f"k{i * i % 5}", "v": i * 31 % 1009} for i in range(start, stop)]


def main(directory: Path, total: int, url: str) -> None:
    app = ps.App(program(url), checkpoint=directory / "app", memory="2MB")
    offset = int((app.restored or {"offset": 0})["offset"])
    print("ready", flush=True)
    while offset < total:
        app.push("s", events(offset, min(offset + BATCH, total)))
        offset += BATCH
        if offset % (5 * BATCH) == 0:
            app.checkpoint({"offset": offset})
    app.finish()
    app.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
