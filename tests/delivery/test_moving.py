"""Moves on a store that cannot make them in one step: whoever dies between two steps, nothing is doubled or lost."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shardq
from shardq.storage.opening import open_store
from shardq.storage.requests import DedupeEntry
from shardq.testing import ManualClock
from tests.dying_store import STEPS, Died, DyingStore

P = ParamSpec("P")
T = TypeVar("T")

HOURS = 3 * 3_600


class Fleet:
    """Clients of one store, which come and go."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.url, self.clock = url, clock

    def client(self, *, dies_at: int | None = None, after: bool = False) -> shardq.Client:
        """A client that dies at a step."""
        store = DyingStore(open_store(self.url, self.clock))
        store.calls_left, store.after = dies_at, after
        return shardq.Client(store, retry_seconds=0.0)


@pytest.fixture
def fleet(url: str, clock: ManualClock) -> Fleet:
    return Fleet(url, clock)


def work(queue: shardq.Queue) -> Counter[bytes]:
    """Receive and ack all that there is."""
    with queue.consumer() as consumer:
        batch = consumer.receive(1_000)
        batch.ack()
        return Counter(batch.bodies)


def dead_letters(client: shardq.Client) -> Counter[bytes]:
    return Counter(message.body for message in client.queue("q.dead").peek(1_000))


@pytest.mark.parametrize("worked", [False, True], ids=["kept", "worked"])
@pytest.mark.parametrize("later", [1, 2, 3])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(len(STEPS)), ids=STEPS)
def test_a_move_that_was_cut_off_is_completed_by_claims_of_any_size_hours_later(
    fleet: Fleet, step: int, after: bool, later: int, worked: bool
) -> None:
    sound = fleet.client()
    queue = sound.create_queue("q", shards=1, time_shards=1, dedupe_window=60)
    queue.producer().send_many([b"1", b"2", b"3"])
    doomed = fleet.client(dies_at=step, after=after)
    batch = doomed.queue("q").consumer().receive(3)
    with pytest.raises(Died):
        batch.dead_letter("bad")
    seen = work(sound.queue("q.dead")) if worked else Counter()
    sound.queue("q.dead").alter(shards=7, time_shards=5)
    fleet.clock.advance(HOURS)
    queue.sweep()
    sound.queue("q.dead").sweep()
    while batch := queue.consumer().receive(later):
        batch.dead_letter("bad")
    fleet.clock.advance(1)
    assert seen + work(sound.queue("q.dead")) == Counter([b"1", b"2", b"3"])
    assert queue.counts().oldest is None


@pytest.mark.parametrize("name", ["team/a@b", "a@1@2"])
@pytest.mark.parametrize("delay", [0.0, 60.0])
def test_messages_are_moved_whatever_the_name_of_the_queue(fleet: Fleet, name: str, delay: float) -> None:
    queue = fleet.client().create_queue(name)
    target = fleet.client().create_queue(f"{name}@target")
    queue.producer().send_many([b"1", b"2"], priority=2)
    doomed = fleet.client(dies_at=STEPS.index("append"), after=True)
    with pytest.raises(Died):
        doomed.queue(name).consumer().receive(2).forward(target.name, delay=delay, priority=1, atomic=False)
    fleet.clock.advance(HOURS)
    queue.consumer().receive(2).forward(target.name, delay=delay, priority=1, atomic=False)
    fleet.clock.advance(delay + 1)
    assert work(queue) + work(target) == Counter([b"1", b"2"])


@pytest.mark.parametrize("step", range(len(STEPS)), ids=STEPS)
def test_a_redrive_that_was_cut_off_is_completed(fleet: Fleet, step: int) -> None:
    sound = fleet.client()
    queue = sound.create_queue("q", shards=3)
    queue.producer(bundle_messages=2).send_many([b"%d" % number for number in range(7)])
    queue.consumer().receive(7).dead_letter("bad")
    with pytest.raises(Died):
        fleet.client(dies_at=step, after=True).queue("q").redrive()
    seen = work(queue)
    fleet.clock.advance(HOURS)
    queue.sweep()
    while queue.redrive(limit=2):
        pass
    assert seen + work(queue) == Counter([b"%d" % number for number in range(7)])
    assert dead_letters(sound) == Counter()


