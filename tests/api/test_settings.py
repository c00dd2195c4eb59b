"""Settings: checked before they are stored, and changed on a queue in use."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

import shardq
from shardq.base.clock import SystemClock
from shardq.storage.opening import open_store
from shardq.storage.requests import QueueRecord
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock
from shardq.testing.seam import context_of


def send(queue: shardq.Queue, *bodies: bytes, **options: float) -> None:
    with queue.producer() as producer:
        producer.send_many(bodies, **options)  # type: ignore[arg-type]


def receive(queue: shardq.Queue) -> list[bytes]:
    with queue.consumer() as consumer:
        return sorted(message.body for batch in consumer.batches(100, wait=0) for message in batch)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shards", 0),
        ("shards", -1),
        ("shards", 1.5),
        ("shards", "4"),
        ("shards", True),
        ("shards", 10**9),
        ("time_shards", 0),
        ("time_shard_seconds", 0),
        ("time_shard_seconds", math.nan),
        ("time_shard_seconds", math.inf),
        ("visibility_timeout", -5),
        ("visibility_timeout", None),
        ("visibility_timeout", "30"),
        ("max_deliveries", 0),
        ("retention", 0),
        ("history_retention", -1),
        ("dedupe_window", 0),
        ("max_message_bytes", 0),
        ("max_message_bytes", 2**50),
        ("dead_letter_queue", "a:b"),
        ("dead_letter_queue", 5),
        ("delivery_paused", "yes"),
        ("colour", "red"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name_and_nothing_is_stored(
    client: shardq.Client, queue: shardq.Queue, name: str, value: Any
) -> None:
    before = queue.settings
    setting: Any = {name: value}
    with pytest.raises(shardq.InvalidSetting, match=name):
        queue.alter(**setting)
    assert client.queue(queue.name).settings == before
    with pytest.raises(shardq.ShardqError):
        client.create_queue("never", **setting)
    assert not client.exists("never")


UNREADABLE = {
    "cut off": b"{",
    "a list": b"[]",
    "no UTF-8": b'{"dead_letter_queue": "\xe9"}',
    "a number beyond all": b'{"retention": %s}' % (b"9" * 400),
    "nested": b'{"another": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("stored", UNREADABLE.values(), ids=UNREADABLE)
def test_stored_settings_that_cannot_be_read_are_told_as_that(stored: bytes) -> None:
    with pytest.raises(shardq.UnreadableSettings, match=r"'orders' cannot be read .*; use the version"):
        shardq.QueueSettings.decode(stored, "orders")


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "a:b",
        "ä",
        "/a",
        "@a",
        "a~b",
        "../x",
        ".hidden",
        "-x",
        "a\n",
        "a'; DROP TABLE entry",
        "x" * 201,
        None,
        5,
    ],
)
def test_a_name_that_could_reach_elsewhere_is_refused(client: shardq.Client, name: str) -> None:
    for use in (client.create_queue, client.queue, client.exists, client.delete_queue):
        with pytest.raises(shardq.InvalidName):
            use(name)


ODD_NAMES = ["a/b", "a@b", "shop/eu-1/orders@v2", "a@0f3a5c7e91", "a//@@", "A.b_c-d/e@f", "x" * 195]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_queue_may_have_an_odd_or_a_long_name(client: shardq.Client, name: str) -> None:
    queue = client.create_queue(name)
    id = queue.producer().send(b"x")  # noqa: A001
    message = queue.consumer().receive(1)[0]
    assert message.id == id
    assert queue.get(id) is not None
    queue.release([message.receipt])
    queue.consumer().receive(1)[0].dead_letter("why")
    assert queue.redrive() == 1
    assert client.queues(name) == (name, f"{name}.dead")
    client.delete_queue(name)
    assert client.queues(name) == (f"{name}.dead",)


def test_a_queue_whose_dead_letter_queue_could_not_be_named_is_refused_with_nothing_created(
    client: shardq.Client,
) -> None:
    name = "x" * 200
    with pytest.raises(shardq.InvalidName, match="a name of at most 195"):
        client.create_queue(name)
    assert not client.exists(name)
    queue = client.create_queue(name, max_deliveries=None)
    with pytest.raises(shardq.InvalidName, match="name it with dead_letter_queue"):
        queue.alter(max_deliveries=3)
    assert queue.settings.max_deliveries is None
    assert client.create_queue("y" * 200, dead_letter_queue="bad").settings.max_deliveries
    assert client.queues("y") == ("y" * 200,)


def test_a_queue_exists_once(
    client: shardq.Client, queue: shardq.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(shardq.QueueExists):
        client.create_queue(queue.name, shards=3)
    kept = queue.settings.shards
    same = client.create_queue(queue.name, exist_ok=True, shards=kept, max_deliveries=7)
    assert same.settings == queue.settings
    (told,) = caplog.messages
    assert told == (
        f"queue {queue.name!r} exists with max_deliveries={queue.settings.max_deliveries}: 7 was not applied; "
        "`alter` changes it"
    )


def test_queues_of_shardqs_own_are_listed_only_for_who_asks_for_them(client: shardq.Client) -> None:
    for name in ("orders", "_shardq/topics/news"):
        client.create_queue(name, max_deliveries=None).producer().send(b"kept")
    assert client.queues() == ("orders",)
    assert client.queues("_") == ()
    assert client.queues("_shardq/t") == ("_shardq/topics/news",)
    assert client.queue("_shardq/topics/news").consumer().receive(1).bodies == [b"kept"]


@pytest.mark.parametrize("name", ["_orders", "_shardq/", "_shardq/_shardq/orders", "_shardq"])
def test_no_other_name_begins_with_an_underscore(client: shardq.Client, name: str) -> None:
    with pytest.raises(shardq.InvalidName, match="first a letter or digit"):
        client.create_queue(name)


@pytest.mark.parametrize("prefix", ["\udcff", "\0", "é", "a b", "*", "a'", "%"])
def test_no_queue_is_listed_for_what_no_name_begins_with(client: shardq.Client, prefix: str) -> None:
    client.create_queue("a")
    assert client.queues(prefix) == client.delete_expired_queues(prefix) == ()


def test_queues_are_listed_by_prefix(client: shardq.Client) -> None:
    for name in ("a", "a.b", "a_b", "ab", "b"):
        client.create_queue(name, max_deliveries=None)
    assert client.queues() == ("a", "a.b", "a_b", "ab", "b")
    assert client.queues("a_") == ("a_b",)
    assert client.queues("%") == ()


def test_a_queue_that_does_not_exist_is_named(client: shardq.Client) -> None:
    with pytest.raises(shardq.QueueNotFound, match="nothing"):
        client.queue("nothing")
    with pytest.raises(shardq.QueueNotFound, match="nothing"):
        client.delete_queue("nothing")


def test_a_deleted_queue_takes_nothing_any_more_and_comes_back_empty(
    connect: Callable[[], shardq.Client],
) -> None:
    client, other = connect(), connect()
    queue = client.create_queue("q")
    producer = other.queue("q").producer()
    producer.send(b"old")
    client.delete_queue("q")
    with pytest.raises(shardq.QueueNotFound):
        producer.send(b"lost?")
    assert client.create_queue("q").counts().ready == 0
    assert client.queue("q").peek() == []
    del queue


def test_every_client_follows_a_changed_setting(connect: Callable[[], shardq.Client]) -> None:
    one, two = connect(), connect()
    queue = one.create_queue("q")
    follower = two.queue("q")
    queue.alter(max_message_bytes=5)
    assert two.queue("q").settings.max_message_bytes == 5
    with pytest.raises(shardq.MessageTooLarge):
        follower.producer().send(b"123456")


def test_two_clients_that_change_different_settings_at_once_keep_both(
    connect: Callable[[], shardq.Client],
) -> None:
    one, two = connect(), connect()
    first = one.create_queue("q")
    second = two.queue("q")
    first.alter(visibility_timeout=11)
    second.alter(max_deliveries=12)
    settings = one.queue("q").settings
    assert (settings.visibility_timeout, settings.max_deliveries) == (11, 12)


def test_a_queue_drains_its_old_layout_after_a_change(client: shardq.Client, clock: ManualClock) -> None:
    queue = client.create_queue("q", shards=10, time_shards=20, time_shard_seconds=5)
    consumer = queue.consumer()
    send(queue, b"old ready")
    send(queue, b"old delayed", delay=300)
    send(queue, b"old held")
    held = consumer.receive(1)
    queue.alter(shards=2, time_shards=3, time_shard_seconds=60)
    send(queue, b"new")
    send(queue, b"new delayed", delay=200)
    assert len(receive(queue)) == 2
    clock.advance(29)
    held.extend(1)
    clock.advance(300)
    assert receive(queue) == [b"new", b"new delayed", b"old delayed", b"old held", b"old ready"]
    queue.alter(shards=50, time_shards=1)
    clock.advance(31)
    assert len(receive(queue)) == 5


def test_a_paused_queue_delivers_nothing_until_it_is_resumed(queue: shardq.Queue) -> None:
    send(queue, b"1", b"2")
    batch = queue.consumer().receive(1)
    queue.pause()
    send(queue, b"3")
    assert receive(queue) == []
    batch.ack()
    queue.resume()
    assert receive(queue) == [b"2", b"3"]


def test_a_queue_whose_sends_are_paused_refuses_them(client: shardq.Client, queue: shardq.Queue) -> None:
    other = client.create_queue("other")
    send(other, b"x")
    queue.pause(sends=True)
    with pytest.raises(shardq.QueuePaused):
        send(queue, b"1")
    with pytest.raises(shardq.QueuePaused):
        other.consumer().receive(1).forward(queue.name)
    queue.resume()
    send(queue, b"1")
    assert receive(queue) == [b"1"]


def test_counts_tell_the_states_apart(queue: shardq.Queue, clock: ManualClock) -> None:
    send(queue, *[b"x"] * 10)
    send(queue, *[b"y"] * 4, delay=60)
    queue.consumer().receive(3)
    counts = queue.counts()
    assert (counts.ready, counts.delayed, counts.in_flight) == (7, 4, 3)
    assert counts.oldest is not None
    assert int(counts.oldest.timestamp() * 1_000_000) == clock.now()
    assert sum(state.counts.ready for state in queue.shard_states()) == 7


def test_peek_shows_messages_of_all_states_and_changes_nothing(queue: shardq.Queue) -> None:
    send(queue, b"1", b"2", b"3")
    send(queue, b"later", delay=60)
    queue.consumer().receive(1)
    for _ in range(2):
        states = {message.body: message.state.value for message in queue.peek(10)}
        assert states == {b"1": "in_flight", b"2": "ready", b"3": "ready", b"later": "delayed"}
    assert len(queue.peek(2)) == 2


def test_purge_removes_everything_and_says_how_much(queue: shardq.Queue) -> None:
    send(queue, *[b"x"] * 700)
    send(queue, b"later", delay=60)
    batch = queue.consumer().receive(10)
    assert queue.purge() == 701
    assert queue.purge() == 0
    assert queue.peek() == []
    batch.ack()


def test_get_finds_a_message_by_its_id_and_remove_removes_it(queue: shardq.Queue) -> None:
    with queue.producer() as producer:
        ids = producer.send_many([b"1", b"2", b"3"])
    found = queue.get(ids[1])
    assert found is not None and found.body == b"2"
    assert queue.remove(ids[1])
    assert queue.get(ids[1]) is None
    assert receive(queue) == [b"1", b"3"]
    with pytest.raises(shardq.InvalidReceipt):
        queue.get("nonsense")


def test_hooks_see_sends_and_acks_and_may_stop_them(url: str) -> None:
    class Recorder(shardq.Hooks):
        def __init__(self) -> None:
            self.seen: list[object] = []
            self.refuse = False

        def before_send(self, queue: str, messages: object) -> None:
            if self.refuse:
                raise PermissionError("no")
            self.seen.append(("before_send", queue, [message.body for message in messages]))  # type: ignore[attr-defined]

        def after_send(self, queue: str, messages: object, ids: object) -> None:
            self.seen.append(("after_send", len(ids)))  # type: ignore[arg-type]

        def before_ack(self, queue: str, messages: object) -> None:
            self.seen.append(("before_ack", len(messages)))  # type: ignore[arg-type]

        def after_ack(self, queue: str, messages: object) -> None:
            self.seen.append(("after_ack", [message.body for message in messages]))  # type: ignore[attr-defined]

    hooks = Recorder()
    with shardq.connect(url, hooks=hooks) as client:
        queue = client.create_queue("q")
        send(queue, b"1", b"2")
        queue.consumer().receive(2).ack()
        assert hooks.seen == [
            ("before_send", "q", [b"1", b"2"]),
            ("after_send", 2),
            ("before_ack", 2),
            ("after_ack", [b"1", b"2"]),
        ]
        hooks.refuse = True
        with pytest.raises(PermissionError):
            queue.producer().send(b"3")
        assert queue.peek() == []


def test_counters_tell_what_a_client_has_done(client: shardq.Client, clock: ManualClock) -> None:
    queue = client.create_queue("q")
    send(queue, b"1", b"2", b"3")
    queue.consumer().receive(3)
    clock.advance(31)
    batch = queue.consumer().receive(3)
    batch[0].release()
    batch.ack()
    queue.consumer().receive(5)
    queue.consumer().receive(5)
    counters = client.counters
    assert (counters.sent, counters.received, counters.redelivered) == (3, 7, 4)
    assert (counters.acked, counters.released, counters.empty_reads) == (2, 1, 1)


@pytest.mark.parametrize("codec", ["json", b"json", None, dict])
def test_what_is_no_codec_is_refused_at_once_and_one_is_named(client: shardq.Client, codec: Any) -> None:
    queue = client.create_queue("q")
    for use in (queue.producer, queue.consumer, queue.peek, queue.history):
        with pytest.raises(shardq.InvalidSetting, match=r"shardq\.JSON"):
            use(codec=codec)


def test_no_queue_becomes_its_own_dead_letter_queue(client: shardq.Client) -> None:
    with pytest.raises(shardq.InvalidSetting, match="the queue itself"):
        client.create_queue("q", dead_letter_queue="q")
    assert not client.exists("q")
    queue = client.create_queue("q")
    with pytest.raises(shardq.InvalidSetting, match="the queue itself"):
        queue.alter(dead_letter_queue="q")
    assert queue.settings.dead_letter_queue is None


def test_the_keyword_arguments_of_type_checkers_are_the_settings() -> None:
    assert get_type_hints(shardq.QueueSettingsArguments) == get_type_hints(shardq.QueueSettings)
    assert shardq.QueueSettingsArguments.__required_keys__ == frozenset()


def test_a_change_of_a_deleted_queue_never_replaces_the_settings_of_the_next_one_of_its_name(
    client: shardq.Client, url: str
) -> None:
    class SlowStore(WrappedStore):
        """A client that stands still between reading the settings and writing them."""

        def update_queue(self, record: QueueRecord) -> bool:
            if client.queue("q").settings.shards == 3:
                client.delete_queue("q")
                client.create_queue("q", shards=1, visibility_timeout=7)
            return super().update_queue(record)

    client.create_queue("q", shards=3, visibility_timeout=99)
    other = shardq.Client(SlowStore(open_store(url, SystemClock())))
    other.queue("q").alter(dedupe_window=50)
    settings = client.queue("q").settings
    assert (settings.shards, settings.visibility_timeout, settings.dedupe_window) == (1, 7, 50)
    other.close()


class CreatedAgain(WrappedStore):
    """Right after a change of its settings the queue is deleted, created again, and read by another thread."""

    then: Callable[[], object] = staticmethod(lambda: None)

    def update_queue(self, record: QueueRecord) -> bool:
        made = super().update_queue(record)
        self.then()
        return made


@pytest.mark.parametrize("first", [1, 2**29], ids=["a lower version", "a higher version"])
def test_the_settings_of_a_queue_that_is_created_again_are_not_taken_for_older_ones(
    url: str, clock: ManualClock, first: int
) -> None:
    store = CreatedAgain(open_store(url, clock))
    store.create_schema()
    old, new = (shardq.QueueSettings(shards=shards) for shards in (2, 3))
    store.create_queue(QueueRecord("q", old.encode(), 2**28))
    with shardq.Client(store) as client:
        queue = client.queue("q")

        def create_again() -> None:
            store.drop_queue("q")
            store.create_queue(QueueRecord("q", new.encode(), first))
            client.queue("q")

        store.then = create_again
        context_of(queue).live.alter({"visibility_timeout": 60})
        assert queue.settings == new


def test_a_client_knows_its_own_change_though_it_has_read_what_was_before(
    url: str, client: shardq.Client, clock: ManualClock
) -> None:
    store = CreatedAgain(open_store(url, clock))
    client.create_queue("q", shards=2)
    with shardq.Client(store) as other:
        queue = other.queue("q")
        live = context_of(queue).live
        before = store.load_queue("q")
        client.queue("q").alter(max_deliveries=3)
        store.then = lambda: live.accept(before)  # a thread that was slow
        live.alter({"visibility_timeout": 60})
        assert (queue.settings.visibility_timeout, queue.settings.max_deliveries) == (60, 3)
