"""What makes room in a bounded queue with groups, and what a client takes for delayed that is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.testing import ManualClock
from shardq.testing.seam import drive_timers

Fill = Callable[..., None]


@pytest.fixture
def queue(client: shardq.Client, clock: ManualClock) -> Iterator[shardq.Queue]:
    queue = client.create_queue(
        "q", max_messages=10, overflow="drop_oldest", visibility_timeout=600, shards=1
    )
    drive_timers(queue, timer=lambda: clock.now() / 1e6)
    yield queue


@pytest.fixture
def fill(queue: shardq.Queue, clock: ManualClock) -> Fill:
    def fill(first: int, last: int, group: str | None = "a", delay: float = 0.0) -> None:
        with queue.producer() as producer:
            for number in range(first, last):
                clock.advance(2)  # each is counted, and whoever drops may drop again
                producer.send(b"%d" % number, group=group, delay=delay)

    return fill


def waiting(queue: shardq.Queue) -> list[int]:
    return sorted(int(message.body) for message in queue.peek(100) if message.state.value != "in_flight")


@pytest.mark.parametrize("front", ["held", "blocked", "delayed"])
def test_what_waits_behind_the_front_of_its_group_makes_room_too(
    queue: shardq.Queue, fill: Fill, front: str
) -> None:
    queue.alter(on_dead_letter="block")
    fill(0, 1, delay=6_000 if front == "delayed" else 0)
    held = queue.consumer().receive(1)
    if front == "blocked":
        held.dead_letter("bad")
    fill(1, 25)
    assert waiting(queue) == ([0, *range(16, 25)] if front == "delayed" else list(range(15, 25)))
    assert queue.counts().in_flight == (front != "delayed")


def test_the_oldest_go_whether_something_of_their_group_is_held_or_not(
    queue: shardq.Queue, fill: Fill
) -> None:
    fill(0, 1, "a")
    held = queue.consumer().receive(1)
    for number in range(1, 25):
        fill(number, number + 1, ("a", "b", "c", None)[number % 4])
    assert waiting(queue) == list(range(15, 25))
    held.ack()
    assert [int(body) for body in queue.consumer().receive(20).bodies if int(body) % 4 == 0] == [16, 20, 24]


def test_what_is_dropped_is_counted_and_told(queue: shardq.Queue, client: shardq.Client, fill: Fill) -> None:
    queue.alter(events=3600)
    fill(0, 1)
    queue.consumer().receive(1)
    second = queue.producer().send(b"1", group="a")
    fill(2, 25)
    assert client.counters.dropped == 14
    assert [event.kind for event in queue.trace(second)] == ["sent", "dropped"]


def test_what_a_client_with_an_earlier_clock_takes_for_delayed_fills_no_queue(
    url: str, queue: shardq.Queue, clock: ManualClock
) -> None:
    early = ManualClock(clock.now() - 500_000)
    with shardq.Client(open_store(url, early), retry_seconds=0) as client:
        other = client.queue("q")
        queue.producer().send_many([b"%d" % number for number in range(10)])
        assert other.counts().delayed == 10
        other.producer().send(b"10")
        queue.producer().send_many([b"x"] * 10, delay=60)
        early.advance(30)
        drive_timers(other, timer=lambda: 1e9)
        with pytest.raises(shardq.QueueFull, match="10 delayed messages"):
            other.producer().send(b"11")
