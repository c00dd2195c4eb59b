"""What became of a message: its events, those of what it was before and has become, and what keeping them costs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar, get_args

import msgspec
import pytest

import shardq
from shardq.base.clock import SystemClock
from shardq.core.context.event_writer import Entry
from shardq.core.context.queue_context import QueueContext
from shardq.core.logs.event_log import SETTLES, EventKind
from shardq.core.settling import operations
from shardq.storage.opening import open_store
from shardq.storage.requests import Append, Fenced, Forward
from shardq.storage.store import Store
from shardq.testing import ManualClock, WrappedStore
from shardq.testing.seam import context_of, drive_timers, flush_events
from shardq.worker import Worker
from tests.forking import forked

Connect = Callable[[], shardq.Client]
P = ParamSpec("P")
T = TypeVar("T")

WEEK = 7 * 86_400.0
LOGS = "_shardq/events/"


@pytest.fixture
def orders(client: shardq.Client) -> shardq.Queue:
    return client.create_queue("orders", events=WEEK, max_deliveries=2)


def send(queue: shardq.Queue, body: bytes = b"tea", **options: object) -> str:
    with queue.producer() as producer:
        return producer.send(body, **options)  # type: ignore[arg-type]


def kinds(events: list[shardq.Event]) -> list[str]:
    return [event.kind for event in events]


def take(queue: shardq.Queue, name: str = "billing") -> shardq.Message:
    with queue.consumer(name=name) as consumer:
        (message,) = consumer.receive(1)
        return message


# -- the story


def test_a_trace_tells_who_had_a_message_when_and_what_became_of_it(
    orders: shardq.Queue, clock: ManualClock
) -> None:
    identity = send(orders, delay=60)
    clock.advance(61)
    take(orders).release(delay=10)
    clock.advance(11)
    take(orders, "shipping").ack()
    sent, first, released, second, acked = orders.trace(identity)
    assert (sent.kind, sent.delay, sent.owner, sent.delivery) == ("sent", 60, None, None)
    assert (first.kind, first.owner, first.delivery) == ("claimed", "billing", 1)
    assert (released.kind, released.owner, released.delay) == ("released", "billing", 10)
    assert (second.kind, second.owner, second.delivery) == ("claimed", "shipping", 2)
    assert (acked.kind, acked.owner, acked.delivery) == ("acked", "shipping", 2)
    assert [(each.at - sent.at).total_seconds() for each in (first, released, second, acked)] == [
        61, 61, 72, 72,
    ]  # fmt: skip
    assert {each.message_id for each in orders.trace(identity)} == {identity}


def test_the_story_of_a_dead_letter_is_one_whichever_of_its_ids_is_asked_for(
    client: shardq.Client, orders: shardq.Queue
) -> None:
    identity = send(orders)
    take(orders).release()
    take(orders).release(reason="no stock")
    dead = client.queue("orders.dead")
    (letter,) = dead.peek()
    orders.redrive()
    again = take(orders)
    again.ack()
    story = orders.trace(identity)
    assert kinds(story) == [
        "sent", "claimed", "released", "claimed", "dead_lettered", "claimed", "redriven", "claimed", "acked",
    ]  # fmt: skip
    assert [(each.text, each.to) for each in story if each.to] == [("no stock", letter.id), (None, again.id)]
    assert dead.trace(letter.id) == orders.trace(again.id) == story


def test_it_goes_on_through_a_queue_that_keeps_no_events(client: shardq.Client, orders: shardq.Queue) -> None:
    dead = client.queue("orders.dead")
    dead.alter(events=None)
    identity = send(orders)
    take(orders).dead_letter("odd")
    (letter,) = dead.peek()
    assert kinds(dead.trace(letter.id)) == ["sent", "claimed", "dead_lettered"]
    orders.redrive()
    assert kinds(orders.trace(identity)) == ["sent", "claimed", "dead_lettered", "redriven"]
    assert orders.trace(take(orders).id)[:-1] == orders.trace(identity)[:-1]


def test_a_forward_a_new_body_and_a_removal_are_in_it(client: shardq.Client, orders: shardq.Queue) -> None:
    other = client.create_queue("other", events=WEEK)
    identity = send(orders)
    take(orders).forward("other", headers={"shardq-id": "mine"})
    take(other).release(body=b"better")
    (message,) = other.peek()
    assert other.remove(message.id)
    story = orders.trace(identity)
    assert kinds(story) == ["sent", "claimed", "forwarded", "claimed", "replaced", "removed"]
    assert story[4].to == message.id
    assert other.trace(message.id) == story


def test_a_message_that_is_dropped_tells_why(
    client: shardq.Client, orders: shardq.Queue, clock: ManualClock
) -> None:
    received, delayed = send(orders, ttl=10), send(orders, delay=3_000)
    clock.advance(100)
    with orders.consumer() as consumer:
        assert not consumer.receive(1)
    swept = send(orders, ttl=10)
    orders.alter(retention=60)
    clock.advance(50)
    orders.sweep()
    assert kinds(orders.trace(received)) == ["sent", "claimed", "expired"]
    assert [kinds(orders.trace(each)) for each in (delayed, swept)] == [["sent", "expired"]] * 2
    full = client.create_queue("full", events=WEEK, max_messages=1, overflow="drop_oldest")
    drive_timers(
        full, timer=lambda: clock.now() / 1_000_000
    )  # how often it counts depends on what that takes
    first = send(full)
    clock.advance(1)
    for _ in range(3):
        send(full)
        clock.advance(5)
    assert full.trace(first)[-1].kind == "dropped"
    waits = send(orders, b"old", unique_key="k")
    new = send(orders, b"new", unique_key="k", on_conflict="replace")
    last = orders.trace(waits)[-1]
    assert (last.kind, new in (last.text or "")) == ("replaced", True)


def test_workers_tell_what_failed_and_what_was_put_off(orders: shardq.Queue, clock: ManualClock) -> None:
    identity = send(orders)
    outcomes = iter([shardq.Snooze(5), ValueError("x" * 2_000), shardq.Discard("no use")])

    def handler(_: shardq.Message) -> None:
        raise next(outcomes)

    for _ in range(3):
        Worker(orders, handler, idle_exit=0).run()
        clock.advance(60)
    story = orders.trace(identity)
    assert kinds(story) == [
        "sent", "claimed", "snoozed", "claimed", "failed", "released", "claimed", "failed", "acked",
    ]  # fmt: skip
    assert [each.delivery for each in story] == [None, 1, 1, 1, 1, 1, 2, 2, 2]
    assert story[2].delay == 5
    assert (story[4].text or "").startswith("ValueError: xxx")
    assert len(story[4].text or "") == 500
    assert story[7].text == "discarded: no use"


def test_an_application_notes_what_it_likes(orders: shardq.Queue) -> None:
    identity = send(orders)
    message = take(orders)
    message.note("half of it is done")
    with pytest.raises(shardq.InvalidSetting, match="text=7 is an int: give a str"):
        message.note(7)  # type: ignore[arg-type]
    message.ack()
    assert [(each.kind, each.text) for each in orders.trace(identity)[2:]] == [
        ("noted", "half of it is done"),
        ("acked", None),
    ]


def test_messages_of_one_bundle_have_stories_of_their_own(orders: shardq.Queue) -> None:
    with orders.producer() as producer:
        ids = producer.send_many([b"%d" % number for number in range(300)])
    with orders.consumer() as consumer:
        batch = consumer.receive(300)
        for message in batch[:7:2]:
            message.release()
        batch.part(batch[10:200]).dead_letter("many")
        batch.ack()
    assert kinds(orders.trace(ids[2])) == ["sent", "claimed", "released"]
    assert kinds(orders.trace(ids[3])) == ["sent", "claimed", "acked"]
    moved = orders.trace(ids[111])
    assert kinds(moved) == ["sent", "claimed", "dead_lettered"]
    dead = context_of(orders).sibling("orders.dead")
    found = shardq.Queue(dead).get(moved[-1].to)
    assert found is not None
    assert found.body == b"111"


def test_what_is_done_by_receipt_by_pop_and_for_the_dead_is_told(
    orders: shardq.Queue, clock: ManualClock
) -> None:
    by_receipt = send(orders)
    orders.ack([take(orders).receipt])
    assert kinds(orders.trace(by_receipt)) == ["sent", "claimed", "acked"]
    popped = send(orders)
    with orders.consumer() as consumer:
        assert consumer.pop() is not None
    assert kinds(orders.trace(popped)) == ["sent", "claimed", "acked"]
    held = send(orders)
    dead = orders.consumer(name="dead")
    dead.receive(1)
    clock.advance(25)
    orders.evict("dead")
    last = orders.trace(held)[-1]
    assert (last.kind, last.text, last.owner) == ("released", "evicted", "dead")


def test_what_others_have_done_is_not_told_again(orders: shardq.Queue) -> None:
    identity = send(orders)
    message = take(orders)
    orders.ack([message.receipt])
    orders.ack([message.receipt])
    message.ack()
    assert kinds(orders.trace(identity)) == ["sent", "claimed", "acked"]
    removed = send(orders)
    message = take(orders)
    orders.remove(removed)
    message.ack()
    assert kinds(orders.trace(removed)) == ["sent", "claimed", "removed"]


@pytest.mark.parametrize("applied", [True, False])
def test_a_move_whose_answer_is_lost_leads_to_where_the_message_is(url: str, applied: bool) -> None:
    store = ForgetfulMoves(open_store(url, ManualClock()), applied=applied)
    with shardq.Client(store, retry_seconds=0) as client:
        orders = client.create_queue("orders", events=WEEK)
        identity = send(orders)
        message = take(orders)
        with pytest.raises(shardq.OutcomeUnknown):
            message.dead_letter("odd")
        message.dead_letter("odd")
        (letter,) = client.queue("orders.dead").peek()
        moved = orders.trace(identity)[-1]
        assert (moved.kind, moved.to) in [("dead_lettered", letter.id), ("dead_lettered", None)]


class ForgetfulMoves(WrappedStore):
    """A store whose first move is not answered, whether it was carried out or not."""

    def __init__(self, inner: Store, *, applied: bool) -> None:
        super().__init__(inner)
        self._applied, self._moves = applied, 0

    def forward(self, request: Forward) -> Fenced:
        self._moves += 1
        if self._moves > 1:
            return super().forward(request)
        if self._applied:
            super().forward(request)
        raise shardq.OutcomeUnknown("the answer was lost")


def test_the_end_of_a_lease_is_told_when_the_message_is_claimed_again(
    orders: shardq.Queue, clock: ManualClock
) -> None:
    identity = send(orders)
    take(orders, "dead")
    clock.advance(31)
    assert kinds(orders.trace(identity)) == ["sent", "claimed"]
    clock.advance(9)
    take(orders, "alive").ack()
    _, claimed, ended, again, acked = orders.trace(identity)
    assert (ended.kind, ended.owner, ended.delivery, ended.at) == ("lease_expired", "dead", 1, again.at)
    assert (claimed.owner, again.owner, acked.owner) == ("dead", "alive", "alive")


def test_a_release_that_is_recorded_after_the_next_claim_is_no_end_of_a_lease(orders: shardq.Queue) -> None:
    identity = send(orders)
    one, other = orders.consumer(name="one"), orders.consumer(name="other")
    record, recorded = context_of(orders).events.record, []
    context_of(orders).events.record = lambda *entries: recorded.append(entries)  # type: ignore[method-assign]
    one.receive(1)[0].release()
    other.receive(1)
    for entries in (recorded[0], recorded[2], recorded[1]):
        record(*entries)
    assert kinds(orders.trace(identity)) == ["sent", "claimed", "claimed", "released"]


def test_what_is_given_back_and_claimed_again_by_the_same_has_no_end_of_a_lease(orders: shardq.Queue) -> None:
    identity = send(orders)
    with orders.consumer() as consumer:
        for _ in range(2):
            consumer.receive(1)[0].release(count=False)
        orders.release([consumer.receive(1)[0].receipt])
        orders.ack([consumer.receive(1)[0].receipt])
    assert kinds(orders.trace(identity)) == [
        "sent", "claimed", "returned", "claimed", "returned", "claimed", "released", "claimed", "acked",
    ]  # fmt: skip


def test_a_log_that_an_older_version_has_written_is_read_with_the_names_of_today(
    orders: shardq.Queue,
) -> None:
    record = context_of(orders).events.record

    def record_as_before(context: QueueContext, entries: Iterable[Entry], *others: QueueContext) -> None:
        renamed = [
            msgspec.structs.replace(entry, kind={"returned": "given_back"}.get(entry.kind, entry.kind))
            for entry in entries
        ]
        record(context, renamed, *others)

    context_of(orders).events.record = record_as_before  # type: ignore[method-assign]
    identity = send(orders)
    with orders.consumer() as consumer:
        consumer.receive(1)[0].release(count=False)
        consumer.receive(1).ack()
    assert kinds(orders.trace(identity)) == ["sent", "claimed", "returned", "claimed", "acked"]


def test_an_extension_that_is_asked_for_is_told_with_its_time(orders: shardq.Queue) -> None:
    identity = send(orders)
    message = take(orders)
    message.extend(90)
    orders.extend([message.receipt], 60)
    *_, first, second = orders.trace(identity)
    assert [(each.kind, each.delay, each.owner) for each in (first, second)] == [
        ("extended", 90, "billing"), ("extended", 60, "billing"),
    ]  # fmt: skip


def test_a_purge_is_told_of_what_was_there_and_of_nothing_else(
    orders: shardq.Queue, clock: ManualClock, connect: Connect
) -> None:
    acked, waiting, held = send(orders), send(orders), send(orders)
    take(orders).ack()
    take(orders)
    clock.advance(1)
    assert orders.purge() == 2
    clock.advance(1)
    later = send(orders)
    orders.purge()
    clock.advance(1)
    kept = send(orders)
    flush_events(orders)
    other = connect().queue("orders")
    stories = [kinds(other.trace(each)) for each in (acked, waiting, held, later, kept)]
    assert sorted(stories) == sorted(
        [["sent", "claimed", "acked"], ["sent", "purged"], ["sent", "claimed", "purged"], ["sent", "purged"], ["sent"]]
    )  # fmt: skip
    (sent, purged) = other.trace(later)
    assert (purged.at - sent.at).total_seconds() == 0
    assert purged.message_id == later


def test_a_purge_of_the_dead_letters_is_the_end_of_the_story(
    client: shardq.Client, orders: shardq.Queue
) -> None:
    identity = send(orders)
    take(orders).dead_letter("odd")
    client.queue("orders.dead").purge()
    assert kinds(orders.trace(identity)) == ["sent", "claimed", "dead_lettered", "purged"]


def test_another_process_is_told_too(orders: shardq.Queue, connect: Connect) -> None:
    identity = send(orders)

    def receive() -> str:
        take(orders, "child").ack()
        flush_events(orders)
        return "done"

    assert forked(receive) == "done"
    flush_events(orders)
    story = connect().queue("orders").trace(identity)
    assert [(each.kind, each.owner) for each in story] == [
        ("sent", None), ("claimed", "child"), ("acked", "child"),
    ]  # fmt: skip


def test_ids_that_are_none_or_of_another_queue_are_refused(orders: shardq.Queue) -> None:
    for identity in ("tea", "other:0:0:0197c8a2b4d07abc8123456789abcdef:0", None):
        with pytest.raises(shardq.InvalidReceipt):
            orders.trace(identity)  # type: ignore[arg-type]
    assert orders.trace("orders:0:0:0197c8a2b4d07abc8123456789abcdef:0") == []


@pytest.mark.parametrize("value", [0, 59, -1, "7d", True])
def test_a_time_for_events_that_makes_no_sense_is_refused(client: shardq.Client, value: object) -> None:
    with pytest.raises(shardq.InvalidSetting, match="events="):
        client.create_queue("refused", events=value)  # type: ignore[arg-type]
    assert not client.exists("refused")


# -- the logs


def test_a_log_is_dropped_when_all_of_it_was_kept_for_long_enough(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = client.create_queue("brief", events=3_600)
    first = send(queue)
    for _ in range(16):
        clock.advance(450)
        last = send(queue)
        assert queue.trace(last)
        age = (client.now() - queue.trace(first)[0].at).total_seconds() if queue.trace(first) else 3_601
        assert queue.trace(first) or age > 3_600
    assert queue.trace(first) == []
    assert 4 <= len(client.queues(LOGS)) <= 6
    clock.advance(4_501)
    queue.sweep()
    assert client.queues(LOGS) == ()


def test_the_logs_go_with_the_setting_and_with_the_queue(client: shardq.Client, orders: shardq.Queue) -> None:
    client.create_queue("orders/1", events=WEEK)
    neighbour, identity = send(client.queue("orders/1")), send(orders)
    assert orders.trace(identity)
    orders.alter(events=None)
    assert orders.trace(identity) == []
    orders.alter(events=WEEK)
    kept = send(orders)
    assert kinds(orders.trace(kept)) == ["sent"]
    client.delete_queue("orders")
    assert [name for name in client.queues(LOGS) if name.startswith(f"{LOGS}orders/1")]
    assert client.queue("orders/1").trace(neighbour)
    again = client.create_queue("orders", events=WEEK)
    assert again.trace(kept) == []
    assert kinds(again.trace(send(again))) == ["sent"]


def test_queues_of_long_names_keep_events_too(client: shardq.Client) -> None:
    one, two = (client.create_queue("q" * 190 + end, events=WEEK) for end in "ab")
    first, second = send(one), send(two)
    assert (kinds(one.trace(first)), kinds(two.trace(second))) == (["sent"], ["sent"])
    assert {len(name) <= 100 for name in client.queues(LOGS)} == {True}
    client.delete_queue(one.name)
    assert kinds(two.trace(second)) == ["sent"]


def test_logs_are_no_queues_of_the_application(client: shardq.Client, orders: shardq.Queue) -> None:
    orders.trace(send(orders))
    assert client.queues() == ("orders", "orders.dead")
    assert orders.counts().ready == 1


# -- what it costs


class CountingStore(WrappedStore):
    """Counts what it is asked of the application's queues, and of logs."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked: Counter[str] = Counter()

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.asked[method] += 1
        return super().call(method, do, *args, **kwargs)


