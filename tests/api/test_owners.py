"""Who holds what, and giving it back for a consumer that died."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec
import pytest

import shardq
from shardq.core.context.identity import ConsumerIdentity
from shardq.storage.requests import Claim
from shardq.storage.store import Store
from shardq.testing import ManualClock, WrappedStore
from shardq.testing.seam import context_of, store_of

Connect = Callable[[], shardq.Client]
P = ParamSpec("P")
T = TypeVar("T")

DEAD = 20.0  # seconds after which a consumer of the default lease is not alive


def crashed(queue: shardq.Queue, limit: int, **options: object) -> shardq.Consumer:
    """A consumer that took something and is never heard of again."""
    consumer = queue.consumer(**options)  # type: ignore[arg-type]
    consumer.receive(limit)
    return consumer


class CountingStore(WrappedStore):
    """Notes what it is asked."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked: list[str] = []

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.asked.append(method)
        return super().call(method, do, *args, **kwargs)


def state_of(queue: shardq.Queue, consumer: shardq.Consumer) -> shardq.ConsumerState:
    (found,) = (state for state in queue.consumers() if state.name == consumer.name)
    return found


@pytest.fixture
def filled(queue: shardq.Queue) -> shardq.Queue:
    with queue.producer() as producer:
        producer.send_many([b"%d" % i for i in range(6)])
    return queue


# -- who holds what


def test_a_look_names_the_consumer_that_holds_a_message(filled: shardq.Queue) -> None:
    with filled.consumer(name="billing") as consumer:
        (message,) = consumer.receive(1)
        shown = {each.id: each.owner for each in filled.peek(10)}
        assert shown.pop(message.id) == "billing"
        assert set(shown.values()) == {None}
        found = filled.get(message.id)
        assert found is not None
        assert found.owner == "billing"
        message.ack()
        assert all(each.owner is None for each in filled.peek(10))


def test_one_that_was_closed_is_named_by_its_id_as_long_as_it_holds_something(filled: shardq.Queue) -> None:
    with filled.consumer() as consumer:
        consumer.receive(2)
        identity = state_of(filled, consumer).id
    (state,) = filled.consumers()
    assert (state.id, state.name, state.host, state.held) == (identity, None, None, 2)
    assert consumer.name.endswith(identity[:8])
    assert {each.owner for each in filled.peek(10)} == {None, identity}
    assert filled.evict(identity, force=True) == 2
    assert filled.consumers() == ()


def test_consumers_are_listed_with_what_they_hold(
    filled: shardq.Queue, connect: Connect, clock: ManualClock
) -> None:
    one = crashed(filled, 4)
    clock.advance(2)
    crashed(connect().queue(filled.name), 1, name="other")
    idle = crashed(filled, 1, name="another")
    assert [state.name for state in filled.consumers()] == sorted([one.name, "other", "another"])
    states = {state.name: state for state in filled.consumers()}
    assert {name: state.held for name, state in states.items()} == {one.name: 4, "other": 1, "another": 1}
    assert all(state.alive for state in states.values())
    first, second = states[one.name], states["other"]
    assert first.last_seen is not None
    assert second.last_seen is not None
    assert (second.last_seen - first.last_seen).total_seconds() == 2
    assert first.host
    assert first.pid
    assert first.held_until is not None
    idle.close()
    assert "another" not in [state.name for state in filled.consumers()]


def test_one_of_an_older_client_is_listed_by_its_name(queue: shardq.Queue, connect: Connect) -> None:
    store = store_of(queue)
    store.register_consumer([queue.name], "an-older-client", 16_000_000)
    (state,) = queue.consumers()
    assert (state.name, state.id, state.alive, state.host) == ("an-older-client", "", True, None)


def test_what_a_claim_of_spark_holds_has_an_owner_too(filled: shardq.Queue) -> None:
    context = context_of(filled)
    (shard, *_) = context.store.shards(filled.name)
    context.store.claim(Claim(shard, b"a" * 16, 1, 30_000_000))
    (state,) = filled.consumers()
    assert (state.name, state.id, state.held, state.alive) == (None, (b"a" * 8).hex(), 1, True)


def test_a_name_that_cannot_be_one_is_refused(queue: shardq.Queue) -> None:
    for name in ("", "x" * 201, "two\nlines", "\ud800", 5):
        with pytest.raises(shardq.InvalidSetting, match="name of a consumer"):
            queue.consumer(name=name)  # type: ignore[arg-type]


def test_a_consumer_that_is_named_like_an_entry_is_no_other_one(queue: shardq.Queue) -> None:
    name = ConsumerIdentity("x", "00" * 8, "h", 1, 1).text
    with queue.consumer(name=name) as consumer:
        consumer.receive(1)
        assert state_of(queue, consumer).id != "00" * 8


# -- giving it back


def test_what_a_dead_consumer_holds_is_given_back_at_once(filled: shardq.Queue, clock: ManualClock) -> None:
    filled.alter(visibility_timeout=40.0)
    dead = crashed(filled, 4)
    clock.advance(25)
    with filled.consumer() as consumer:
        assert len(consumer.receive(10)) == 2
        assert not consumer.receive(10)
        assert filled.evict(dead.name) == 4
        again = consumer.receive(10)
        assert len(again) == 4
        assert {message.deliveries for message in again} == {2}


