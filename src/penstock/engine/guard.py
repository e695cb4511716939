"""One call at a time gets into an app, and none after a failure in the middle of one.

When an error (a full budget or disk, a subscriber that raises, an interrupt from the keyboard) leaves a call half done,
some queries have seen events that others have not. Nothing that depends on it may come out or be saved any more; a new
app goes on from the last checkpoint.

Why: docs/decisions/failed-app-stops.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, get_ident
from types import TracebackType

from penstock.errors import PenstockError


class Guard:
    """`with guard:` around everything that moves events."""

    __slots__ = ("_acquire", "_at_work", "_closed", "_failure", "_is_barred", "_owner", "_release", "_thread", "_watch")

    def __init__(self) -> None:
        self._at_work = Lock()
        """Held while a call is at work."""
        self._acquire, self._release = self._at_work.acquire, self._at_work.release
        self._thread = 0
        self._is_barred = False
        """Whether `check` may refuse a call although none is at work."""
        self._closed = False
        self._failure: BaseException | None = None
        self._owner: int | None = None
        self._watch: Callable[[], bool] | None = None

    @property
    def inside(self) -> bool:
        """Whether a call is at work: a subscriber that looks in now must not start another."""
        return self._at_work.locked()

    @property
    def state(self) -> str:
        """running, closed or failed."""
        return "failed" if self._failure is not None else "closed" if self._closed else "running"

    def own(self, thread: int | None) -> None:
        """From now on only this thread gets in; None is for any, one at a time."""
        self._owner = thread
        self._note_barred()

    def _note_barred(self) -> None:
        is_open = self._owner is None and not self._closed and self._failure is None
        self._is_barred = not is_open or self._watch is not None

    def watch(self, heed: Callable[[], bool]) -> None:
        """From now on this is called before each call that gets in, as long as it answers True. What it raises is
        raised, with nothing done."""
        self._watch = heed
        self._note_barred()

    def heed(self) -> None:
        """Lets a watch raise what it has to raise."""
        if self._watch is not None:
            with self.alone():
                pass

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        """Around events of which some were taken already: if a watch raised now, they would be lost, or come twice."""
        watch, self._watch = self._watch, None
        try:
            yield
        finally:
            self._watch = watch
            self._note_barred()

    def check(self) -> None:
        if self._owner is not None and self._owner != get_ident():
            raise PenstockError(
                "a dispatcher is at work in a thread of its own; offer events, or do this within its paused()"
            )
        if self._at_work.locked():
            if self._thread != get_ident():
                raise PenstockError(
                    "another thread is inside this app, and one call gets in at a time\n"
                    "  hint: call it from one thread, or with a lock around each call; offer() takes events from any "
                    "thread while a dispatcher is at work"
                )
            raise PenstockError("a subscriber is called in the middle of a push; do this after the push has returned")
        if self._closed:
            raise PenstockError("the app was closed; make a new one")
        if self._failure is not None:
            raise PenstockError(
                f"the app stopped in the middle of its work: {_reason(self._failure)}\n"
                "  hint: make a new app; with a checkpoint directory it goes on from the last checkpoint"
            )

    def close(self) -> None:
        self._closed = True
        self._note_barred()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Around what looks at everything or changes the queries and moves no events: an error leaves the app as it
        was."""
        self.__enter__()
        try:
            yield
        finally:
            self._release()

    def __enter__(self) -> None:
        if self._is_barred:
            self.check()
        while not self._acquire(False):
            self.check()
        self._thread = get_ident()
        if self._is_barred and self._watch is not None:
            try:
                if not self._watch():
                    self._watch = None
                    self._note_barred()
            except BaseException:
                self._release()
                raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._failure = error
            self._note_barred()
        self._release()


def _reason(failure: BaseException) -> str:
    if isinstance(failure, KeyboardInterrupt):
        return "it was interrupted, and some of its queries have seen events that others have not"
    return str(failure) or type(failure).__name__
