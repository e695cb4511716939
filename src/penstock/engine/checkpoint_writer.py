"""The one checkpoint that is being written, by a thread beside the app's or by the call that waits for it.

    begun: all that is to be durable is there ─▶ write, in any thread ─▶ settle, in the app's thread
                                                                         it stands, or it is lost

Invariants:
1. One checkpoint at a time is written. What follows from it is done in the app's thread after it is durable: before
   the next call that gets into the app, before the next checkpoint, or when the app is closed.
2. Why a checkpoint was lost is told once: the next call that gets into the app raises it, and does nothing else.
3. A call that waits writes by itself if the thread has not begun: no call waits for a thread that never comes.

Why: docs/decisions/checkpoints-beside-the-events.md
"""

from __future__ import annotations

import contextlib
from threading import Lock, Thread
from typing import Protocol

_AWAKE_SECONDS = 0.1
"""A call that waits looks so often whether it was interrupted: where a library has signals restart what they break
into, a wait would go on."""


class Begun(Protocol):
    """A checkpoint to be written. Each of these may be called again after an interrupt."""

    def write(self) -> None:
        """Makes it durable; in any thread, while the app goes on."""

    def stands(self) -> None:
        """It is durable; in the app's thread, like `lost`."""

    def lost(self) -> None:
        """It could not be written."""


class _Task:
    """What is at work. It keeps alive what a checkpoint needs, up to its end."""

    def __init__(self, begun: Begun) -> None:
        self.begun = begun
        self.failure: BaseException | None = None
        self.is_over = False
        self._at_work = Lock()

    def run(self) -> None:
        """Returns when it is over, by whichever thread."""
        while not self._at_work.acquire(timeout=_AWAKE_SECONDS):
            pass
        try:
            if not self.is_over:
                try:
                    self.begun.write()
                except BaseException as error:
                    self.failure = error
                self.is_over = True
        finally:
            self._at_work.release()


class CheckpointWriter:
    def __init__(self) -> None:
        self._task: _Task | None = None

    def begin(self, begun: Begun, *, beside: bool) -> None:
        """With `beside` a thread begins to write, otherwise the first call that waits. The one before is settled."""
        assert self._task is None
        self._task = task = _Task(begun)
        if beside:
            with contextlib.suppress(RuntimeError):  # there can be no more threads: a call that waits does it
                # No daemon: a program that ends waits until the checkpoint stands.
                Thread(target=task.run, name="penstock-checkpoint").start()

    def heed(self) -> bool:
        """Settles what is over, and raises why it was lost. Answers whether there is anything to heed."""
        if self._task is not None and self._task.is_over:
            self.wait()
        return self._task is not None

    def wait(self) -> None:
        """Returns when the checkpoint stands; raises why it was lost."""
        failure = self.settled()
        if failure is not None:
            raise failure

    def settled(self) -> BaseException | None:
        """Returns when there is nothing more to do, with the reason if the checkpoint was lost."""
        task = self._task
        if task is None:
            return None
        task.run()
        if task.failure is None:
            task.begun.stands()
        else:
            task.begun.lost()
        self._task = None
        return task.failure

    def finish(self) -> None:
        """Returns when nothing is being written; what follows from it is still to come."""
        if self._task is not None:
            self._task.run()