def test_one_that_may_be_at_work_keeps_what_it_holds(filled: shardq.Queue, clock: ManualClock) -> None:
    with filled.consumer() as consumer:
        batch = consumer.receive(2)
        with pytest.raises(shardq.ConsumerAlive, match=r"seen 0\.0 s ago and holds 2 messages"):
            filled.evict(consumer.name)
        clock.advance(17)  # it would have received again
        batch.extend(30)  # but it is at work
        clock.advance(14)
        with pytest.raises(shardq.ConsumerAlive, match=r"seen 14\.0 s ago"):
            filled.evict(consumer.name)
        batch.ack()


def test_with_force_it_is_given_back_all_the_same_and_the_late_ack_is_lost(filled: shardq.Queue) -> None:
    with filled.consumer() as consumer:
        batch = consumer.receive(2)
        assert filled.evict(consumer.name, force=True) == 2
        with pytest.raises(shardq.LeaseLost):
            batch.ack()
    assert filled.counts().ready == 6


def test_of_two_with_one_name_the_dead_one_is_evicted(filled: shardq.Queue, clock: ManualClock) -> None:
    crashed(filled, 2, name="worker-1")
    clock.advance(DEAD)
    with filled.consumer(name="worker-1") as again:
        batch = again.receive(1)
        assert filled.evict("worker-1") == 2
        batch.ack()
        (live,) = (state for state in filled.consumers() if state.alive)
        with pytest.raises(shardq.ConsumerAlive):
            filled.evict(live.id)


def test_evicting_again_gives_back_nothing(filled: shardq.Queue, clock: ManualClock) -> None:
    dead = crashed(filled, 2)
    clock.advance(DEAD)
    assert [filled.evict(dead.name) for _ in range(2)] == [2, 0]


def test_one_that_is_not_known_is_an_error(filled: shardq.Queue) -> None:
    crashed(filled, 2)
    with pytest.raises(shardq.ConsumerNotFound, match="'nobody'"):
        filled.evict("nobody")
    with pytest.raises(shardq.ConsumerNotFound):
        filled.evict("")
    assert filled.counts().in_flight == 2


def test_what_was_claimed_ahead_and_never_handed_out_does_not_count_as_delivered(
    filled: shardq.Queue,
) -> None:
    dead, store = ConsumerIdentity.make(), store_of(filled)
    (shard,) = store.shards(filled.name)
    store.claim(Claim(shard, dead.token(), 2, 600_000_000, started=False))
    store.claim(Claim(shard, dead.token(), 2, 600_000_000))
    assert filled.evict(dead.id, force=True) == 4
    with filled.consumer() as consumer:
        assert sorted(message.deliveries for message in consumer.receive(10)) == [1, 1, 1, 1, 2, 2]


def test_the_messages_of_a_group_come_back_in_their_order(queue: shardq.Queue, clock: ManualClock) -> None:
    with queue.producer() as producer:
        sent = [b"%d" % i for i in range(5)]
        producer.send_many(sent, group="a")
    dead = crashed(queue, 4)
    clock.advance(DEAD)
    assert queue.evict(dead.name) == 4
    with queue.consumer() as consumer:
        assert consumer.receive(10).bodies == sent


def test_the_permits_of_a_dead_consumer_come_back_with_its_messages(
    filled: shardq.Queue,
) -> None:
    filled.alter(max_in_flight=3, visibility_timeout=600.0)
    dead = crashed(filled, 3)
    with filled.consumer() as consumer:
        assert not consumer.receive(1)
        assert filled.evict(dead.name, force=True) == 3
        assert len(consumer.receive(10)) == 3


def test_a_queue_of_a_long_name_which_can_have_no_limits_is_evicted_too(connect: Connect) -> None:
    queue = connect().create_queue("q" * 195, max_deliveries=None)
    with queue.producer() as producer:
        producer.send(b"tea")
    dead = crashed(queue, 1)
    assert queue.evict(dead.name, force=True) == 1


def test_a_message_that_was_delivered_too_often_becomes_a_dead_letter(
    queue: shardq.Queue, connect: Connect, clock: ManualClock
) -> None:
    queue.alter(max_deliveries=1)
    with queue.producer() as producer:
        producer.send(b"poison")
    dead = crashed(queue, 1)
    clock.advance(DEAD)
    assert queue.evict(dead.name) == 1
    with queue.consumer() as consumer:
        assert not consumer.receive(1)
    assert connect().queue(f"{queue.name}.dead").counts().ready == 1


def test_a_queue_that_holds_nothing_asks_for_no_names(queue: shardq.Queue) -> None:
    with queue.producer() as producer:
        identity = producer.send(b"tea")
    context = context_of(queue)
    counting = CountingStore(context.store)
    looking = msgspec.structs.replace(context, store=counting)
    assert [message.body for message in shardq.Queue(looking).peek()] == [b"tea"]
    assert shardq.Queue(looking).get(identity) is not None
    assert counting.asked == ["shards", "peek", "find"]