def test_a_mover_that_stood_still_does_not_store_again_what_others_moved(fleet: Fleet) -> None:
    sound = fleet.client()
    queue = sound.create_queue("q", shards=1, time_shards=1)
    queue.producer().send(b"x")

    class Suspended(DyingStore):
        def reserve_keys(
            self, queue: str, entries: Sequence[DedupeEntry], window: int
        ) -> tuple[DedupeEntry, ...]:
            standing = super().reserve_keys(queue, entries, window)
            fleet.clock.advance(31)
            sound.queue("q").consumer().receive(1).dead_letter("bad")
            assert work(sound.queue("q.dead")) == Counter([b"x"])
            fleet.clock.advance(20 * 60)
            sound.queue("q.dead").sweep()
            return standing

    store = Suspended(open_store(fleet.url, fleet.clock))
    (message,) = shardq.Client(store, retry_seconds=0.0).queue("q").consumer().receive(1)
    with pytest.raises(shardq.StoreUnavailable):
        message.dead_letter("bad")
    with pytest.raises(shardq.LeaseLost):
        message.dead_letter("bad")
    assert dead_letters(sound) == Counter()


def test_an_unanswered_step_is_repeated_and_nothing_is_moved_twice(url: str, clock: ManualClock) -> None:
    class Silent(DyingStore):
        unanswered = 0

        def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
            answer = super().call(method, do, *args, **kwargs)
            if method in STEPS:
                self.unanswered += 1
                if self.unanswered % 2:
                    raise shardq.OutcomeUnknown("no answer")
            return answer

    sound = shardq.connect(url, clock=clock)
    queue = sound.create_queue("q", shards=1, time_shards=1)
    sound.create_queue("other", shards=4)
    queue.producer().send_many([b"1", b"2", b"3"])
    client = shardq.Client(Silent(open_store(url, clock)), retry_seconds=10.0)
    client.queue("q").consumer().receive(3).forward("other", atomic=False)
    assert work(sound.queue("other")) == Counter([b"1", b"2", b"3"])
    assert work(queue) == Counter()
    assert client.counters.lease_lost == 0


def test_messages_are_moved_in_their_order_and_keep_what_they_were_sent_with(
    fleet: Fleet, clock: ManualClock
) -> None:
    client = fleet.client()
    queue = client.create_queue("q", shards=1, time_shards=1)
    client.create_queue("other", shards=4)
    queue.producer().send_many([b"%02d" % number for number in range(40)], headers={"a": 1}, priority=3)
    sent_at = queue.peek(1)[0].enqueued_at
    clock.advance(100)
    queue.consumer().receive(40).forward("other", atomic=False)
    moved = client.queue("other").peek(100)
    assert [message.body for message in moved] == [b"%02d" % number for number in range(40)]
    assert {(message.enqueued_at, message.priority, message.headers["a"]) for message in moved} == {
        (sent_at, 3, 1)
    }
    assert work(client.queue("other")).total() == 40


_names = itertools.count()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    attempts=st.lists(
        st.tuples(
            st.integers(1, 8),  # messages claimed
            st.sets(st.integers(0, 7), min_size=1),  # of which these are moved
            st.integers(0, 8),  # the step at which the mover dies
            st.booleans(),  # after it
            st.booleans(),  # the target is worked then
            st.sampled_from([31, 16 * 60, HOURS]),  # and time passes
        ),
        max_size=5,
    ),
)
@pytest.mark.slow
def test_moves_that_die_anywhere_and_are_cut_anyhow_double_and_lose_nothing(
    url: str,
    clock: ManualClock,
    sizes: list[int],
    attempts: list[tuple[int, set[int], int, bool, bool, int]],
) -> None:
    fleet, name = Fleet(url, clock), f"q{os.urandom(6).hex()}"
    sound = fleet.client()
    queue = sound.create_queue(name, shards=2, time_shards=1, max_deliveries=None)
    target = sound.create_queue(f"{name}.to", shards=3, time_shards=2)
    for size in sizes:
        queue.producer().send_many([os.urandom(4) for _ in range(size)])
    sent = Counter(message.body for message in queue.peek(100))
    seen: Counter[bytes] = Counter()
    for limit, chosen, step, after, worked, seconds in attempts:
        batch = fleet.client(dies_at=step, after=after).queue(name).consumer().receive(limit)
        try:
            for number, message in enumerate(batch):
                if number in chosen:
                    message.forward(target.name, atomic=False)
        except Died:
            pass
        if worked:
            seen += work(target)
        clock.advance(seconds)
        queue.sweep()
        target.sweep()
    clock.advance(31)
    while batch := queue.consumer().receive(3):
        batch.forward(target.name, atomic=False)
    clock.advance(1)
    assert seen + work(target) == sent
    assert queue.counts().oldest is None
