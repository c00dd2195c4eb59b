"""A message that is forwarded with another body, headers, priority or delay: once, whoever repeats it and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import shardq
from shardq.base.shard import Shard
from shardq.storage.opening import open_store
from shardq.storage.requests import Append
from shardq.storage.store import Store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock
from tests.dying_store import STEPS, Died, DyingStore

HOURS = 3 * 3_600

Changes = dict[str, Any]
PLAIN: Changes = {}
FIRST: Changes = {"body": b"first", "headers": {"by": "first"}, "priority": 2, "delay": 60}
SECOND: Changes = {"body": b"second" * 2_000, "headers": {}, "priority": 7, "delay": 600}
DELAYED: Changes = {"delay": 5}
ATTEMPTS = {
    "plain, then changed": (PLAIN, FIRST),
    "changed, then plain": (FIRST, PLAIN),
    "changed, then as before": (FIRST, FIRST),
    "changed, then otherwise": (FIRST, SECOND),
    "long, then short": (SECOND, FIRST),
    "plain, then delayed": (PLAIN, DELAYED),
    "delayed, then plain": (DELAYED, PLAIN),
}


class BlindStore(DyingStore):
    """A store that writes without a look, as Cassandra does: it has to be given a bundle in one place only."""

    places: dict[bytes, tuple[Shard, int, int]]

    def append(self, request: Append) -> None:
        for bundle in request.bundles:
            place = request.shard, bundle.priority, bundle.due
            assert self.places.setdefault(bundle.id, place) == place
        super().append(request)


class Fleet:
    """Clients of one store, which come and go, and two queues."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.url, self.clock = url, clock
        self.places: dict[bytes, tuple[Shard, int, int]] = {}
        self.sound = self.client()
        self.queue = self.sound.create_queue("q", shards=1, time_shards=1, max_deliveries=None)
        self.target = self.sound.create_queue("other", shards=3, time_shards=4, max_deliveries=None)

    def client(self, *, dies_at: int | None = None, after: bool = False) -> shardq.Client:
        """A client that dies at a step."""
        store = BlindStore(open_store(self.url, self.clock))
        store.places, store.calls_left, store.after = self.places, dies_at, after
        return shardq.Client(store, retry_seconds=0.0)

    def arrived(self) -> list[bytes]:
        """Receive and ack all that there is in the target, whenever it is due."""
        bodies: list[bytes] = []
        with self.target.consumer() as consumer:
            for _ in range(3):
                self.clock.advance(700)
                batch = consumer.receive(100)
                batch.ack()
                bodies += batch.bodies
        return bodies


@pytest.fixture
def fleet(url: str, clock: ManualClock) -> Fleet:
    return Fleet(url, clock)


def the_message(queue: shardq.Queue, **options: Any) -> shardq.Message:
    queue.producer().send(b"sent", headers={"a": 1}, priority=4, **options)
    (message,) = queue.consumer().receive(1)
    return message


def in_one_step(url: str, clock: ManualClock) -> Store:
    return open_store(url, clock)


def step_by_step(url: str, clock: ManualClock) -> Store:
    return DyingStore(open_store(url, clock))


every_way = pytest.mark.parametrize("way", [in_one_step, step_by_step])


@every_way
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (PLAIN, {}),
        ({"body": b"new"}, {"body": b"new"}),
        ({"headers": {"b": 2}}, {"headers": {"b": 2}}),
        ({"headers": {}}, {"headers": {}}),
        ({"priority": 0}, {"priority": 0}),
        ({"priority": 4}, {}),
        ({"delay": 60}, {"wait": 60}),
        (
            {"body": b"new", "headers": {"b": 2}, "priority": 9, "delay": 5},
            {"body": b"new", "headers": {"b": 2}, "priority": 9, "wait": 5},
        ),
    ],
)
def test_what_is_given_changes_and_the_rest_stays(
    url: str,
    clock: ManualClock,
    way: Callable[[str, ManualClock], Store],
    changes: Changes,
    told: dict[str, Any],
) -> None:
    client = shardq.Client(way(url, clock))
    queue, other = client.create_queue("q"), client.create_queue("other")
    message = the_message(queue)
    sent_at = message.enqueued_at
    clock.advance(10)
    message.forward("other", atomic=False, **changes)
    (found,) = other.peek()
    wait = max(0, round((found.due - client.now()).total_seconds()))
    assert {"body": found.body, "headers": found.headers, "priority": found.priority, "wait": wait} == {
        "body": b"sent",
        "headers": {"a": 1},
        "priority": 4,
        "wait": 0,
    } | told
    assert found.enqueued_at == sent_at
    assert queue.counts().oldest is None
    clock.advance(wait + 1)
    (received,) = other.consumer().receive(5)
    received.ack()
    assert other.counts().oldest is None


