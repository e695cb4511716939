"""Which keeper serves which bucket: they stay together, keepers are as many as needed, none is waited for in vain."""

from __future__ import annotations

import pytest

from penstock.spark.switchboard import IDLE_SECONDS, MOST_WAITS, Keeper, Switchboard


class Request:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Line:
    """A keeper that notes what it is given."""

    def __init__(self) -> None:
        self.given: list[Request] = []
        self.is_alive = True

    def give(self, request: Request) -> None:
        if not self.is_alive:
            raise BrokenPipeError
        self.given.append(request)

    def close(self) -> None:
        self.is_alive = False


class Office:
    """A switchboard with such keepers, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[Line] = []
        self.most = 100
        self.board = Switchboard(self._start, lambda: self.now)  # type: ignore[arg-type]

    def _start(self) -> Line:
        if len(self.lines) == self.most:
            raise BlockingIOError
        self.lines.append(Line())
        return self.lines[-1]

    def ask(self, bucket: str) -> Request:
        request = Request()
        self.board.ask(bucket.encode(), request)
        return request

    def serving(self, request: Request) -> int:
        """The number of the keeper that was given a request, -1 if none was."""
        return next((number for number, line in enumerate(self.lines) if request in line.given), -1)

    def keeper(self, number: int) -> Keeper:
        return next(keeper for keeper in self.board.keepers if keeper.line is self.lines[number])

    def done(self, *numbers: int) -> None:
        for number in numbers:
            self.board.free(self.keeper(number))


@pytest.fixture
def office() -> Office:
    return Office()


def test_a_bucket_stays_and_there_are_as_many_keepers_as_tasks_at_once(office: Office) -> None:
    for _ in range(5):
        first, second = office.ask("a"), office.ask("b")
        assert (office.serving(first), office.serving(second)) == (0, 1)
        office.done(1, 0)
        second, first = office.ask("b"), office.ask("a")
        assert (office.serving(first), office.serving(second)) == (0, 1)
        assert first.is_closed, "it is the keeper's now"
        office.done(0, 1)
    assert len(office.lines) == 2


def test_new_buckets_go_to_the_free_keeper_with_the_fewest(office: Office) -> None:
    office.ask("a"), office.ask("b")
    office.done(0)
    office.ask("c")
    office.done(0, 1)
    assert office.serving(office.ask("d")) == 1
    assert len(office.lines) == 2


def test_a_task_waits_for_its_keeper(office: Office) -> None:
    office.ask("a")
    office.done(0)
    office.ask("b")  # at the same keeper, which is free
    waiting = office.ask("a")
    assert office.serving(waiting) == -1
    assert not waiting.is_closed
    office.done(0)
    assert office.serving(waiting) == 0


def test_a_bucket_that_waits_every_time_gets_another_keeper(office: Office) -> None:
    for bucket in "ab":
        office.ask(bucket)
        office.done(0)
    for _ in range(MOST_WAITS):
        assert office.serving(office.ask("a")) == 0
        moved = office.ask("b")
        if office.serving(moved) == -1:
            office.done(0)
        office.done(*range(len(office.lines)))
    assert office.serving(moved) == 1
    assert [office.serving(office.ask(bucket)) for bucket in "ab"] == [0, 1]


def test_now_and_then_it_may_wait(office: Office) -> None:
    for bucket in "ab":
        office.ask(bucket)
        office.done(0)
    for _ in range(3 * MOST_WAITS):
        office.ask("a"), office.ask("b")
        office.done(0, 0)
        office.ask("b")
        office.done(0)
    assert len(office.lines) == 1


def test_requests_of_a_keeper_that_died_go_to_another(office: Office) -> None:
    office.ask("a")
    waiting = office.ask("a")
    office.board.gone(office.keeper(0))
    assert office.serving(waiting) == 1
    office.done(1)
    assert office.serving(office.ask("a")) == 1


def test_a_dead_keeper_is_found_when_it_is_given_something(office: Office) -> None:
    office.ask("a")
    office.done(0)
    office.lines[0].is_alive = False
    assert office.serving(office.ask("a")) == 1
    assert len(office.board.keepers) == 1


def test_who_cannot_be_served_is_told_so(office: Office) -> None:
    office.most = 1
    office.ask("a")
    assert office.ask("b").is_closed
    office.done(0)
    assert office.serving(office.ask("b")) == 0


def test_what_is_not_used_goes(office: Office) -> None:
    office.ask("a"), office.ask("b")
    office.done(1)
    office.now += IDLE_SECONDS + 1
    office.board.tidy()
    assert not office.lines[1].is_alive
    office.done(0)
    office.board.tidy()
    assert office.serving(office.ask("a")) == 0, "it was busy all the time"
    office.done(0)
    office.now += IDLE_SECONDS + 1
    office.board.tidy()
    assert office.board.keepers == []
    assert office.serving(office.ask("a")) == 2


def test_buckets_of_queries_that_are_gone_are_forgotten(office: Office) -> None:
    for number in range(10):
        office.ask(f"{number}")
        office.done(0)
        office.now += IDLE_SECONDS / 2
        office.board.tidy()
    assert len(office.board._places) <= 3
