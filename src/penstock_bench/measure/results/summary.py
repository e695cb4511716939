"""The summary of a run: `RUN/summary.json`, made from what is in the run's directory, however the run ended.

Times are nanoseconds, rates are per second. `docs/measures.md` describes every field.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock_bench.measure.results.adaptivity import adaptivity
from penstock_bench.measure.results.measures import Measures
from penstock_bench.measure.results.usage import usage_summary

KILLED = "the run has no end in its directory: it was killed, or it still runs"


def summarise(run_dir: Path) -> dict[str, Any]:
    """Reads the logs, writes the summary and returns it."""
    measures = Measures(run_dir)
    summary = summary_of(measures)
    unfinished = run_dir / "summary.json.new"
    unfinished.write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(unfinished, measures.logs.run.summary)
    return summary


def summary_of(measures: Measures) -> dict[str, Any]:
    setup = measures.setup
    throughput = measures.throughput
    burst = adaptivity(measures)
    state = measures.happened.state
    summary: dict[str, Any] = {
        "setup": setup.name,
        "adapter": setup.system.adapter,
        "parameters": dict(setup.parameters),
        "state": state or "stopped",
        "throughput": {
            "seconds": throughput.seconds,
            "events": sum(flow.count for flow in throughput.streams.values()),
            "events_per_second": throughput.events_per_second,
            "by_stream": {name: flow.rate for name, flow in throughput.streams.items()},
            "results": sum(flow.count for flow in throughput.queries.values()),
            "results_per_second": throughput.results_per_second,
            "by_query": {name: flow.rate for name, flow in throughput.queries.items()},
        },
        "latency": {query: figures.to_json() for query, figures in measures.latency.items()},
        "latency_overall": measures.latency_overall.to_json(),
        "latency_by_phase": {
            phase: {query: figures.to_json() for query, figures in of.items()}
            for phase, of in measures.latency_by_phase.items()
        },
        "latency_mode": measures.latency_mode.value,
        "schedule": vars(measures.schedule),
        "resources": usage_summary(measures),
        "adaptivity": {query: figures.to_json() for query, figures in burst.items()} if burst else None,
        "machine": measures.logs.facts.get("machine"),
    }
    notes = [*measures.happened.notes, *measures.notes]
    # Notes come last: reading the logs adds to them.
    summary["notes"] = notes if state is not None else [*notes, KILLED]
    return summary


def number_at(summary: Mapping[str, Any], path: Sequence[str]) -> float | None:
    """A number of a summary, if it has one at that place.

    >>> number_at({"throughput": {"events": 3}}, ("throughput", "events")), number_at({}, ("throughput", "events"))
    (3.0, None)
    """
    found: Any = summary
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return float(found) if isinstance(found, (int, float)) else None
