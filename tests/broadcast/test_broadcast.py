"""A broadcast reaches everybody who is subscribed at that moment, and leaves nothing of those who are not."""

from __future__ import annotations

import gc
import threading
from contextlib import ExitStack
from typing import Any

import pytest

import shardq
from shardq.broadcast import Broadcast
from shardq.broadcast.broadcast import LEASE_SECONDS, Entry
from shardq.testing import ManualClock
from shardq.testing.seam import expire_caches
from tests.broadcast.conftest import received
from tests.forking import forked
from tests.sqlite.test_clock_jumps import JumpingClock


def test_everybody_who_is_subscribed_gets_every_message_once(news: Broadcast) -> None:
    with ExitStack() as stack:
        subscribers = [stack.enter_context(news.subscribe()) for _ in range(3)]
        assert news.publish_many([b"%d" % number for number in range(25)]) == 3
        for subscriber in subscribers:
            assert sorted(received(subscriber), key=int) == [b"%d" % number for number in range(25)]
            assert received(subscriber) == []


def test_who_is_not_subscribed_gets_nothing_then_or_later(news: Broadcast) -> None:
    assert news.publish(b"before") == 0
    with news.subscribe() as subscriber:
        assert received(subscriber) == []
    assert news.publish(b"after") == 0
    with news.subscribe() as subscriber:
        assert received(subscriber) == []


def test_who_is_closed_leaves_nothing(client: shardq.Client, news: Broadcast) -> None:
    subscribers = [news.subscribe() for _ in range(3)]
    news.publish(b"x")
    for subscriber in subscribers:
        subscriber.close()
        subscriber.close()
        with pytest.raises(shardq.Closed):
            subscriber.receive()
    assert client.queues() == ("news.subscribers",)
    assert client.queue("news.subscribers").counts().in_flight == 0
    assert client.queue("news.subscribers").counts().ready == 0


def test_broadcasts_of_other_names_are_apart(client: shardq.Client, news: Broadcast) -> None:
    other = Broadcast(client, "news.live")
    with news.subscribe() as one, other.subscribe() as two:
        assert news.publish(b"news") == other.publish(b"other") == 1
        assert (received(one), received(two)) == ([b"news"], [b"other"])


def test_what_is_not_acked_is_delivered_again(news: Broadcast, clock: ManualClock) -> None:
    with news.subscribe() as subscriber:
        news.publish(b"x")
        subscriber.receive()[0].release()
        assert received(subscriber) == [b"x"]


def test_codecs_headers_and_times_to_live(client: shardq.Client, clock: ManualClock) -> None:
    prices = Broadcast(client, "prices", codec=shardq.JSON)
    with prices.subscribe() as subscriber:
        prices.publish({"tea": 3}, headers={"shop": 7}, ttl=10)
        (message,) = subscriber.receive()
        assert (message.body, message.headers) == ({"tea": 3}, {"shop": 7})
        message.ack()
        prices.publish({"tea": 4}, ttl=10)
        clock.advance(11)
        assert received(subscriber) == []


@pytest.mark.usefixtures("entries")
def test_who_died_is_left_out_when_its_lease_is_over_and_nothing_of_it_stays(
    client: shardq.Client, news: Broadcast, clock: ManualClock
) -> None:
    news.subscribe(keep=60)
    assert news.publish(b"x") == 1
    clock.advance(LEASE_SECONDS)
    assert news.publish(b"y") == 0
    # And its queue goes, with what was sent to it
    for _ in range(4):
        clock.advance(40)
        client.delete_expired_queues("news.live/")
    assert client.queues() == ("news.subscribers",)


@pytest.mark.usefixtures("entries")
def test_who_died_while_the_clock_was_ahead_is_left_out_when_it_is_right(url: str) -> None:
    clock = JumpingClock()
    with shardq.connect(url, clock=clock) as dead, shardq.connect(url, clock=clock) as client:
        clock.jump(3_600)
        Broadcast(dead, "news").subscribe(keep=60)
        clock.jump(-3_600)
        news = Broadcast(client, "news")
        assert news.publish(b"x") == 1
        clock.jump(LEASE_SECONDS)
        assert news.publish(b"y") == 0
        with news.subscribe() as subscriber:
            assert news.publish(b"z") == 1
            assert received(subscriber) == [b"z"]
        for _ in range(4):
            clock.jump(40)
            client.delete_expired_queues("news.live/")
        assert client.queues() == ("news.subscribers",)


def test_who_lives_while_the_clock_is_put_right_stays_subscribed(url: str, entries: list[Entry]) -> None:
    clock = JumpingClock()
    with shardq.connect(url, clock=clock) as client:
        news = Broadcast(client, "news")
        clock.jump(3_600)
        with news.subscribe() as subscriber:
            clock.jump(-3_600)
            for _ in range(10):
                assert news.publish(b"x") == 1
                assert received(subscriber) == [b"x"]
                clock.jump(10)
                entries[0].keep()


