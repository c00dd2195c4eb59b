"""What a producer promises."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import shardq
from shardq.testing import ManualClock


def bodies(queue: shardq.Queue) -> list[bytes]:
    """Everything that can be received now, acked."""
    with queue.consumer() as consumer:
        found = []
        for batch in consumer.batches(1000, wait=0):
            found += [message.body for message in batch]
            batch.ack()
        return found


def test_a_message_arrives_with_everything_that_was_sent(queue: shardq.Queue) -> None:
    headers: dict[str, shardq.HeaderValue] = {
        "text": "é",
        "int": -1,
        "float": 0.5,
        "bool": True,
        "bytes": b"\0\xff",
    }
    with queue.producer() as producer:
        identity = producer.send(b"body", priority=3, headers=headers, dedupe_key="k")
    (message,) = queue.consumer().receive(1)
    assert message.id == identity
    assert (message.body, message.priority, message.headers) == (b"body", 3, headers)
    assert message.dedupe_key == "k"
    assert message.deliveries == 1
    assert message.headers["bool"] is True


def test_send_many_returns_the_ids_in_the_order_of_the_bodies(queue: shardq.Queue) -> None:
    sent = [str(number).encode() for number in range(1234)]
    with queue.producer() as producer:
        ids = producer.send_many(sent)
    assert len(ids) == 1234
    assert len(set(ids)) == 1234
    for place in (0, 1, 499, 500, 1233, -1):
        found = queue.get(ids[place])
        assert found is not None and found.body == sent[place]
    assert sorted(bodies(queue)) == sorted(sent)


def test_send_many_draws_one_bundle_at_a_time_from_a_generator(queue: shardq.Queue) -> None:
    drawn = 0

    def endless() -> Iterator[bytes]:
        nonlocal drawn
        for number in range(100):
            drawn += 1
            assert drawn - queue.counts().ready <= 10
            yield str(number).encode()

    with queue.producer(bundle_messages=10) as producer:
        assert len(producer.send_many(endless())) == 100


def test_a_bundle_is_closed_by_bytes_as_well_as_by_messages(queue: shardq.Queue) -> None:
    with queue.producer(bundle_messages=100, bundle_bytes=1000) as producer:
        ids = producer.send_many([b"x" * 400] * 6)
    assert len({shardq.MessageId.parse(identity).bundle_id for identity in ids}) == 2


def test_messages_of_one_bulk_send_may_have_options_of_their_own(
    queue: shardq.Queue, clock: ManualClock
) -> None:
    with queue.producer() as producer:
        ids = producer.send_many(
            [
                b"plain",
                shardq.OutgoingMessage(body=b"urgent", priority=0),
                shardq.OutgoingMessage(body=b"later", delay=60),
                shardq.OutgoingMessage(body=b"marked", headers={"a": 1}),
            ],
            priority=7,
        )
    stored = [queue.get(identity) for identity in ids]
    assert [message.body for message in stored if message] == [b"plain", b"urgent", b"later", b"marked"]
    assert [message.priority for message in stored if message] == [7, 0, 5, 5]
    assert sorted(bodies(queue)) == [b"marked", b"plain", b"urgent"]
    clock.advance(60)
    assert bodies(queue) == [b"later"]


def test_nothing_is_delivered_before_its_due_time(queue: shardq.Queue, clock: ManualClock) -> None:
    with queue.producer() as producer:
        producer.send(b"delayed", delay=100)
        due = datetime.fromtimestamp(clock.now() / 1e6, UTC) + timedelta(seconds=50)
        producer.send(b"absolute", due=due)
    assert bodies(queue) == []
    assert queue.counts().delayed == 2
    clock.advance(49.999)
    assert bodies(queue) == []
    clock.advance(0.001)
    assert bodies(queue) == [b"absolute"]
    clock.advance(50)
    assert bodies(queue) == [b"delayed"]


def test_a_due_time_that_has_passed_means_now(queue: shardq.Queue) -> None:
    with queue.producer() as producer:
        producer.send(b"late", due=datetime(1999, 1, 1, tzinfo=UTC))
    assert bodies(queue) == [b"late"]


def test_within_a_shard_priority_comes_first_then_send_order(client: shardq.Client) -> None:
    queue = client.create_queue("ordered", shards=1, time_shards=1)
    with queue.producer() as producer:
        for number in range(30):
            producer.send(b"%d-%d" % (number % 3, number), priority=number % 3)
    received = bodies(queue)
    assert received == [b"%d-%d" % (n % 3, n) for p in range(3) for n in range(30) if n % 3 == p]


@pytest.mark.parametrize(
    "kinds",
    [
        "key, plain, plain",
        "plain, key, other, plain",
        "headers, plain, key, other key, plain",
        "past, plain, key",
    ],
)
def test_whatever_its_messages_carry_a_bulk_send_keeps_their_order_within_a_shard(
    client: shardq.Client, kinds: str
) -> None:
    queue = client.create_queue("ordered", shards=1, time_shards=1)
    options: dict[str, Callable[[int], dict[str, Any]]] = {
        "plain": lambda number: {},
        "key": lambda number: {"dedupe_key": f"key {number}"},
        "other key": lambda number: {"dedupe_key": f"other {number}", "headers": {"n": number}},
        "headers": lambda number: {"headers": {"n": number}},
        "other": lambda number: {"priority": 9},
        "past": lambda number: {"due": client.now() - timedelta(seconds=number)},
    }
    names = [kinds.split(", ")[number % len(kinds.split(", "))] for number in range(40)]
    with queue.producer() as producer:
        producer.send_many(
            shardq.OutgoingMessage(body=b"%d" % number, **options[name](number))
            for number, name in enumerate(names)
        )
    in_turn = [b"%d" % number for number, name in enumerate(names) if name != "other"]
    assert bodies(queue) == in_turn + [b"%d" % number for number, name in enumerate(names) if name == "other"]


def test_sends_of_many_threads_are_joined_into_bundles_and_each_gets_its_own_id(queue: shardq.Queue) -> None:
    ids: dict[int, str] = {}
    with queue.producer(linger=0.05) as producer:

        def send(number: int) -> None:
            ids[number] = producer.send(str(number).encode(), headers={"n": number})

        threads = [threading.Thread(target=send, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number, identity in ids.items():
        found = queue.get(identity)
        assert found is not None and found.body == str(number).encode() and found.headers == {"n": number}
    assert len({shardq.MessageId.parse(identity).bundle_id for identity in ids.values()}) < 20


def test_a_codec_turns_values_into_bodies_and_back(queue: shardq.Queue) -> None:
    with queue.producer(codec=shardq.JSON) as producer:
        producer.send({"a": [1, None, "é"]})
    (message,) = queue.consumer(codec=shardq.JSON).receive(1)
    assert message.body == {"a": [1, None, "é"]}
    assert message.raw == '{"a":[1,null,"é"]}'.encode()


def test_a_body_that_the_consumers_codec_cannot_read_is_an_error_of_that_message_only(
    queue: shardq.Queue,
) -> None:
    with queue.producer() as producer:
        producer.send_many([b"{", b"1"])
    batch = queue.consumer(codec=shardq.JSON).receive(2)
    with pytest.raises(shardq.InvalidMessage, match="is not JSON"):
        _ = batch[0].body
    assert batch[1].body == 1
    batch[0].release()


def test_a_dedupe_key_is_stored_once_within_the_window(client: shardq.Client, clock: ManualClock) -> None:
    queue = client.create_queue("once", dedupe_window=100)
    with queue.producer() as producer:
        first = producer.send(b"1", dedupe_key="key")
        assert producer.send(b"2", dedupe_key="key") == first
        ids = producer.send_many(
            [
                shardq.OutgoingMessage(body=b"3", dedupe_key="key"),
                shardq.OutgoingMessage(body=b"4", dedupe_key="other"),
                shardq.OutgoingMessage(body=b"5", dedupe_key="other"),
                b"6",
            ]
        )
        assert ids[0] == first
        assert ids[1] == ids[2]
        assert sorted(bodies(queue)) == [b"1", b"4", b"6"]
        clock.advance(101)
        assert producer.send(b"7", dedupe_key="key") != first
    assert bodies(queue) == [b"7"]
    assert client.counters.deduplicated == 3


def test_a_key_stays_taken_after_its_message_was_worked(queue: shardq.Queue) -> None:
    with queue.producer() as producer:
        producer.send(b"1", dedupe_key="key")
        assert bodies(queue) == [b"1"]
        producer.send(b"1", dedupe_key="key")
    assert bodies(queue) == []


def test_many_producers_spread_over_all_shards(client: shardq.Client) -> None:
    queue = client.create_queue("spread", shards=16, time_shards=1)
    for _ in range(20):
        with queue.producer(bundle_messages=10) as producer:
            producer.send_many([b"x"] * 320)
    counts = [state.counts.ready for state in queue.shard_states()]
    assert len(counts) == 16
    assert max(counts) / (sum(counts) / 16) <= 1.1


def test_the_ring_rolls_on_to_the_next_time_shard(client: shardq.Client, clock: ManualClock) -> None:
    queue = client.create_queue("ring", shards=1, time_shards=3, time_shard_seconds=10)
    seen = []
    with queue.producer() as producer:
        for _ in range(6):
            seen.append(shardq.MessageId.parse(producer.send(b"x")).shard.time_shard)
            clock.advance(10)
    assert len(set(seen[:3])) == 3
    assert seen[3:] == seen[:3]
    assert len(bodies(queue)) == 6


def test_a_closed_producer_says_so(queue: shardq.Queue) -> None:
    producer = queue.producer()
    producer.close()
    with pytest.raises(shardq.Closed, match="producer"):
        producer.send(b"x")


def test_a_second_client_sees_what_the_first_has_sent(connect: Callable[[], shardq.Client]) -> None:
    one, two = connect(), connect()
    with one.create_queue("shared").producer() as producer:
        producer.send(b"x")
    assert bodies(two.queue("shared")) == [b"x"]
