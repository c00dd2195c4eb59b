"""Queues with ``expires``: deleted when they were empty and unused for so long, and never with a message in them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

import shardq
from shardq import Client, Queue
from shardq.base.shard import Shard
from shardq.core import queue_lifecycle
from shardq.core.context import queue_context
from shardq.core.context.queue_context import QueueContext
from shardq.core.receiving.named_claim_log import ClaimName
from shardq.core.receiving.named_claims import NamedClaims
from shardq.storage.opening import open_store
from shardq.storage.records import QueueRecord
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock
from shardq.testing.seam import context_of, contexts_of, expire_caches, store_of

EXPIRES = 60


@pytest.fixture
def queue(client: Client) -> Queue:
    return client.create_queue("a/1", expires=EXPIRES, shards=2, time_shards=2)


def sweep(client: Client, clock: ManualClock, seconds: float = 0) -> tuple[str, ...]:
    clock.advance(seconds)
    return client.delete_expired_queues("a/1")


def notice(queue: Queue) -> None:
    """Let the time pass after which the settings are read again."""
    expire_caches(queue)


def test_a_queue_that_nobody_uses_is_deleted_with_its_dead_letter_queue(
    client: Client, clock: ManualClock, queue: Queue
) -> None:
    assert not sweep(client, clock, 1_000)  # the first sweep finds it unused
    assert not sweep(client, clock, EXPIRES)  # somebody may have used it until everybody knew that
    assert sweep(client, clock, 3) == ("a/1", "a/1.dead")
    assert not client.exists("a/1")
    with pytest.raises(shardq.QueueNotFound):
        notice(queue)
        queue.producer().send(b"x")


def test_settings_that_cannot_be_read_keep_no_other_queue_from_being_deleted(
    client: Client, clock: ManualClock, queue: Queue
) -> None:
    store_of(client).create_queue(QueueRecord.new("a/0", b"{"))
    for seconds in (1_000, EXPIRES + 3):
        clock.advance(seconds)
        with pytest.raises(shardq.UnreadableSettings, match="'a/0'"):
            client.delete_expired_queues()
    assert not client.exists(queue.name)


def send(_client: Client, queue: Queue) -> None:
    queue.producer().send(b"x")
    assert queue.consumer().pop()


def receive_nothing(_client: Client, queue: Queue) -> None:
    assert not queue.consumer().receive(1)


def receive_from_several(client: Client, queue: Queue) -> None:
    client.create_queue("other", exist_ok=True)
    assert not client.consumer([queue.name, "other"]).receive(1)


def claim_by_name(_client: Client, queue: Queue) -> None:
    claims = NamedClaims(context_of(queue), lease=1_000_000, memory=1_000_000)
    claims.take(ClaimName(Shard(queue.name, 0, 0), "part"), 1, owner="spark", strict=False)


def create_again(client: Client, queue: Queue) -> None:
    client.create_queue(queue.name, exist_ok=True)


def alter(_client: Client, queue: Queue) -> None:
    queue.alter(visibility_timeout=7)


USES: tuple[Callable[[Client, Queue], None], ...] = (
    send,
    receive_nothing,
    receive_from_several,
    claim_by_name,
    create_again,
    alter,
)


@pytest.mark.parametrize("use", USES)
def test_whoever_uses_a_queue_keeps_it(
    client: Client, clock: ManualClock, queue: Queue, use: Callable[[Client, Queue], None]
) -> None:
    for _ in range(3):
        assert "a/1" not in sweep(client, clock)
        clock.advance(EXPIRES - 1)
        notice(queue)
        use(client, queue)
        assert "a/1" not in sweep(client, clock, 10)
    assert "a/1" in sweep(client, clock, EXPIRES + 3)


@pytest.mark.parametrize("delay", [0, 1_000])
def test_a_queue_that_holds_a_message_is_not_deleted(
    client: Client, clock: ManualClock, queue: Queue, delay: float
) -> None:
    queue.producer().send(b"x", delay=delay)
    for _ in range(3):
        assert "a/1" not in sweep(client, clock, 200)
    clock.advance(delay)
    assert queue.consumer().pop()


def test_a_queue_whose_message_is_in_flight_is_not_deleted(
    client: Client, clock: ManualClock, queue: Queue
) -> None:
    queue.producer().send(b"x")
    batch = queue.consumer(visibility_timeout=1_000).receive(1)
    for _ in range(3):
        assert "a/1" not in sweep(client, clock, 200)
    batch.ack()
    assert "a/1" in sweep(client, clock)


def test_messages_that_expire_make_the_queue_empty(client: Client, clock: ManualClock) -> None:
    queue = client.create_queue("a/1", expires=EXPIRES, retention=100, dead_letter_expired=True)
    queue.producer().send(b"x")
    assert not sweep(client, clock)
    assert "a/1" not in sweep(client, clock, 90)
    assert sweep(client, clock, 11) == ("a/1",)
    # And the dead letter keeps its queue
    assert not sweep(client, clock, 1_000)
    assert client.queue("a/1.dead").counts().ready == 1


def test_a_queue_without_the_setting_stays_and_costs_nothing(client: Client, clock: ManualClock) -> None:
    queue = client.create_queue("a/1", max_deliveries=None)
    record = store_of(client).load_queue("a/1")
    for _ in range(3):
        assert not sweep(client, clock, 10**6)
    assert store_of(client).load_queue("a/1") == record
    queue.alter(expires=EXPIRES)
    sweep(client, clock)
    queue.alter(expires=None)
    assert not sweep(client, clock, 10**6)


def test_a_queue_that_is_used_between_the_look_and_the_deletion_stays(
    client: Client, clock: ManualClock, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(client, clock)
    is_empty = queue_lifecycle.is_empty

    def used_meanwhile(context: QueueContext) -> bool:
        empty = is_empty(context)
        if context.name == "a/1":
            notice(queue)
            queue.producer().send(b"x")
        return empty

    monkeypatch.setattr(queue_lifecycle, "is_empty", used_meanwhile)
    assert "a/1" not in sweep(client, clock, EXPIRES + 3)
    assert queue.counts().ready == 1


def test_a_queue_that_was_deleted_and_created_again_meanwhile_stays(
    client: Client, clock: ManualClock, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(client, clock)
    is_empty, waits = queue_lifecycle.is_empty, ["for a while"]

    def created_again(context: QueueContext) -> bool:
        empty = is_empty(context)
        if waits and waits.pop():
            client.delete_queue("a/1")
            client.create_queue("a/1", expires=EXPIRES, shards=2, time_shards=2)
            client.delete_expired_queues("a/1")
            client.queue("a/1").producer().send(b"x")
        return empty

    monkeypatch.setattr(queue_lifecycle, "is_empty", created_again)
    sweep(client, clock, EXPIRES + 3)
    assert client.queue("a/1").counts().ready == 1


@pytest.mark.parametrize("number", range(1, 4))
@pytest.mark.parametrize("kind", [FaultKind.LOST_REQUEST, FaultKind.LOST_RESPONSE])
@pytest.mark.parametrize("method", ["update_queue", "drop_queue", "load_queue"])
def test_an_answer_that_is_lost_changes_nothing(
    url: str, clock: ManualClock, queue: Queue, method: str, kind: FaultKind, number: int
) -> None:
    plan = FaultPlan(faults=(Fault(method, number, kind),))
    faulty = Client(FaultyStore(open_store(url, clock), plan))
    sweep(faulty, clock)
    sweep(faulty, clock, EXPIRES + 3)
    assert not faulty.exists("a/1")
    faulty.close()


def test_a_consumer_deletes_what_has_expired_beside_it(
    client: Client, clock: ManualClock, queue: Queue
) -> None:
    client.create_queue("a/2", expires=10 * EXPIRES, max_deliveries=None)
    client.create_queue("b/1", expires=EXPIRES, max_deliveries=None)
    with client.queue("a/2").consumer() as consumer:
        for _ in range(100):
            assert not consumer.receive(1)
            clock.advance(61)
        assert client.queues("a/") == ("a/2",)
        assert client.exists("b/1")


def test_limits_go_with_their_queue(client: Client, clock: ManualClock) -> None:
    queue = client.create_queue("a/1", expires=EXPIRES, max_in_flight=2, max_deliveries=None)
    queue.producer().send(b"x")
    assert queue.consumer().pop()
    assert client.queues("_shardq/permits/a/1.") == ("_shardq/permits/a/1.in-flight",)
    sweep(client, clock)
    assert sweep(client, clock, EXPIRES + 3) == ("a/1",)
    assert not client.queues("a/1")


def test_limits_go_with_a_queue_whose_deletion_was_not_answered(
    url: str, client: Client, clock: ManualClock
) -> None:
    queue = client.create_queue("a/1", expires=EXPIRES, max_in_flight=2, max_deliveries=None)
    queue.producer().send(b"x")
    assert queue.consumer().pop()
    plan = FaultPlan(faults=(Fault("drop_queue", 1, FaultKind.LOST_RESPONSE),))
    with Client(FaultyStore(open_store(url, clock), plan)) as faulty:
        sweep(faulty, clock)
        assert sweep(faulty, clock, EXPIRES + 3) == ("a/1",)
    assert not client.queues("a/1")


@pytest.mark.parametrize("expires", [0, 29, -1, True, "1h", float("nan")])
def test_a_time_that_makes_no_sense_is_refused(client: Client, expires: float) -> None:
    with pytest.raises(shardq.InvalidSetting, match="expires"):
        client.create_queue("a/1", expires=expires)
    assert not client.exists("a/1")


def test_a_client_forgets_queues_that_others_have_deleted(
    client: Client, connect: Callable[[], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_context, "_MOST", 3)
    first, other = client.create_queue("first"), connect()
    for number in range(10):
        client.create_queue(f"reply-{number}", max_deliveries=None)
        other.delete_queue(f"reply-{number}")
    assert len(contexts_of(client)) <= 3
    with pytest.raises(shardq.QueueNotFound):
        client.queue("reply-9")
    assert "reply-9" not in contexts_of(client)
    # What is in use goes on, remembered or not
    first.producer().send(b"x")
    assert client.queue("first").consumer().receive().bodies == [b"x"]


@pytest.mark.parametrize("kind", [FaultKind.LOST_REQUEST, FaultKind.LOST_RESPONSE, FaultKind.UNAVAILABLE])
@pytest.mark.parametrize("number", range(1, 4))
@pytest.mark.parametrize("method", ["drop_queue", "load_queue", "list_queues", "shards"])
@pytest.mark.parametrize("at_once", [True, False])
def test_what_is_deleted_is_forgotten_also_when_the_call_fails(
    url: str, client: Client, clock: ManualClock, method: str, number: int, kind: FaultKind, at_once: bool
) -> None:
    """By both doors that delete queues, wherever they fail."""
    for name in ("a/1", "a/2"):
        client.create_queue(name, expires=EXPIRES, max_deliveries=None)
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with Client(store, retry_seconds=0) as faulty:
        sweep(faulty, clock)
        faulty.delete_expired_queues("a/2")
        clock.advance(EXPIRES + 3)
        for name in ("a/1", "a/2"):
            faulty.queue(name)
        number += sum(call.method == method for call in store.calls)
        store.plan = FaultPlan(faults=(Fault(method, number, kind),))
        with suppress(shardq.ShardqError):
            if at_once:
                faulty.delete_expired_queues("a/")
            else:
                for name in ("a/1", "a/2"):
                    faulty.delete_queue(name)
        assert set(contexts_of(faulty)) <= set(client.queues())
