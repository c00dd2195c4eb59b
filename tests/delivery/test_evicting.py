"""What a consumer held that is killed is given back on every store, in real time and whatever answer is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock
from tests.any_store import any_url
from tests.processes import running

__all__ = ["any_url"]

HOLDER = """
import sys
import shardq

queue = shardq.connect(sys.argv[1]).queue(sys.argv[2])
consumer = queue.consumer(name="doomed", visibility_timeout=3600)
for _ in range(100):
    held = consumer.receive(3, wait=1)
    if held:
        print(len(held), flush=True)
        break
sys.stdin.readline()
"""


@pytest.fixture
def any_queue(any_url: str) -> Iterator[shardq.Queue]:
    """A queue of one shard, which no other test has."""
    name = f"evicted{os.urandom(4).hex()}"
    with shardq.connect(any_url) as client:
        yield client.create_queue(name, shards=1, time_shards=1, max_deliveries=None)
        client.delete_queue(name)


@pytest.mark.parametrize("group", [None, "a"])
def test_what_a_killed_process_held_is_received_at_once(
    any_url: str, any_queue: shardq.Queue, group: str | None
) -> None:
    sent = [b"%d" % i for i in range(3)]
    with any_queue.producer() as producer:
        try:
            producer.send_many(sent, group=group)
        except shardq.UnsupportedByStore:
            pytest.skip("the store has no groups")
    command = [sys.executable, "-c", HOLDER, any_url, any_queue.name]
    with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "3\n"
    assert {message.owner for message in any_queue.peek()} == {"doomed"}
    (state,) = any_queue.consumers()
    assert (state.name, state.pid, state.held) == ("doomed", killed.pid, 3)
    with any_queue.consumer() as consumer:
        assert not consumer.receive(10)
        with pytest.raises(shardq.ConsumerAlive):
            any_queue.evict("doomed")  # nobody can know that yet
        assert any_queue.evict("doomed", force=True) == 3
        batch = consumer.receive(10, wait=10)
        assert batch.bodies == sent
        assert {message.deliveries for message in batch} == {2}
        batch.ack()


def test_the_ack_of_one_that_was_evicted_and_lives_is_lost(any_queue: shardq.Queue) -> None:
    with any_queue.producer() as producer:
        producer.send_many([b"1", b"2"])
    with any_queue.consumer(name="slow") as slow, any_queue.consumer() as consumer:
        late = slow.receive(2, wait=10)
        assert any_queue.evict("slow", force=True) == 2
        again = consumer.receive(2, wait=10)
        with pytest.raises(shardq.LeaseLost):
            late.ack()
        again.ack()
    assert any_queue.counts().in_flight == 0


@pytest.mark.parametrize("prefetch", [0, 4])
def test_a_release_of_one_that_was_evicted_and_lives_is_lost_within_groups_too(
    any_queue: shardq.Queue, prefetch: int
) -> None:
    with any_queue.producer() as producer:
        for body in (b"1", b"2", b"3"):
            producer.send(body, group="a")
    with any_queue.consumer(name="slow", prefetch=prefetch) as slow:
        (first,) = slow.receive(1, wait=10)
        second = slow.receive(1) if prefetch else None
        any_queue.evict("slow", force=True)
        with pytest.raises(shardq.LeaseLost):
            first.release(delay=3600)
        if second:
            with pytest.raises(shardq.LeaseLost):
                second[0].release(delay=3600)
    assert {message.state.value for message in any_queue.peek()} == {"ready"}


def test_what_is_released_behind_a_released_message_of_its_group_is_no_loss(any_queue: shardq.Queue) -> None:
    with any_queue.producer() as producer:
        for body in (b"1", b"2", b"3"):
            producer.send(body, group="a")
    with any_queue.consumer(name="slow") as slow:
        first, second, third = slow.receive(3, wait=10)
        first.release(delay=3600)
        second.release()
        with pytest.raises(shardq.LeaseLost):
            third.ack()
    assert [message.state.value for message in any_queue.peek()] == ["delayed", "ready", "ready"]


@pytest.fixture
def dying(url: str, clock: ManualClock) -> Iterator[tuple[FaultyStore, shardq.Queue]]:
    """A queue whose messages lie in several shards and are held by one that is dead; and its store."""
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store, retry_seconds=0.2) as client:
        queue = client.create_queue("orders", shards=1, time_shards=4, time_shard_seconds=30)
        with queue.producer() as producer:
            for number in range(4):
                producer.send(b"%d" % number, delay=30 * number)
        clock.advance(100)
        dead = queue.consumer(name="dead")
        while queue.counts().ready:
            dead.receive(10)
        assert [state.counts.in_flight for state in queue.shard_states()] == [1] * 4
        clock.advance(20)
        yield store, queue


@pytest.mark.parametrize("kind", list(FaultKind))
@pytest.mark.parametrize("method", ["shards", "peek", "seen_consumers", "release"])
def test_a_request_that_fails_is_repeated_and_each_message_is_counted_once(
    dying: tuple[FaultyStore, shardq.Queue], kind: FaultKind, method: str
) -> None:
    store, queue = dying
    calls = sum(call.method == method for call in store.calls)
    store.plan = FaultPlan(faults=tuple(Fault(method, calls + nth, kind) for nth in (1, 3)))
    assert queue.evict("dead") == 4
    assert queue.counts().ready == 4


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_one_that_is_cut_short_is_completed_by_the_next(
    dying: tuple[FaultyStore, shardq.Queue], nth: int
) -> None:
    store, queue = dying
    store.plan = FaultPlan(
        faults=tuple(Fault("release", n, FaultKind.UNAVAILABLE) for n in range(nth, 10_000))
    )
    # StoreUnavailable says that nothing was changed
    told = shardq.OutcomeUnknown if nth > 1 else shardq.StoreUnavailable
    with pytest.raises(told, match="not released"):
        queue.evict("dead")
    assert queue.counts().in_flight == 4 - (nth - 1)
    store.plan = FaultPlan()
    assert queue.evict("dead") == 4 - (nth - 1)
    assert queue.counts().ready == 4