def requests_of_a_life(url: str, **settings: object) -> Counter[str]:
    store = CountingStore(open_store(url, ManualClock()))
    with shardq.Client(store) as client:
        queue = client.create_queue("life", **settings)  # type: ignore[arg-type]
        warm = send(queue)
        take(queue).ack()
        flush_events(queue)
        store.asked.clear()
        queue.remove(warm)
        with queue.producer() as producer, queue.consumer() as consumer:
            producer.send_many([b"%d" % number for number in range(100)])
            batch = consumer.receive(100)
            flush_events(queue)
            batch[0].release(delay=1)
            batch[1].note("nothing")
            batch[2].dead_letter("odd")
            batch.ack()
            flush_events(queue)
    del store.asked["now"]
    return store.asked


def test_a_queue_without_events_makes_no_request_more(tmp_path: object) -> None:
    without = requests_of_a_life(f"sqlite:///{tmp_path}/without.db")
    with_events = requests_of_a_life(f"sqlite:///{tmp_path}/with.db", events=WEEK)
    more = with_events - without
    assert not without - with_events
    assert set(more) <= {"append", "create_queue", "create_shards", "load_queue", "list_queues"}
    assert without["append"] == 1
    assert (
        2 <= more["append"] <= 9
    )  # at most one for each call of the life, and one for the log of the letter


