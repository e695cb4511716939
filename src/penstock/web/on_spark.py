"""A run on Spark as the app view shows it: what its micro-batches have told so far."""

from __future__ import annotations

from collections.abc import Callable

from penstock.spark.program import Program
from penstock.spark.progress import Figures
from penstock.web.embedded import written_windows
from penstock.web.seen import QuerySeen, Seen


def look_at_figures(figures: Figures, program: Program, buckets: int | None) -> Callable[[], Seen]:
    """`figures` are changed by the thread that runs the query; each number is read as it is."""
    queries = tuple(
        QuerySeen(
            query.name,
            query.text,
            tuple(dict.fromkeys(written_windows(program.nodes[query.name]))),
            None,
            "in buckets",
            0,
            query.into or "standard output",
        )
        for query in program.queries
    )

    def look() -> Seen:
        return Seen(
            engine="on Spark",
            state="running",
            program=program.parsed,
            events=figures.events,
            results=figures.results,
            late=figures.late,
            rejected=figures.rejected,
            watermark=figures.last_time,
            streams=(),
            queries=queries,
            memory=None,
            stores=(),
            rejects=(),
            figures={
                "micro-batches": f"{figures.batches:,}",
                "last micro-batch": f"{figures.last_seconds:.2f} s, {figures.last_events:,} events",
                "slowest micro-batch": f"{figures.slowest_seconds:.2f} s",
                "events a second, last micro-batch": f"{figures.rate:,.0f}",
                "events a second in micro-batches": f"{figures.mean_rate:,.0f}",
                "committed state": f"{figures.state_bytes / 1e6:,.2f} MB",
                "read back from segments": f"{figures.bytes_read / 1e6:,.2f} MB",
                "buckets": "as many as shuffle partitions" if buckets is None else f"{buckets:,}",
            },
        )

    return look