@pytest.mark.usefixtures("entries")
def test_who_takes_the_place_of_a_dead_subscriber_gets_nothing_that_was_sent_to_it(
    client: shardq.Client, news: Broadcast, clock: ManualClock
) -> None:
    dead = news.subscribe()
    news.publish(b"for the dead")
    clock.advance(LEASE_SECONDS)
    with news.subscribe() as subscriber:
        assert subscriber.queue != dead.queue
        assert news.publish(b"for the living") == 1
        assert received(subscriber) == [b"for the living"]
        assert len(client.queue("news.subscribers").peek(10)) == 1


@pytest.mark.usefixtures("entries")
def test_who_stood_still_for_longer_than_its_lease_subscribes_again(
    news: Broadcast, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with news.subscribe() as sleeper:
        before = sleeper.queue
        clock.advance(LEASE_SECONDS + 1)
        with news.subscribe() as other:
            assert news.publish(b"missed") == 1
            assert received(sleeper) == []
            assert "subscribed again" in caplog.text
            assert len({before, sleeper.queue, other.queue}) == 3
            assert news.publish(b"heard") == 2
            assert (received(sleeper), received(other)) == ([b"heard"], [b"missed", b"heard"])


def test_who_is_kept_alive_again_after_its_lease_was_over_is_told_that_it_missed_something(
    news: Broadcast, clock: ManualClock, caplog: pytest.LogCaptureFixture, entries: list[Entry]
) -> None:
    with news.subscribe() as sleeper:
        before = sleeper.queue
        assert news.publish(b"before") == 1
        entries[0].keep()
        clock.advance(LEASE_SECONDS + 1)
        assert news.publish(b"missed") == 0
        entries[0].keep()
        assert news.publish(b"heard") == 1
        assert sorted(received(sleeper)) == [b"before", b"heard"]
        assert caplog.text.count("messages that were published meanwhile are missed") == 1
        assert sleeper.queue == before


def test_a_subscription_that_nobody_refers_to_is_not_kept_alive(
    news: Broadcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.broadcast.broadcast.LEASE_SECONDS", 0.06)
    before = set(threading.enumerate())
    subscription = news.subscribe()
    (keeper,) = set(threading.enumerate()) - before
    del subscription
    gc.collect()
    keeper.join(30)
    assert not keeper.is_alive()


def test_who_works_for_longer_than_its_messages_are_kept_goes_on(
    client: shardq.Client, news: Broadcast, clock: ManualClock
) -> None:
    with news.subscribe(keep=60) as worker:
        queue = client.queue(worker.queue)
        client.delete_queue(queue.name)  # as if it had expired
        expire_caches(queue)
        assert received(worker) == []
        assert news.publish(b"x") == 1
        assert received(worker) == [b"x"]


def test_the_queue_of_who_works_for_long_does_not_expire(
    client: shardq.Client, news: Broadcast, clock: ManualClock, entries: list[Entry]
) -> None:
    with news.subscribe(keep=60) as busy:
        for _ in range(8):
            clock.advance(20)
            entries[0].keep()
            client.delete_expired_queues("news.live/")
        assert news.publish(b"x") == 1
        assert received(busy) == [b"x"]


def test_the_end_of_a_block_in_a_forked_child_leaves_the_subscription_to_the_parent(news: Broadcast) -> None:
    with news.subscribe() as subscriber:

        def close_and_receive() -> str:
            subscriber.close()
            try:
                return str(subscriber.receive().bodies)
            except shardq.Closed as error:
                return str(error)

        assert "belongs to the parent process" in forked(close_and_receive)
        assert news.publish(b"x") == 1
        assert received(subscriber) == [b"x"]


def test_who_is_slow_is_sent_no_more_than_is_kept(
    news: Broadcast, clock: ManualClock, entries: list[Entry]
) -> None:
    with news.subscribe(keep=60) as slow:
        news.publish(b"old")
        for _ in range(3):
            clock.advance(25)
            entries[0].keep()
        news.publish(b"new")
        assert received(slow) == [b"new"]


def test_a_stop_ends_the_batches(url: str) -> None:
    with shardq.connect(url) as client, Broadcast(client, "news").subscribe() as subscriber:
        threading.Timer(0.2, subscriber.stop).start()
        assert list(subscriber.batches(10)) == []


@pytest.mark.parametrize("name", ["", "a:b", "x" * 121, "~"])
def test_a_name_that_queues_cannot_have_is_refused(client: shardq.Client, name: str) -> None:
    with pytest.raises(shardq.InvalidName):
        Broadcast(client, name)


@pytest.mark.parametrize("keep", [0, 29, float("nan"), 10**6, "1h"])
def test_times_that_make_no_sense_are_refused_before_anything_is_stored(
    client: shardq.Client, news: Broadcast, keep: Any
) -> None:
    with pytest.raises(shardq.InvalidSetting, match="keep"):
        news.subscribe(keep=keep)
    assert client.queues() == ()


def test_the_longest_name_will_do(client: shardq.Client) -> None:
    longest = Broadcast(client, "x" * 120)
    with longest.subscribe() as subscriber:
        longest.publish(b"x")
        assert received(subscriber) == [b"x"]