class FailingLogs(WrappedStore):
    """A store whose logs take nothing, or make their writer wait."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.open = threading.Event()
        self.entered = threading.Event()

    def append(self, request: Append) -> None:
        if request.shard.queue.startswith(LOGS):
            self.entered.set()
            self.open.wait(20)
            raise shardq.StoreUnavailable("no more logs", retryable=False)
        super().append(request)


def test_nobody_waits_for_a_log_or_fails_with_it(url: str, caplog: pytest.LogCaptureFixture) -> None:
    store = FailingLogs(open_store(url, SystemClock()))
    client = shardq.Client(store)
    queue = client.create_queue("orders", events=WEEK)
    identity = send(queue)
    assert store.entered.wait(10)
    for _ in range(3):
        send(queue)
        take(queue).ack()
    assert client.counters.acked == 3
    store.open.set()
    assert queue.trace(identity) == []
    client.close()
    assert client.counters.events_lost == 10
    assert "are lost: no more logs" in caplog.text


def test_what_waits_for_a_store_that_does_not_answer_is_bounded(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.core.context.event_writer._MOST_WAITING", 5)
    store = FailingLogs(open_store(url, SystemClock()))
    with shardq.Client(store) as client:
        queue = client.create_queue("orders", events=WEEK)
        send(queue)
        assert store.entered.wait(10)
        for _ in range(12):
            send(queue)
        assert client.counters.events_lost == 7
        store.open.set()


def test_the_end_of_a_client_waits_for_what_is_not_written(connect: Connect) -> None:
    with connect() as client:
        identity = send(client.create_queue("orders", events=WEEK))
    assert kinds(connect().queue("orders").trace(identity)) == ["sent"]


def test_a_client_remembers_few_logs_and_writes_on_to_all(
    client: shardq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.core.logs.log_queues._MOST_KNOWN", 3)
    queues = [client.create_queue(f"reply-{number}", events=WEEK, max_deliveries=None) for number in range(6)]
    for queue in queues:
        assert kinds(queue.trace(send(queue))) == ["sent"]
    assert len(context_of(queues[0]).logs) <= 3
    for queue in queues:
        assert kinds(queue.trace(send(queue))) == ["sent"]


def test_traces_know_the_event_of_every_settle_operation() -> None:
    all_of_them = [each for each in vars(operations).values() if isinstance(each, operations.SettleOperation)]
    assert len(all_of_them) > 10
    told = {event: each for each in all_of_them for event in (each.event, each.event_if_delayed) if event}
    assert told.keys() <= set(get_args(EventKind))
    assert {event for event, each in told.items() if not each.keeps_open} <= SETTLES


def test_hooks_have_a_name_for_every_operation_that_they_run_around() -> None:
    """Those that lose messages without an error are done in the background, by no call of the application."""
    all_of_them = [each for each in vars(operations).values() if isinstance(each, operations.SettleOperation)]
    names = {"ack", "release", "extend", "forward", "dead_letter"}
    assert {each.hook for each in all_of_them if each.reports_lost} == names
    assert {each.hook for each in all_of_them if not each.reports_lost} == {""}
