"""A consumer that polls, as its store tells of nothing: one of many queues asks hardly more often than one of one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import msgspec
import pytest

import shardq
from shardq import Batch
from shardq.storage.opening import open_store
from shardq.storage.requests import Sweep
from shardq.storage.store import Capabilities, Store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock, ManualTimer
from shardq.testing.seam import claim_round, drive_timers

P = ParamSpec("P")
T = TypeVar("T")

POLL = 0.25


class PolledStore(WrappedStore):
    """Tells nothing of what others send. Counts the requests that Cassandra would be asked."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked: Counter[str] = Counter()
        self.swept: list[str] = []

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(self.inner.capabilities, signals=False)

    def sweep(self, request: Sweep) -> int:
        self.swept.append(request.queue)
        return 0  # once a minute for each of a few queues

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        size = len(args[0]) if args and isinstance(args[0], (list, tuple)) else 1
        match method:
            case "probe":
                self.asked[method] += math.ceil(size / 200) if kwargs["glance"] else 4 * math.ceil(size / 50)
            case "register_consumer":
                self.asked[method] += 3 + math.ceil(size / 10)
            case _:
                self.asked[method] += method not in {"now", "listen"}
        return do(*args, **kwargs)


class Polling:
    """A consumer of so many queues, and time that passes for it by hand."""

    def __init__(self, url: str, clock: ManualClock, queues: int) -> None:
        self._clock, self._timer = clock, ManualTimer()
        self.store = PolledStore(open_store(url, clock))
        self.client = shardq.Client(self.store)
        self.names = [f"q{number}" for number in range(queues)]
        for name in self.names:
            self.client.create_queue(name, visibility_timeout=3)
        self.consumer = self.client.consumer(self.names)
        drive_timers(self.consumer, timer=self._timer)
        assert not self.consumer.receive(1)

    def poll(self, later: float = POLL) -> Batch:
        """Receive what a poll finds, a quarter of a second later."""
        self._clock.advance(later)
        self._timer.advance(later)
        return claim_round(self.consumer, 10, news=self.names)

    def seconds_until_found(self) -> float:
        """How long it takes until something is found."""
        began = self._timer()
        while not self.poll():
            assert self._timer() < began + 60
        return self._timer() - began

    def requests_in(self, seconds: float, *, every: float = POLL) -> int:
        """How often the store is asked in so many seconds in which nothing is found."""
        self.store.asked.clear()
        for _ in range(round(seconds / every)):
            assert not self.poll(every)
        return sum(self.store.asked.values())


@pytest.fixture
def polling(url: str, clock: ManualClock) -> Iterator[Callable[[int], Polling]]:
    made: list[Polling] = []

    def make(queues: int) -> Polling:
        made.append(Polling(url, clock, queues))
        return made[-1]

    yield make
    for each in made:
        each.client.close()


def test_to_poll_twenty_queues_takes_hardly_more_requests_than_one(polling: Callable[[int], Polling]) -> None:
    counts = []
    for queues in (20, 1):  # the one is among those that are there
        polled = polling(queues)
        polled.requests_in(20)
        counts.append(polled.requests_in(60))
        for name in polled.names:
            polled.client.delete_queue(name)
    assert counts[0] <= 1.4 * counts[1]
    assert counts[1] <= 60 * 6.5


@pytest.mark.parametrize(("queues", "minutes"), [(1, 1), (5, 1), (20, 4)])
def test_a_consumer_sweeps_five_queues_a_minute_and_each_in_its_turn(
    polling: Callable[[int], Polling], queues: int, minutes: int
) -> None:
    polled = polling(queues)
    polled.requests_in(21)
    polled.store.swept.clear()
    for _ in range(4):
        before = len(polled.store.swept)
        polled.requests_in(60, every=2)
        assert len(polled.store.swept) - before <= min(queues, 5)
    # Then each was swept as often as others
    assert all(abs(polled.store.swept.count(name) - 4 / minutes) <= 1 for name in polled.names)
    assert polled.store.swept


def test_what_is_sent_is_found_by_the_next_poll(polling: Callable[[int], Polling]) -> None:
    polled = polling(20)
    polled.requests_in(20)
    polled.client.queue("q7").producer().send(b"x")
    assert polled.seconds_until_found() == POLL


@pytest.mark.parametrize("queues", [1, 20])
def test_what_is_sent_by_a_new_layout_is_found_within_some_seconds(
    polling: Callable[[int], Polling], url: str, clock: ManualClock, queues: int
) -> None:
    polled = polling(queues)
    polled.requests_in(21)
    with shardq.connect(url, clock=clock) as other:
        other.queue(polled.names[-1]).alter(shards=1, time_shards=1)
        clock.advance(60)
        other.queue(polled.names[-1]).producer().send(b"x")
    assert polled.seconds_until_found() <= 7


@pytest.mark.parametrize("queues", [1, 20])
def test_a_lease_that_nobody_told_of_is_found_to_be_over_within_ten_seconds(
    polling: Callable[[int], Polling], url: str, clock: ManualClock, queues: int
) -> None:
    polled = polling(queues)
    polled.requests_in(21)
    with shardq.connect(url, clock=clock) as other:
        other.queue(polled.names[-1]).producer().send(b"x")
        assert other.queue(polled.names[-1]).consumer().receive(1)
    assert polled.seconds_until_found() <= 3 + 10


@pytest.mark.parametrize("queues", [1, 20])
def test_a_queue_that_was_paused_a_second_ago_delivers_nothing_and_is_received_from_when_it_is_resumed(
    polling: Callable[[int], Polling], url: str, clock: ManualClock, queues: int
) -> None:
    polled = polling(queues)
    polled.requests_in(21.25)
    with shardq.connect(url, clock=clock) as other:
        queue = other.queue(polled.names[-1])
        queue.pause()
        polled.requests_in(1.25)
        queue.producer().send(b"x")
        polled.requests_in(20)
        queue.resume()
        assert polled.seconds_until_found() <= 1 + 2 * POLL


def test_a_queue_that_is_deleted_is_left_out_and_the_others_are_received_from(
    polling: Callable[[int], Polling], url: str, clock: ManualClock
) -> None:
    polled = polling(20)
    with shardq.connect(url, clock=clock) as other:
        other.delete_queue("q7")
        polled.requests_in(20)
        with pytest.raises(shardq.QueueNotFound, match="'q7'"):
            polled.consumer.receive(1)
        other.queue("q8").producer().send(b"x")
        assert polled.seconds_until_found() == POLL
        # And when it is created again, it is received from
        other.create_queue("q7").producer().send(b"x")
        assert polled.seconds_until_found() <= 7