@pytest.mark.parametrize("attempts", ATTEMPTS.values(), ids=ATTEMPTS)
@pytest.mark.parametrize("worked", [False, True], ids=["kept", "worked"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(len(STEPS)), ids=STEPS)
def test_a_forward_that_was_cut_off_is_completed_by_one_that_changes_the_message_otherwise(
    fleet: Fleet, step: int, after: bool, worked: bool, attempts: tuple[Changes, Changes]
) -> None:
    fleet.queue.producer().send(b"sent")
    (message,) = fleet.client(dies_at=step, after=after).queue("q").consumer().receive(1)
    with pytest.raises(Died):
        message.forward("other", atomic=False, **attempts[0])
    seen = fleet.arrived() if worked else []
    fleet.clock.advance(HOURS)
    fleet.target.sweep()
    for batch in fleet.queue.consumer().batches(1, wait=0):
        batch[0].forward("other", atomic=False, **attempts[1])
    seen += fleet.arrived()
    assert len(seen) == 1
    assert seen[0] in [changes.get("body", b"sent") for changes in attempts]
    assert fleet.queue.counts().oldest is None
    assert fleet.target.counts().oldest is None


def test_a_copy_that_is_stored_stays_as_it_is_when_the_move_is_made_again(fleet: Fleet) -> None:
    fleet.queue.producer().send(b"sent")
    dies_at = STEPS.index("confirm_keys")
    (message,) = fleet.client(dies_at=dies_at).queue("q").consumer().receive(1)
    with pytest.raises(Died):
        message.forward("other", atomic=False, **FIRST)
    fleet.clock.advance(31)
    (message,) = fleet.queue.consumer().receive(1)
    message.forward("other", atomic=False, **SECOND)
    (found,) = fleet.target.peek()
    assert (found.body, found.headers, found.priority) == (b"first", {"by": "first"}, 2)


@pytest.mark.parametrize("kind", FaultKind)
@every_way
def test_an_attempt_that_failed_is_repeated_and_moves_once(
    url: str, clock: ManualClock, way: Callable[[str, ManualClock], Store], kind: FaultKind
) -> None:
    store = FaultyStore(way(url, clock), FaultPlan())
    client = shardq.Client(store, retry_seconds=0.0)
    queue, other = client.create_queue("q"), client.create_queue("other")
    message = the_message(queue)
    fault = (
        Fault("forward", 1, kind) if way is in_one_step else Fault("append", 2, kind)
    )  # the send is the first
    store.plan = FaultPlan(faults=(fault,))
    with pytest.raises(shardq.ShardqError):
        message.forward("other", atomic=False, **FIRST)
    message.forward("other", atomic=False, **SECOND)
    assert len(other.peek(10)) == 1
    assert queue.counts().oldest is None


@every_way
def test_a_batch_is_forwarded_with_a_delay_and_another_priority(
    url: str, clock: ManualClock, way: Callable[[str, ManualClock], Store]
) -> None:
    client = shardq.Client(way(url, clock))
    queue, other = client.create_queue("q"), client.create_queue("other")
    queue.producer().send_many([b"%02d" % number for number in range(20)])
    queue.consumer().receive(20).forward("other", delay=60, priority=1, atomic=False)
    assert other.counts().delayed == 20
    clock.advance(60)
    batch = other.consumer().receive(30)
    assert batch.bodies == [b"%02d" % number for number in range(20)]
    assert {message.priority for message in batch} == {1}


@every_way
def test_a_message_can_be_forwarded_to_its_own_queue(
    url: str, clock: ManualClock, way: Callable[[str, ManualClock], Store]
) -> None:
    client = shardq.Client(way(url, clock))
    queue = client.create_queue("q", shards=1, time_shards=1)
    message = the_message(queue)
    for number in range(3):
        message.forward("q", body=b"%d" % number, delay=60, atomic=False)
        assert queue.counts().delayed == 1
        clock.advance(60)
        (message,) = queue.consumer().receive(5)
        assert (message.body, message.deliveries) == (b"%d" % number, 1)


def test_the_body_is_encoded_by_the_codec_of_the_consumer(client: shardq.Client) -> None:
    queue, other = client.create_queue("q"), client.create_queue("other")
    queue.producer(codec=shardq.JSON).send({"number": 1})
    (message,) = queue.consumer(codec=shardq.JSON).receive(1)
    message.forward("other", body={**message.body, "paid": True})
    assert other.peek(codec=shardq.JSON)[0].body == {"number": 1, "paid": True}


@pytest.mark.parametrize(
    "changes",
    [
        {"body": "text"},
        {"body": b"x" * 2_000},
        {"headers": {"long": "x" * 2_000}},
        {"headers": {1: 2}},
        {"headers": ["a"]},
        {"priority": 10},
        {"priority": True},
        {"delay": -1},
        {"delay": "soon"},
    ],
    ids=str,
)
def test_what_cannot_be_sent_is_refused_with_nothing_moved(client: shardq.Client, changes: Changes) -> None:
    queue, other = client.create_queue("q"), client.create_queue("other", max_message_bytes=1_000)
    message = the_message(queue)
    with pytest.raises(shardq.InvalidMessage):
        message.forward("other", **changes)
    assert queue.counts().in_flight == 1
    assert other.counts().oldest is None
    message.forward("other")


def test_the_moment_at_which_it_expires_stays(client: shardq.Client, clock: ManualClock) -> None:
    queue, other = client.create_queue("q"), client.create_queue("other")
    the_message(queue, ttl=30).forward("other", delay=20)
    clock.advance(31)
    assert other.consumer().receive(1).bodies == []
