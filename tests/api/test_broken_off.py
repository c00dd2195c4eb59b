"""What is done in many steps, and broken off as the store is away, never says that nothing was changed when it was."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import ParamSpec, TypeVar

import msgspec
import pytest

import shardq
from shardq.base.shard import Shard
from shardq.core.context.retry import Failures
from shardq.storage.opening import open_store
from shardq.storage.store import Capabilities
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock

P = ParamSpec("P")
T = TypeVar("T")


class AwaySoon(WrappedStore):
    """Cannot be reached after some more requests. If it ``swallows``, the next one is carried out without an answer.

    Or its ``client`` is closed while that one is carried out.
    """

    left = 0
    swallows = False
    client: shardq.Client | None = None
    in_one_step = True

    @property
    def capabilities(self) -> Capabilities:
        """Those of the store, or of one that takes no message from one shard to another in one step."""
        return msgspec.structs.replace(self.inner.capabilities, forward_across_shards=self.in_one_step)

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if threading.current_thread().name == "shardq-relay":
            return super().call(method, do, *args, **kwargs)
        self.left -= 1
        if self.left == -1 and self.client is not None:
            self.client.close()
            answer = super().call(method, do, *args, **kwargs)
            if self.swallows:
                raise shardq.OutcomeUnknown("no answer")
            return answer
        if self.left == -1 and self.swallows:
            super().call(method, do, *args, **kwargs)
            raise shardq.OutcomeUnknown("no answer")
        if self.left < 0:
            raise shardq.StoreUnavailable("away")
        return super().call(method, do, *args, **kwargs)


@pytest.fixture
def store(url: str, clock: ManualClock) -> Iterator[AwaySoon]:
    store = AwaySoon(open_store(url, clock))
    yield store
    store.close()


def filled(client: shardq.Client, name: str) -> shardq.Queue:
    """A queue with a schedule, and with waiting, processed and blocked messages and dead letters, in several shards."""
    queue = client.create_queue(
        name, shards=3, time_shards=1, history_retention=1_000, on_dead_letter="block", retry_delay=0
    )
    with queue.producer(bundle_messages=2) as producer, queue.consumer() as consumer:
        producer.send_many([b"processed"] * 12)
        consumer.receive(12).ack()
        producer.send_many([b"dead"] * 12)
        for group in ("a", "b", "c"):
            producer.send_many([b"blocked", b"behind"], group=group)
        while batch := consumer.receive(100):
            batch.dead_letter("why")
        producer.send_many([b"waiting"] * 12)
    client.schedules.create(name, queue=name, every=3_600)
    return queue


OPERATIONS: dict[str, Callable[[shardq.Client, str], object]] = {
    "purge": lambda client, name: client.queue(name).purge(),
    "replay": lambda client, name: client.queue(name).replay(),
    "redrive": lambda client, name: client.queue(name).redrive(),
    "create": lambda client, name: client.create_queue(f"{name}.other", shards=2),
    "alter": lambda client, name: client.queue(name).alter(
        max_deliveries=7, dead_letter_queue=f"{name}.others"
    ),
    "delete": lambda client, name: client.delete_queue(name),
    "pause": lambda client, name: client.queue(name).pause(),
    "schedule": lambda client, name: client.schedules.create(f"{name}.new", queue=name, every=60),
    "alter schedule": lambda client, name: client.schedules.pause(name),
    "remove schedule": lambda client, name: client.schedules.delete(name),
    "send": lambda client, name: client.queue(name).producer().send_many(unique(6)),
    "forward": lambda client, name: (
        client.queue(name).consumer().receive(4).forward(f"{name}.dead", atomic=False)
    ),
    "dead-letter": lambda client, name: client.queue(name).consumer().receive(4).dead_letter("why"),
}


def with_topic(client: shardq.Client, name: str) -> None:
    """A topic with a subscription that has got a message, and a semaphore."""
    topic = client.create_topic(name)
    topic.subscribe("mail")
    topic.publish(b"one")
    topic.relay()
    client.semaphore(name, permits=3)


OF_TOPICS: dict[str, Callable[[shardq.Client, str], object]] = {
    "create topic": lambda client, name: client.create_topic(f"{name}.other"),
    "delete topic": lambda client, name: client.delete_topic(name),
    "subscribe": lambda client, name: client.topic(name).subscribe("new", start="earliest"),
    "unsubscribe": lambda client, name: client.topic(name).subscription("mail").delete(),
    "seek": lambda client, name: client.topic(name).subscription("mail").seek("earliest"),
    "create semaphore": lambda client, name: client.semaphore(f"{name}.other", permits=2),
    "semaphore": lambda client, name: client.semaphore(name).alter(permits=20),
}


def unique(messages: int) -> list[shardq.OutgoingMessage]:
    """Messages with unique keys, which go to several shards."""
    return [
        shardq.OutgoingMessage(body=b"new", unique_key=str(number), group=str(number))
        for number in range(messages)
    ]


def stored(client: shardq.Client) -> dict[str, object]:
    """The settings, the ids of the messages and the schedules of each queue."""
    queues = [client.queue(name) for name in client.queues()]
    subscriptions = [
        client.topic(topic).subscription(name)
        for topic in client.topics()
        for name in client.topic(topic).subscriptions()
    ]
    return (
        {each.name: (each.settings, ids_in(each)) for each in queues}
        | {f"schedule {each.id}": each for each in client.schedules.list()}
        | {f"topic {name}": None for name in client.topics()}
        | {f"subscription {each.topic} {each.name}": ids_in(each.queue) for each in subscriptions}
    )


def ids_in(queue: shardq.Queue) -> list[str]:
    """The messages of a queue, but for the mark of a topic, which is never due."""
    return sorted(message.id for message in queue.peek(1_000) if message.due.year < 2100)


@pytest.mark.parametrize("fault", ["away", "swallowed", "closed"])
@pytest.mark.parametrize(
    ("operation", "in_one_step"),
    [
        *((each, True) for each in (*OPERATIONS, *OF_TOPICS)),
        *((each, False) for each in ("redrive", "forward", "dead-letter")),
    ],
)
def test_whatever_request_fails_nothing_was_changed_when_that_is_what_is_raised(
    client: shardq.Client, store: AwaySoon, operation: str, in_one_step: bool, fault: str
) -> None:
    raised = set()
    store.in_one_step, store.swallows = in_one_step, fault == "swallowed"
    for number in itertools.count():
        name = f"q{number}"
        (with_topic if operation in OF_TOPICS else filled)(client, name)
        before = stored(client)
        store.left = number
        try:
            with shardq.Client(store, retry_seconds=0) as other:
                store.client = other if fault == "closed" else None
                (OPERATIONS | OF_TOPICS)[operation](other, name)
                store.left = 1_000
        except (shardq.StoreUnavailable, shardq.Closed):
            assert stored(client) == before, number
            raised.add("unavailable")
        except (shardq.OutcomeUnknown, shardq.PartialSend):
            raised.add("unknown")
        else:
            break
        for each in client.topics():
            client.delete_topic(each)
        for each in client.queues():
            client.delete_queue(each)
    assert raised
    assert fault == "closed" or ("unknown" if fault == "swallowed" else "unavailable") in raised


SETTLING: dict[str, Callable[[shardq.Client, shardq.Batch], object]] = {
    "ack": lambda _, batch: batch.ack(),
    "release": lambda _, batch: batch.release(),
    "give back": lambda _, batch: batch.release(count=False),
    "dead-letter": lambda _, batch: batch.dead_letter("why"),
    "forward": lambda _, batch: batch.forward("other", atomic=False),
    "evict": lambda client, batch: client.queue(str(batch.queue)).evict("mine", force=True),
}


def states(queue: shardq.Queue) -> list[tuple[str, shardq.EntryState, str | None]]:
    """What becomes of messages that are settled."""
    return [(message.id, message.state, message.blocked) for message in queue.peek(100)]


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize("verb", SETTLING)
def test_a_batch_of_which_a_part_is_settled_when_the_client_is_closed_is_not_as_it_was(
    client: shardq.Client, store: AwaySoon, verb: str, swallows: bool
) -> None:
    raised, store.left = set[type](), 10_000
    client.create_queue("other", max_deliveries=None)
    for number in itertools.count():
        queue = client.create_queue(f"q{number}", shards=3, time_shards=1, on_dead_letter="block")
        queue.producer(bundle_messages=2).send_many([b"x"] * 6)
        queue.producer().send(b"x", group="a")
        with shardq.Client(store, retry_seconds=0) as other:
            batch = other.queue(queue.name).consumer(name="mine").receive(7)
            assert len(batch) == 7
            before = states(queue)
            store.left, store.client, store.swallows = number, other, swallows
            try:
                SETTLING[verb](other, batch)
            except shardq.ShardqError as error:
                raised.add(type(error))
                if isinstance(error, shardq.Closed):
                    assert states(queue) == before, number
            else:
                break
            finally:
                store.left, store.client, store.swallows = 10_000, None, False
    assert shardq.OutcomeUnknown in raised


def test_what_was_not_answered_stays_unknown_when_the_client_is_closed_before_it_is_repeated() -> None:
    failures, shard = Failures(), Shard("q", 0, 0)
    failures.add(shard, shardq.OutcomeUnknown("no answer"))
    failures.add(shard, shardq.Closed("this client is closed"))
    assert isinstance(failures.error("1 message was not acked"), shardq.OutcomeUnknown)


def test_a_pop_that_was_not_answered_when_the_client_is_closed_may_have_acked(
    client: shardq.Client, store: AwaySoon
) -> None:
    queue = client.create_queue("q", shards=1, time_shards=1)
    raised, store.left = set[type](), 10_000
    number = passes = 0
    while passes < 5:  # as a pop makes one request more now and then, one pass may miss the claim
        queue.purge()
        queue.producer().send(b"x")
        with shardq.Client(store, retry_seconds=0) as other:
            consumer = other.queue("q").consumer()
            store.left, store.client, store.swallows = number, other, True
            try:
                consumer.pop()
            except shardq.ShardqError as error:
                raised.add(type(error))
                assert queue.peek() or isinstance(error, shardq.OutcomeUnknown), number
                number += 1
            else:
                number, passes = 0, passes + 1
            finally:
                store.left, store.client, store.swallows = 10_000, None, False
    assert shardq.OutcomeUnknown in raised


def test_a_purge_whose_first_shard_was_emptied_without_an_answer_says_that_something_may_be_removed(
    url: str, client: shardq.Client, clock: ManualClock
) -> None:
    queue = filled(client, "q")
    lost = Fault("purge", 1, FaultKind.LOST_RESPONSE)  # its repetition finds nothing
    away = (Fault("purge", number, FaultKind.UNAVAILABLE) for number in range(3, 200))
    store = FaultyStore(open_store(url, clock), FaultPlan(faults=(lost, *away)))
    before = len(queue.peek(1_000))
    with (
        shardq.Client(store, retry_seconds=0.2) as other,
        pytest.raises(shardq.OutcomeUnknown, match="some messages are removed"),
    ):
        other.queue("q").purge()
    assert 0 < len(queue.peek(1_000)) < before


class WithoutRoom(WrappedStore):
    """Cannot hold the shards of another queue."""

    def create_shards(self, shards: Sequence[Shard]) -> None:
        raise shardq.InvalidSetting(f"there is no room for {len(shards)} shards")


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("lost", [FaultKind.LOST_RESPONSE, FaultKind.LOST_REQUEST, None])
def test_a_queue_for_whose_shards_there_is_no_room_is_there_only_if_somebody_else_created_it(
    url: str, client: shardq.Client, clock: ManualClock, lost: FaultKind | None, exists: bool
) -> None:
    faults = () if lost is None else (Fault("create_queue", 1, lost),)
    store = FaultyStore(WithoutRoom(open_store(url, clock)), FaultPlan(faults=faults))
    with shardq.Client(store, retry_seconds=5) as other:
        if exists:
            client.create_queue("q", max_deliveries=None)
            other.create_queue("q", exist_ok=True)
        else:
            with pytest.raises(shardq.InvalidSetting, match="no room"):
                other.create_queue("q", exist_ok=True)
    assert client.exists("q") == exists


class Interrupted(WrappedStore):
    """Ctrl-C comes while the second shard is written to, and then the store is away."""

    appends = 0

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self.appends >= 2:
            raise shardq.StoreUnavailable("away")
        self.appends += method == "append"
        if self.appends >= 2:
            raise KeyboardInterrupt
        return super().call(method, do, *args, **kwargs)


def test_ctrl_c_within_a_send_of_unique_keys_is_raised_whatever_fails_after_it(
    url: str, client: shardq.Client, clock: ManualClock
) -> None:
    client.create_queue("q", shards=3, time_shards=1)
    with (
        shardq.Client(Interrupted(open_store(url, clock)), retry_seconds=0) as other,
        pytest.raises(KeyboardInterrupt),
    ):
        other.queue("q").producer().send_many(unique(6))
