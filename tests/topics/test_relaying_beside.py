"""Who relays where nobody was asked to, and from which moment on a subscription gets what is relayed."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count

import pytest

import shardq
from shardq.base.clock import SystemClock, to_datetime
from shardq.client import Client
from shardq.client.queue import Queue
from shardq.storage.opening import open_store
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Claim,
    Claimed,
    ClaimedSlice,
    Fenced,
    Peek,
    PeekPage,
)
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock
from shardq.testing.seam import engine_of
from shardq.topics import Topic
from shardq.topics.background import Background
from shardq.topics.log import LEASE_SECONDS
from shardq.topics.names import log_of, state_of
from shardq.topics.relay import Relay
from shardq.topics.state import Held, TopicState, open_register
from tests.topics.receiving import received, waiting


@pytest.mark.parametrize("several", [False, True])
def test_consumers_that_open_the_queue_of_a_subscription_by_its_name_have_it_relayed(
    url: str, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    monkeypatch.setattr(Background, "published", lambda background: None)
    with shardq.connect(url) as client, shardq.connect(url) as other:
        topic = client.create_topic("orders")
        mail = topic.subscribe("mail")
        topic.publish(b"one")
        names = [mail.queue.name, topic.subscribe("audit", filter="none").queue.name]
        consumer = other.consumer(names) if several else other.queue(names[0]).consumer()
        assert consumer.receive(1, wait=30).bodies == [b"one"]


def test_a_client_that_is_closed_while_it_relays_ends_the_round_and_holds_nothing_after_that(
    url: str,
) -> None:
    under_way, go_on = threading.Event(), threading.Event()

    class Slow(WrappedStore):
        def append(self, request: Append) -> None:
            if "/mail/" in request.shard.queue:
                under_way.set()
                go_on.wait(30)
            super().append(request)

    with shardq.connect(url) as other, shardq.Client(Slow(open_store(url, SystemClock()))) as client:
        topic = client.create_topic("orders")
        mail = topic.subscribe("mail")
        with mail.consumer():
            topic.publish(b"one")
            assert under_way.wait(30)
            closing = threading.Thread(target=client.close)
            closing.start()
            go_on.set()
            closing.join()
        for name in (log_of("orders"), state_of("orders")):
            assert other.queue(name).counts().in_flight == 0
        again = other.topic("orders")
        again.publish(b"two")
        until = time.monotonic() + 10  # and not as long as a lease
        while len(found := waiting(again.subscription("mail"))) < 2 and time.monotonic() < until:
            again.relay()
        assert sorted(found) == [b"one", b"two"]


@pytest.mark.parametrize("pattern", [None, "weather.>"])
def test_what_is_damaged_or_no_envelope_holds_up_no_other_message(
    url: str, topic: Topic, client: Client, clock: ManualClock, pattern: str | None
) -> None:
    def damage(body: bytes) -> None:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0])) as db, db:
            db.execute("UPDATE slice SET data = x'c1' WHERE bundle_id = ?", [bundles[body]])

    mail, log = topic.subscribe("mail", filter=pattern), client.queue(log_of("orders"))
    for body in (b"one", b"two", b"three"):
        topic.publish(body, subject="weather.oslo")
    bundles = {
        body: bytes.fromhex(each.id.split(":")[3])
        for each in log.peek(10)
        for body in (b"one", b"two", b"three")
        if body in each.body
    }
    damage(b"one")
    log.producer().send_many([b"no envelope", b"\xc1"], headers={"messages": "many"})
    topic.relay()
    assert sorted(waiting(mail)) == [b"three", b"two"]
    damage(b"two")  # after it was relayed
    late = topic.subscribe("late", filter=pattern, start="earliest")
    topic.publish(b"four", subject="weather.oslo")
    clock.advance(LEASE_SECONDS + 1)
    topic.relay()
    assert sorted(waiting(mail)) == [b"four", b"three", b"two"]
    assert sorted(waiting(late)) == [b"four", b"three"]


def test_a_publish_within_a_transaction_is_relayed_when_that_is_committed(url: str) -> None:
    with shardq.connect(url) as client:
        mail = client.create_topic("orders").subscribe("mail")
        db = sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0], isolation_level=None)
        for end in ("ROLLBACK", "COMMIT"):
            db.execute("BEGIN IMMEDIATE")
            with client.transaction(connection=db) as within:
                within.topic("orders").publish(end.encode())
            db.execute(end)
        db.close()
        until = time.monotonic() + 30
        while not (found := waiting(mail)) and time.monotonic() < until:
            time.sleep(0.05)
        assert found == [b"COMMIT"]


def test_one_thread_relays_a_topic_however_often_a_client_opens_it(url: str) -> None:
    others = set(threading.enumerate())
    with shardq.connect(url) as client:
        mail = client.create_topic("orders").subscribe("mail")
        db = sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0], isolation_level=None)
        for _ in range(5):
            client.topic("orders").publish(b"one")
            db.execute("BEGIN IMMEDIATE")
            with client.transaction(connection=db) as within:
                within.topic("orders").publish(b"one")
            db.execute("COMMIT")
        db.close()
        with mail.consumer() as consumer, client.topic("orders").subscription("mail").consumer() as second:
            assert consumer.receive(1, wait=30).bodies == second.receive(1, wait=30).bodies == [b"one"]
        assert [thread.name for thread in {*threading.enumerate()} - others].count("shardq-relay") == 1


@pytest.mark.parametrize("rewinds", [False, True])
def test_what_a_publisher_with_a_slow_clock_publishes_after_a_start_comes(
    topic: Topic, url: str, clock: ManualClock, rewinds: bool
) -> None:
    slow = ManualClock(clock.now() - 50_000_000)
    now = to_datetime(clock.now())
    mail = topic.subscribe("mail", start="latest" if rewinds else now)
    if rewinds:
        mail.seek(now)
    with shardq.connect(url, clock=slow) as publisher:
        publisher.topic("orders").publish(b"one")
    topic.relay()
    assert received(mail) == [b"one"]


def test_a_subscription_that_was_made_while_the_clock_was_ahead_misses_nothing_when_it_is_put_right(
    client: shardq.Client, topic: Topic, url: str, clock: ManualClock
) -> None:
    with shardq.connect(url, clock=ManualClock(clock.now() + 3_600_000_000)) as ahead:
        ahead.topic(topic.name).subscribe("mail")
    topic.publish(b"one")
    clock.advance(3_601)
    topic.relay()
    assert received(topic.subscription("mail")) == [b"one"]


def test_a_subscription_whose_queue_is_deleted_is_listed_no_more(topic: Topic, client: shardq.Client) -> None:
    mail = topic.subscribe("mail")
    topic.subscribe("audit")
    client.delete_queue(mail.queue.name)
    assert topic.subscriptions() == ("audit",)
    assert received(topic.subscribe("mail")) == []
    assert topic.subscriptions() == ("audit", "mail")


def test_a_publish_at_the_moment_when_the_thread_ends_is_relayed(
    url: str, nobody_relays_beside: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.topics.background.IDLE_SECONDS", 0.01)
    monkeypatch.setattr("shardq.topics.background.LINGER_SECONDS", 0.01)
    with shardq.connect(url) as client:
        topic = client.create_topic("orders")
        mail = topic.subscribe("mail")
        serves, threads = Background.relay_until_idle, list[threading.Thread]()

        def publishes_at_the_end(self: Background) -> None:
            threads.append(threading.current_thread())
            if len(threads) > 1:
                threads[0].join(30)
            serves(self)
            if len(threads) == 1:
                topic.publish(b"two")

        monkeypatch.setattr(Background, "relay_until_idle", publishes_at_the_end)
        topic.publish(b"one")
        found: list[bytes] = []
        with Queue.consumer(mail.queue) as consumer:
            while len(found) < 2 and (batch := consumer.receive(2, wait=30)):
                found += batch.bodies
        assert found == [b"one", b"two"]
        assert len(set(threads)) == 2


def test_a_change_waits_until_what_a_relay_that_died_holds_is_free(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.topics.relay.PATIENCE", 0.05)
    with shardq.connect(url) as client:
        topic = client.create_topic("orders")
        died = client.queue("_shardq/topics/orders/state").consumer(visibility_timeout=0.5)
        assert len(died.receive(1)) == 1
        topic.subscribe("mail")
        assert topic.subscriptions() == ("mail",)


@pytest.mark.parametrize("begins", [False, True])
def test_it_returns_when_all_is_copied_though_another_relay_has_the_topic_for_long(
    topic: Topic, url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    monkeypatch.setattr("shardq.topics.relay.PATIENCE", 0.05)
    mail = topic.subscribe("mail")
    topic.publish(b"one")
    topic.relay()
    assert received(mail) == [b"one"]
    with shardq.connect(url, clock=clock) as client:
        other, change, run = open_register(engine_of(client), "orders"), Relay.change, Relay.run
        held: list[Held | None] = []
        runs: list[Relay] = []

        def change_and_be_overtaken(relay: Relay, by: Callable[[TopicState], TopicState]) -> TopicState:
            state = change(relay, by)
            held.append(other.take(10))
            return state

        def count_runs(relay: Relay, *, wait: float = 0.0, fills: bool = False) -> int:
            runs.append(relay)
            if len(runs) == 3 and held[0] is not None:
                held[0].release()
            return run(relay, wait=wait, fills=fills)

        monkeypatch.setattr(Relay, "change", change_and_be_overtaken)
        monkeypatch.setattr(Relay, "run", count_runs)
        if begins:
            mail = topic.subscribe("late", start="earliest")
        else:
            mail.seek("earliest")
        other.close()
    assert (received(mail), mail.state().filling) == ([b"one"], False)


def test_what_was_relayed_at_one_moment_comes_once_whatever_the_clocks_of_its_publishers(
    topic: Topic, url: str, clock: ManualClock
) -> None:
    """A store may have another order than that of the ids: what was sent later by a slow clock has a lower id."""
    topic.subscribe("mail")
    with shardq.connect(url, clock=ManualClock(clock.now() - 5_000_000)) as client:
        for publisher, kind in ((topic, b"a"), (client.topic("orders"), b"b")):
            for number in range(100):
                publisher.publish(kind + b"%d" % number)
    topic.relay()
    late = topic.subscribe("late", start="earliest")
    assert sorted(received(late)) == sorted(
        kind + b"%d" % number for kind in (b"a", b"b") for number in range(100)
    )


def test_a_relay_does_not_relay_again_what_another_one_has_relayed_since_its_leases_were_over(
    topic: Topic, clock: ManualClock, url: str
) -> None:
    mail = topic.subscribe("mail")
    topic.publish(b"one")
    suspensions: list[int] = []

    class Suspended(WrappedStore):
        """Claims the state for the first time after the machine was suspended: the clock of the process stood still."""

        def claim(self, request: Claim) -> Claimed:
            if request.shard.queue == state_of("orders") and not suspensions:
                clock.advance(LEASE_SECONDS + 1)
                suspensions.append(topic.relay())
            return super().claim(request)

    with Client(Suspended(open_store(url, clock))) as late:
        assert late.topic("orders").relay() == 1
    assert suspensions == [1]
    assert received(mail) == [b"one"]


@pytest.mark.parametrize("call", ["relay", "subscribe", "begin", "seek"])
def test_who_asks_for_a_topic_to_be_relayed_does_not_wait_for_publishers_that_go_on(
    topic: Topic, url: str, clock: ManualClock, call: str
) -> None:
    topic.subscribe("mail")
    topic.publish(b"first")
    enough = count()

    class PublishedMeanwhile(WrappedStore):
        """Whenever something was relayed, somebody has published again."""

        def acknowledge(self, request: Acknowledge) -> Fenced:
            fenced = super().acknowledge(request)
            if request.shard.queue == log_of("orders"):
                assert next(enough) < 20, f"{call} goes on for as long as somebody publishes"
                clock.advance(1)
                topic.publish(b"and so on")
            return fenced

    with Client(PublishedMeanwhile(open_store(url, clock))) as client:
        busy = client.topic("orders")
        mail = busy.subscription("mail")
        if call == "relay":
            assert busy.relay() >= 1
        elif call == "seek":
            mail.seek("earliest")
            assert not mail.state().filling
        else:
            late = busy.subscribe("late", start="earliest" if call == "begin" else "latest")
            assert (b"first" in received(late)) is (call == "begin")
        assert next(enough) > 0
        assert b"first" in received(mail)


def test_a_relay_that_waits_for_another_one_claims_no_more_than_it_can_relay(
    topic: Topic, client: shardq.Client, url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.topics.relay.PATIENCE", 0.3)
    monkeypatch.setattr("shardq.topics.relay.ENVELOPES", 2)
    mail = topic.subscribe("mail")
    for number in range(30):
        topic.publish(b"%d" % number)
    other = Relay(engine_of(client), "orders")
    with monkeypatch.context() as patch:
        patch.setattr(Relay, "_copy", _stand_still)
        with pytest.raises(StandsStill):
            other.run()  # its round is under way
    claimed: list[ClaimedSlice] = []

    class Counting(WrappedStore):
        def claim(self, request: Claim) -> Claimed:
            answer = super().claim(request)
            if request.shard.queue == log_of("orders"):
                claimed.extend(answer.slices)
            return answer

    with Client(Counting(open_store(url, clock))) as waits:
        assert waits.topic("orders").relay() == 0
    assert 1 <= len(claimed) <= 2
    assert received(mail) == []


class StandsStill(Exception):
    """A relay goes no further."""


def _stand_still(*_: object) -> None:
    raise StandsStill


@pytest.mark.parametrize("call", ["subscribe", "seek", "delete", "relay"])
def test_whoever_waits_has_its_turn_while_another_relay_goes_from_round_to_round(
    topic: Topic, client: shardq.Client, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr("shardq.topics.relay.TURN", 0.05)
    monkeypatch.setattr("shardq.topics.relay.LEASE_AND_MORE", 2.0)
    mail, audit = topic.subscribe("mail"), topic.subscribe("audit")
    topic.publish(b"one")
    other = Relay(engine_of(client), "orders")
    with monkeypatch.context() as patch:
        patch.setattr(Relay, "_copy", _stand_still)
        with pytest.raises(StandsStill):
            other.run()  # whenever somebody looks, a round is under way that has just begun
    if call == "subscribe":
        assert received(topic.subscribe("late")) == []
    elif call == "seek":
        audit.seek("earliest")
    elif call == "delete":
        audit.delete()
    else:
        topic.publish(b"two")
        assert topic.relay() == 1
    other.run()
    assert received(mail) == [b"one"] + ([b"two"] if call == "relay" else [])
    assert call == "delete" or b"one" in received(audit)


def test_a_relay_whose_round_was_completed_by_another_one_comes_to_rest(
    topic: Topic, url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.topics.relay.TURN", 0.05)
    mail = topic.subscribe("mail")
    topic.publish(b"one")
    times, rounds = count(), list[int]()

    class Completed(WrappedStore):
        """Once its round is carried out, and still entered as under way, another relay enters that it is over."""

        def acknowledge(self, request: Acknowledge) -> Fenced:
            fenced = super().acknowledge(request)
            if request.shard.queue == log_of("orders") and not rounds:
                rounds.append(topic.relay())
            return fenced

        def claim(self, request: Claim) -> Claimed:
            if request.shard.queue == state_of("orders"):
                assert next(times) < 20, "it goes on for ever"
            return super().claim(request)

    with Client(Completed(open_store(url, clock))) as slow:
        assert slow.topic("orders").relay() == 1
    assert rounds == [0]
    assert received(mail) == [b"one"]


class _Overlooking(WrappedStore):
    """Its looks at a shard find nothing, as one may that a claim overtakes."""

    blind = False

    def peek(self, request: Peek) -> PeekPage:
        return PeekPage((), b"") if self.blind else super().peek(request)


@pytest.mark.parametrize("later", [0, 3600])
def test_a_topic_has_one_state_though_whoever_opens_it_does_not_see_it(
    url: str, clock: ManualClock, nobody_relays: None, later: float
) -> None:
    store = _Overlooking(open_store(url, clock))
    with shardq.connect(url, clock=clock) as client, Client(store) as other:
        topic = client.create_topic("orders")
        mail = topic.subscribe("mail")
        clock.advance(later)  # the store knows the id of the first state no more
        store.blind = True
        other.topic("orders")
        store.blind = False
        other.topic("orders").publish(b"one")
        topic.relay()
        assert other.topic("orders").subscriptions() == ("mail",)
        assert received(mail) == [b"one"]
        assert [each.priority < 9 for each in client.queue(state_of("orders")).peek(10)] == [True, False]


def test_a_topic_of_before_there_were_marks_keeps_its_state(
    client: shardq.Client, topic: Topic, clock: ManualClock
) -> None:
    mail = topic.subscribe("mail")
    queue = client.queue(state_of("orders"))
    (mark,) = (each for each in queue.peek(10) if each.priority == 9)
    assert queue.remove(mark.id)
    clock.advance(3600)
    for _ in range(2):
        assert client.topic("orders").subscriptions() == ("mail",)
    assert [each.priority for each in queue.peek(10)] == [5, 9]
    topic.publish(b"one")
    topic.relay()
    assert received(mail) == [b"one"]


class _Overtaken(WrappedStore):
    """Its first look at a shard misses what a claim moves past it."""

    left = 1

    def peek(self, request: Peek) -> PeekPage:
        page = super().peek(request)
        if len(page.slices) < 2 or request.bodies or not self.left:
            return page
        self.left -= 1
        return PeekPage(page.slices[1:], page.after)


def test_what_a_look_misses_is_gone_after_a_rewind_too(
    url: str, clock: ManualClock, nobody_relays: None
) -> None:
    with Client(_Overtaken(open_store(url, clock))) as client:
        topic = client.create_topic("orders")
        mail = topic.subscribe("mail", shards=1, time_shards=1)
        for body in (b"one", b"two", b"three"):
            topic.publish(body)
            topic.relay()
        mail.seek("earliest")
        assert sorted(waiting(mail)) == [b"one", b"three", b"two"]


def test_a_relay_forgets_the_queues_of_subscriptions_that_are_deleted(
    client: shardq.Client, topic: Topic
) -> None:
    relay = Relay(engine_of(client), topic.name)
    for number in range(5):
        subscription = topic.subscribe(f"reply-{number}")
        topic.publish(b"one")
        assert relay.run() == 1
        assert received(subscription) == [b"one"]
        subscription.delete()
    assert len(relay.targets.contexts) <= 1
    relay.close()
