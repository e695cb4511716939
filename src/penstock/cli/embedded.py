"""`penstock run --engine embedded`: an application in this process, with sources, sinks and checkpoints of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import penstock.generators  # noqa: F401  makes the generators known
from penstock.cli.interrupt import Interrupt
from penstock.cli.pages import Pages
from penstock.cli.progress import ProgressDisplay
from penstock.connect import runner
from penstock.connect.opening import MAX_AHEAD, is_live
from penstock.connect.wiring import outputs
from penstock.engine.app import App
from penstock.errors import CheckpointError
from penstock.lang import parse

CHECKPOINT_SECONDS = 10.0


def run_embedded(
    text: str,
    *,
    memory: str,
    checkpoint: Path | None,
    every: float | None,
    block_size: str,
    compression: str | None,
    rejects: Path,
    batch: int,
    follow: bool,
    limit: int | None,
    quiet: bool,
    pages: Pages | None = None,
) -> bool:
    """Runs until the input ends; False if it was stopped before."""
    if checkpoint is not None and (checkpoint / "offsets").is_dir():
        raise CheckpointError(
            f"{checkpoint} is the checkpoint of a run on Spark; leave out --engine embedded, or choose another one"
        )
    program = parse(text)
    live = any(is_live(stream, follow) for stream in program.streams)
    with App(
        program,
        memory=memory,
        checkpoint=checkpoint,
        block_size=block_size,
        compression=compression,
        max_ahead=MAX_AHEAD if live else None,
    ) as running:
        if pages is not None:
            pages.show_app(running)
        crossing = sys.stdout.isatty() and any(output.printed for output in outputs(running.program))
        display = ProgressDisplay(rejects, quiet=quiet, live=not crossing)
        with Interrupt() as interrupt, display:
            outcome = runner.run(
                running,
                checkpoint_every=None if checkpoint is None else CHECKPOINT_SECONDS if every is None else every,
                commit_every=every if checkpoint is None else None,
                follow=follow,
                batch_rows=batch,
                limit=limit,
                reject_file=rejects,
                on_progress=display.update,
                stop=lambda: interrupt.asked,
            )
        display.summary(outcome)
    return outcome is runner.Outcome.FINISHED
