"""Topics: what is published reaches each subscription that takes it, once."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import shardq
from shardq.testing import ManualClock
from shardq.topics import (
    Filter,
    Subscription,
    SubscriptionExists,
    SubscriptionNotFound,
    Topic,
    TopicExists,
    TopicMessage,
    TopicNotFound,
)
from shardq.worker import Worker
from tests.topics.receiving import received, waiting


def test_every_subscription_gets_what_its_filter_takes_once(topic: Topic) -> None:
    every = topic.subscribe("every")
    created = topic.subscribe("created", filter="orders.*.created")
    large = topic.subscribe("large", filter=shardq.topics.Filter.of(headers={"total": {">=": 100}}))
    topic.publish(b"one", subject="orders.1.created", headers={"total": 7})
    topic.publish_many([b"two", b"three"], subject="orders.2.paid", headers={"total": 100})
    topic.publish_many([TopicMessage(body=b"four", subject="orders.4.created"), b"five"])
    topic.relay()
    assert sorted(received(every)) == [b"five", b"four", b"one", b"three", b"two"]
    assert sorted(received(created)) == [b"four", b"one"]
    assert sorted(received(large)) == [b"three", b"two"]
    assert topic.relay() == 0
    assert not received(every)


def test_a_message_keeps_its_subject_headers_and_the_time_of_its_publish(
    topic: Topic, clock: ManualClock, client: shardq.Client
) -> None:
    mail = topic.subscribe("mail")
    published = client.now()
    topic.publish(b"one", subject="a.b", headers={"x": 1})
    clock.advance(10)
    topic.relay()
    (stored,) = mail.queue.peek(1)
    assert (stored.headers, stored.enqueued_at) == ({"shardq-subject": "a.b", "x": 1}, published)


def test_a_large_publish_arrives_whole(topic: Topic) -> None:
    mail, some = topic.subscribe("mail"), topic.subscribe("some", filter="x")
    bodies = [b"%d" % number for number in range(3_000)] + [b"%d" % number * 50_000 for number in range(20)]
    topic.publish_many(body for body in bodies)
    topic.publish_many(bodies, subject="x")
    topic.relay()
    assert sorted(received(mail)) == sorted(bodies * 2)
    assert sorted(received(some)) == sorted(bodies)


def test_a_subscription_gets_nothing_that_was_published_before_it(topic: Topic) -> None:
    topic.publish(b"before")
    mail = topic.subscribe("mail")
    topic.publish(b"after")
    topic.relay()
    assert received(mail) == [b"after"]


def test_a_subscription_may_start_earlier(topic: Topic, client: shardq.Client, clock: ManualClock) -> None:
    topic.publish(b"one")
    topic.relay()
    clock.advance(100)
    then = client.now()
    topic.publish(b"two")
    clock.advance(1)
    every, since = topic.subscribe("every", start="earliest"), topic.subscribe("since", start=then)
    topic.publish(b"three")
    topic.relay()
    assert sorted(received(every)) == [b"one", b"three", b"two"]
    assert sorted(received(since)) == [b"three", b"two"]


def test_a_subscription_is_rewound_and_others_are_not(
    topic: Topic, client: shardq.Client, clock: ManualClock
) -> None:
    mail, other = topic.subscribe("mail", filter="x"), topic.subscribe("other")
    topic.publish(b"one", subject="x")
    topic.relay()
    clock.advance(100)
    then = client.now()
    topic.publish_many([b"two", b"three"], subject="x")
    topic.publish(b"no", subject="y")
    topic.relay()
    assert sorted(received(mail)) == [b"one", b"three", b"two"]
    assert mail.seek(then) == timedelta(0)
    assert sorted(waiting(mail)) == [b"three", b"two"]
    mail.seek("earliest")  # what waits now is not there twice
    topic.publish(b"four", subject="x")
    topic.relay()
    assert sorted(received(mail)) == [b"four", b"one", b"three", b"two"]
    assert len(received(other)) == 5


def test_messages_in_flight_and_delayed_ones_are_rewound_too(topic: Topic, clock: ManualClock) -> None:
    mail = topic.subscribe("mail")
    topic.publish_many([b"one", b"two", b"three"])
    topic.relay()
    with shardq.Queue.consumer(mail.queue) as consumer:
        batch = consumer.receive(2)
        batch[0].release(delay=10)
        mail.seek("earliest")
        clock.advance(60)
        assert sorted(received(mail)) == [b"one", b"three", b"two"]


def test_what_was_kept_for_too_short_is_told(topic: Topic, client: shardq.Client, clock: ManualClock) -> None:
    mail = topic.subscribe("mail")
    then = client.now()
    topic.publish(b"old")
    topic.relay()
    clock.advance(3_600 + 50)
    assert mail.seek(then) == timedelta(seconds=50)
    assert mail.state().missed == 50
    assert received(mail) == []
    assert mail.seek("earliest") == timedelta(0)


def test_a_name_opens_the_subscription_that_is_there(topic: Topic) -> None:
    mail = topic.subscribe("mail", filter="x", visibility_timeout=5)
    topic.publish(b"one", subject="x")
    again = topic.subscribe("mail", start="earliest")
    assert again.filter == mail.filter
    assert topic.subscription("mail").queue.settings.visibility_timeout == 5
    assert topic.subscribe("mail", filter="x").queue.name == mail.queue.name
    with pytest.raises(SubscriptionExists, match="takes x, not y"):
        topic.subscribe("mail", filter="y")


def test_a_flag_is_another_filter_than_a_number(topic: Topic) -> None:
    topic.subscribe("mail", filter=Filter.of(headers={"urgent": 1}))
    with pytest.raises(SubscriptionExists, match="takes urgent = 1, not urgent = True"):
        topic.subscribe("mail", filter=Filter.of(headers={"urgent": True}))


def test_a_subscription_that_is_deleted_leaves_nothing_and_comes_back_empty(
    topic: Topic, client: shardq.Client
) -> None:
    mail = topic.subscribe("mail")
    topic.publish(b"one")
    topic.relay()
    topic.publish(b"two")
    mail.delete()
    for call in (mail.delete, mail.state, lambda: mail.seek("earliest"), lambda: topic.subscription("mail")):
        with pytest.raises(SubscriptionNotFound):
            call()
    with pytest.raises(shardq.QueueNotFound):
        shardq.Queue.consumer(mail.queue).receive(1)
    assert client.queues("_shardq/topics/orders/mail/") == ()
    new = topic.subscribe("mail", filter="x")
    topic.relay()
    assert received(new) == []


def test_a_topic_that_is_deleted_leaves_nothing_and_comes_back_empty(
    client: shardq.Client, topic: Topic
) -> None:
    topic.subscribe("mail")
    topic.publish(b"one")
    topic.relay()
    client.delete_topic("orders")
    assert client.topics() == ()
    assert client.queues("_shardq/") == ()
    for call in (lambda: topic.publish(b"x"), topic.subscriptions, topic.relay, lambda: client.topic("orders"),
                 lambda: client.delete_topic("orders"), lambda: topic.subscribe("mail")):  # fmt: skip
        with pytest.raises(TopicNotFound, match="shardq topic"):
            call()
    again = client.create_topic("orders")
    assert again.subscriptions() == ()
    assert received(again.subscribe("mail", start="earliest")) == []


def test_topics_exist_once_and_are_listed(client: shardq.Client, topic: Topic) -> None:
    with pytest.raises(TopicExists, match="orders"):
        client.create_topic("orders")
    client.create_topic("orders", exist_ok=True, retention=5)
    assert topic.retention == 3600
    topic.alter(retention=60)
    assert client.topic("orders").retention == 60
    client.create_topic("log")
    client.create_topic("state").subscribe("log")
    assert client.topics() == ("log", "orders", "state")
    assert client.queues() == ()


def test_a_topic_whose_creation_broke_off_is_created_again(client: shardq.Client, topic: Topic) -> None:
    topic.subscribe("mail")
    client.delete_queue("_shardq/topics/orders/log")  # as a deletion does first
    assert client.topics() == ()
    assert client.create_topic("orders").subscriptions() == ()
    client.delete_queue("_shardq/topics/orders/state")  # as a creation makes last
    assert client.topic("orders").subscriptions() == ()


def test_a_worker_works_on_a_subscription_and_dead_letters_come_back(url: str) -> None:
    with shardq.connect(url) as client:
        topic = client.create_topic("orders")
        mail = topic.subscribe("mail", max_deliveries=1)
        topic.publish_many([b"good", b"bad"])

        seen = []

        def handle(message: shardq.Message) -> None:
            seen.append(message.body)
            if len(seen) == 2:
                worker.stop()
            if message.body == b"bad":
                raise shardq.DeadLetter("bad")

        worker = Worker(mail.queue, handle, idle_exit=60)  # a thread relays meanwhile
        report = worker.run()
        assert (report.worked, report.dead_lettered) == (1, 1)
        assert mail.queue.redrive() == 1
        assert received(mail) == [b"bad"]


def test_a_publisher_relays_where_nobody_else_does(url: str) -> None:
    with shardq.connect(url) as client:
        mail = client.create_topic("orders").subscribe("mail")
        client.topic("orders").publish(b"one")
        plain = client.queue(mail.queue.name)
        assert plain.consumer().receive(1, wait=30).bodies == [b"one"]


def test_a_publisher_relays_again_after_its_topic_was_deleted(url: str) -> None:
    with shardq.connect(url) as client:
        topic = client.create_topic("orders")
        others = set(threading.enumerate())
        topic.publish(b"lost")
        (thread,) = set(threading.enumerate()) - others
        client.delete_topic("orders")
        thread.join(30)
        assert not thread.is_alive()
        mail = client.create_topic("orders").subscribe("mail")
        topic.publish(b"one")
        assert client.queue(mail.queue.name).consumer().receive(1, wait=30).bodies == [b"one"]


def test_a_publish_that_was_not_answered_is_repeated(client: shardq.Client, topic: Topic) -> None:
    mail = topic.subscribe("mail")
    topic.publish(b"one", dedupe_key="1")
    topic.publish(b"one", dedupe_key="1")
    (stored,) = client.queue("_shardq/topics/orders/log").peek()
    topic.publish_many([shardq.OutgoingMessage(body=stored.body)])
    topic.relay()
    assert received(mail) == [b"one", b"one"]


@pytest.mark.parametrize("body", [b"one", b"", "one", b"\x91\x90\x90"])
def test_a_message_that_nobody_would_get_is_refused(topic: Topic, body: Any) -> None:
    mail, message = topic.subscribe("mail"), shardq.OutgoingMessage(body=body)
    with pytest.raises(shardq.InvalidMessage, match="TopicMessage"):
        topic.publish(message)
    with pytest.raises(shardq.InvalidMessage, match="TopicMessage") as raised:
        topic.publish_many([b"two", message])
    assert raised.value.position == 1
    topic.relay()
    assert received(mail) == []


@pytest.mark.parametrize("name", ["", "a/b", "a b", "_a", "x" * 65, 7, None])
def test_names_that_cannot_be_are_refused(client: shardq.Client, topic: Topic, name: Any) -> None:
    for call in (client.create_topic, client.topic, client.delete_topic, topic.subscribe, topic.subscription):
        with pytest.raises(shardq.InvalidName):
            call(name)


def test_the_longest_names_will_do(client: shardq.Client) -> None:
    topic = client.create_topic("t" * 64)
    mail = topic.subscribe("s" * 64)
    topic.publish(b"one")
    topic.relay()
    assert received(mail) == [b"one"]


def test_arguments_that_make_no_sense_are_refused_before_anything_is_stored(
    client: shardq.Client, topic: Topic
) -> None:
    for wrong in ({"start": "now"}, {"start": datetime(2020, 1, 1)}, {"max_messages": 5}, {"shards": 0},
                  {"expires": 60}, {"start": 5}):  # fmt: skip
        with pytest.raises(shardq.InvalidSetting):
            topic.subscribe("mail", **wrong)
    with pytest.raises(shardq.InvalidSetting):
        client.create_topic("other", retention=-1)
    for bodies in (b"one", "one", 5, {"a": 1}):
        with pytest.raises(shardq.InvalidMessage):
            topic.publish_many(bodies)  # type: ignore[arg-type]
    with pytest.raises(shardq.MessageTooLarge):
        topic.publish(b"x" * 1_000_000)
    with pytest.raises(shardq.InvalidMessage) as raised:
        topic.publish_many([b"one", "two", b"three"])
    assert raised.value.position == 1
    with pytest.raises(shardq.InvalidSetting):
        topic.subscribe("mail").seek(datetime(2020, 1, 1))
    for wait in (None, "5", -1, float("nan"), float("inf")):
        with pytest.raises(shardq.InvalidSetting, match="wait="):
            topic.relay(wait=wait)  # type: ignore[arg-type]
    assert topic.relay() == 0


def test_a_subscription_to_the_future_is_possible(
    topic: Topic, clock: ManualClock, client: shardq.Client
) -> None:
    mail: Subscription = topic.subscribe("mail", start=datetime.now(UTC) + timedelta(days=365 * 100))
    topic.publish(b"one")
    topic.relay()
    assert received(mail) == []


def test_what_is_asked_of_a_subscription_whose_topic_is_deleted_names_the_subscription(
    topic: Topic, client: shardq.Client
) -> None:
    mail = topic.subscribe("mail")
    client.delete_topic("orders")
    for ask in (mail.state, mail.delete, lambda: mail.seek("earliest")):
        with pytest.raises(SubscriptionNotFound, match="'mail' of topic 'orders'"):
            ask()


def test_subscriptions_for_which_there_is_no_room_are_refused_and_the_others_go_on(
    topic: Topic, client: shardq.Client
) -> None:
    patterns = ["x" * 190 + f".{number:08}" for number in range(1_200)]
    made = [topic.subscribe("mail"), topic.subscribe("large", filter=patterns)]
    names = client.queues("_shardq/topics/")
    for _ in range(2):
        with pytest.raises(shardq.InvalidSetting, match="use shorter filters, or another topic"):
            topic.subscribe("more", filter=patterns + patterns)
    assert client.queues("_shardq/topics/") == names
    topic.publish_many([b"one", b"two"])
    for number in range(200):
        topic.publish(b"%d" % number)
    assert topic.relay() > 0
    assert len(received(made[0])) == 202


def test_a_change_that_cannot_be_stored_leaves_the_topic_as_it_was(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    mail = topic.subscribe("mail")
    with monkeypatch.context() as patched:
        patched.setattr("shardq.topics.state.replace_body", _refuse)
        with pytest.raises(shardq.MessageTooLarge):
            topic.subscribe("other")
    topic.publish(b"one")
    assert topic.relay() == 1
    assert received(mail) == [b"one"]


def _refuse(*args: object, **options: object) -> None:
    raise shardq.MessageTooLarge("too large")
