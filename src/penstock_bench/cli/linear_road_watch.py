"""`penstock linear-road watch`: the application over a file at the pace of a clock, with its roads on a page."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from penstock_bench.cli.kit import check_installed, say

_LOOKS_A_SECOND = 2


def watch(
    file: Annotated[Path, typer.Argument(metavar="INPUT", help="The input: 15 integers to a row, in order of time.")],
    tolls: Annotated[Path, typer.Option(metavar="FILE", help="The ten-week tolls: vid, day, xway, toll.")],
    speed: Annotated[
        float, typer.Option(metavar="X", min=0.1, help="Seconds of traffic in a second; 1 is the road's own pace.")
    ] = 60,
    memory: Annotated[str, typer.Option(help="Memory for all state.")] = "1GB",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to serve at; 0 is any that is free.")] = 8080,
) -> None:
    """Run the application over a file and show the roads on a page in the browser, until Ctrl-C.

    Segments are coloured by their speed; tolls and accidents are shown as the application finds them."""
    check_installed("penstock linear-road watch")
    import weakref

    from penstock import App
    from penstock.web.kit import Serving, Site, Watched, look_at, take_address
    from penstock_bench.web.pages.roads import roads_page
    from penstock_bench.workloads.linear_road.application import STREAM, answers, program
    from penstock_bench.workloads.linear_road.roads import QUERY, RoadsNow

    address = take_address("127.0.0.1", port, None)
    now = RoadsNow()
    with App(f"{program(tolls)}\n{QUERY};", memory=memory) as app:
        watched = Watched(file.name, look_at(weakref.ref(app))).start()
        site = Site({file.name: watched})
        site.pages = [roads_page(site, file.name, now)]
        Serving(site, address).beside()
        say(f"The roads are at {address.url_of('roads')}\nCtrl-C ends it.", quiet=False)
        for part in _paced(file, speed):
            app.push(STREAM, part)
            for _ in answers(app):
                pass
            now.take(app.results("roads"))
        say("The input has ended; the pages stay. Ctrl-C ends them.", quiet=False)
        threading.Event().wait()


def _paced(file: Path, speed: float) -> Iterator[object]:
    """The rows of the file, each when its second has come."""
    import numpy as np

    from penstock_bench.workloads.linear_road.reports import report_batches

    began, first = time.monotonic(), None
    for batch in report_batches(file):
        times = batch.column("time").to_numpy()
        first = times[0] if first is None else first
        step = ((times - first) * _LOOKS_A_SECOND / speed).astype(np.int64)
        starts = np.flatnonzero(np.diff(step, prepend=-1))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(times)], strict=True):
            due = began + float(times[start] - first) / speed
            time.sleep(max(due - time.monotonic(), 0.0))
            yield batch.slice(start, stop - start)
