"""Events looked up in a table that stays in PostgreSQL: a batch in one question against a question for each event.

`batched` is the engine's way, `CREATE TABLE ... WITH ('mode' = 'lookup')` without a cache that could help: every
round asks for keys that were not asked for before, or the cache has been emptied. `single` asks the same server for one
key at a time, by a prepared statement over the same connection, which is the least that a look-up per event takes.
`cached` asks again for keys that are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import App
from penstock_bench.benches.report import Report
from penstock_bench.benches.sizes import Size
from penstock_bench.benches.timing import Timing, in_turns, rate, ratio, timed
from penstock_bench.measure.postgres import PostgresServer


@dataclass(frozen=True)
class _Plan:
    rows: tuple[int, ...]
    batch: int
    singles: int
    rounds: int


_PLANS = {
    Size.TINY: _Plan((100,), 64, 16, 1),
    Size.QUICK: _Plan((1000, 100_000, 1_000_000), 1 << 17, 1000, 5),
    Size.FULL: _Plan((1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000), 1 << 17, 4000, 9),
}


def measure(size: Size, report: Report) -> dict[str, Any]:
    plan = _PLANS[size]
    found: dict[int, dict[str, float]] = {}
    with PostgresServer() as server:
        for rows in plan.rows:
            report.step(f"{rows:,} rows")
            found[rows] = _measure(plan, rows, server.uri)
    report.table(
        ("rows", "single, events/s", "batched, events/s", "batched to single", "cached, events/s"),
        [(n, f["single"], f["batched"], f["batched_to_single"], f["cached"]) for n, f in found.items()],
    )
    return {
        "batched_to_single": min(figures["batched_to_single"] for figures in found.values()),
        "rows": max(found),
        "batch_rows": plan.batch,
        "rounds": plan.rounds,
        "by_rows": {str(rows): figures for rows, figures in found.items()},
    }


def _measure(plan: _Plan, rows: int, uri: str) -> dict[str, float]:
    import psycopg

    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS items")
        # Without a log, and with the key made afterwards, a hundred million rows are there in minutes.
        connection.execute("CREATE UNLOGGED TABLE items (id INTEGER, price DOUBLE PRECISION, stock INTEGER)")
        connection.execute(
            "INSERT INTO items SELECT i, i * 0.5, i %% 100 FROM generate_series(0, %s - 1) AS i", (rows,)
        )
        connection.execute("ALTER TABLE items ADD PRIMARY KEY (id)")
        connection.execute("VACUUM ANALYZE items")
        random = np.random.default_rng(rows)
        app = App(
            f"""
            CREATE STREAM s (t TIMESTAMP, id INT, EVENT TIME t);
            CREATE TABLE items (id INT PRIMARY KEY, price DOUBLE, stock INT)
                FROM '{uri}' WITH ('mode' = 'lookup', 'refresh' = '1 HOUR', 'cache' = '{2 * rows + plan.batch}');
            SELECT s.id, price, stock FROM s, items WHERE s.id = items.id;
            """
        )
        app.subscribe("q1", lambda results: None)
        clock = [0]

        def push(keys: np.ndarray[Any, Any]) -> None:
            times = pa.array(np.arange(clock[0], clock[0] + len(keys))).view(pa.timestamp("us", tz="UTC"))
            clock[0] += len(keys)
            app.push("s", pa.RecordBatch.from_arrays([times, pa.array(keys, pa.int32())], names=["t", "id"]))

        def batched() -> Timing:
            keys = random.integers(0, rows, plan.batch)
            app.refresh("items")
            return timed(len(keys), lambda: push(keys))

        def cached() -> Timing:
            keys = random.integers(0, rows, plan.batch)
            push(keys)
            return timed(len(keys), lambda: push(keys))

        def single() -> Timing:
            keys = random.integers(0, rows, plan.singles).tolist()

            def ask() -> None:
                with connection.cursor() as cursor:
                    for key in keys:
                        cursor.execute("SELECT price, stock FROM items WHERE id = %s", (key,), prepare=True).fetchall()

            return timed(len(keys), ask)

        variants = {"single": single, "batched": batched, "cached": cached}
        in_turns(variants, 1)
        taken = in_turns(variants, plan.rounds)
        app.close()
    return {
        **{name: rate(timings) for name, timings in taken.items()},
        "batched_to_single": ratio(taken["batched"], taken["single"]),
    }
