"""A sink with a topic publishes: every subscription gets the rows, once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shardq
from shardq.core.context.decision_log import Decision, DecisionLog
from shardq.core.sending.storing import store_sends
from shardq.errors import InvalidMessage, InvalidSetting, MessageTooLarge
from shardq.spark import runs
from shardq.spark.ddl import columns_of
from shardq.spark.source import ShardqDataSource
from shardq.topics import Topic, TopicNotFound
from tests.spark.every_store import on_every_store


@pytest.fixture
def topic(client: shardq.Client) -> Iterator[Topic]:
    made = client.create_topic("events")
    made.subscribe("all")
    made.subscribe("orders", filter="orders.*")
    yield made
    client.delete_topic("events")


def received(topic: Topic, name: str) -> list[tuple[str, dict]]:
    topic.relay()
    found = topic.subscription(name).queue.peek(10_000)
    return sorted((message.body.decode(), dict(message.headers)) for message in found)


@on_every_store
def test_rows_go_to_every_subscription_that_takes_them_once(topic, open_sink) -> None:
    columns = "body string, subject string, headers map<string, bigint>"
    rows = [
        (f"{number:04}", "orders.new" if number % 2 else None, [("n", number)] if number % 3 == 0 else None)
        for number in range(1_200)
    ]
    for _ in range(2):
        attempt = open_sink(None, columns, topic="events", runId="nightly")
        done = [attempt(rows), attempt(rows[::-1])]
        assert done in ([1_200, 0], [0, 0])
    expected = [
        (body, ({"n": headers[0][1]} if headers else {}) | ({"shardq-subject": subject} if subject else {}))
        for body, subject, headers in rows
    ]
    assert received(topic, "all") == expected
    assert received(topic, "orders") == [row for row in expected if "shardq-subject" in row[1]]


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make an attempt that dies when it has stored one request."""

    def die(attempt: Callable[..., int], rows: Any) -> None:
        requests = itertools.count()

        def fail(*arguments: Any) -> Any:
            if next(requests) >= 1:
                raise RuntimeError("the task died here")
            return store_sends(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(runs, "store_sends", fail)
            with pytest.raises(RuntimeError, match="died here"):
                attempt(rows)

    return die


def with_ids(size: int) -> list[tuple[int, str]]:
    return [(number, f"{number:04}".ljust(size, ".")) for number in range(1_400)]


@on_every_store
@pytest.mark.parametrize("sizes", [(4, 900), (900, 4)], ids=["larger", "smaller"])
def test_rows_with_ids_are_published_once_though_their_bodies_change(topic, open_sink, dying, sizes) -> None:
    attempt = open_sink(None, "name int, body string", topic="events", idColumn="name")
    dying(attempt, with_ids(sizes[0]))
    assert attempt(with_ids(sizes[1])[::-1]) == 1_400
    assert [body[:4] for body, _ in received(topic, "all")] == [f"{number:04}" for number in range(1_400)]


@on_every_store
@pytest.mark.parametrize("sizes", [(4, 900), (900, 4)], ids=["larger", "smaller"])
def test_rows_with_ids_are_received_and_acked_once_though_their_bodies_change(
    queue, open_sink, dying, sizes
) -> None:
    attempt = open_sink(queue, "name int, body string", idColumn="name", bundleMessages=100)
    dying(attempt, with_ids(sizes[0]))
    assert attempt(with_ids(sizes[1])) == 1_400
    found = []
    with queue.consumer() as consumer:
        for batch in consumer.batches(500, wait=0):
            found += [body[:4] for body in batch.bodies]
            batch.ack()
    assert sorted(found) == [b"%04d" % number for number in range(1_400)]
    assert queue.counts().backlog == 0


def test_an_envelope_that_grew_above_what_a_topic_takes_is_refused(topic, open_sink, dying) -> None:
    attempt = open_sink(None, "name int, body string", topic="events", idColumn="name")
    dying(attempt, with_ids(4))
    with pytest.raises(MessageTooLarge):
        attempt(with_ids(5_000))


def test_a_part_of_an_older_version_which_counted_envelopes_is_completed(
    topic, open_sink, dying, monkeypatch
) -> None:
    decide = DecisionLog.decide

    def older(log: DecisionLog, key: str, value: str, window: int) -> Decision:
        terms = json.loads(value)
        terms[3] = [1 for _ in terms[3]]
        return decide(log, key, json.dumps(terms), window)

    attempt = open_sink(None, "name int, body string", topic="events", idColumn="name")
    with monkeypatch.context() as patch:
        patch.setattr(DecisionLog, "decide", older)
        dying(attempt, with_ids(4))
    assert attempt(with_ids(4)) == 1_400
    assert [body for body, _ in received(topic, "all")] == [f"{number:04}" for number in range(1_400)]


def test_spark_writes_to_all_subscriptions(spark, topic, url) -> None:
    rows = spark.range(300).selectExpr("id", "lpad(cast(id AS string), 3, '0') AS body")
    rows.write.format("shardq").option("url", url).option("topic", "events").mode("append").save()
    assert [body for body, _ in received(topic, "all")] == [f"{number:03}" for number in range(300)]


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("body string", {"subscription": "all"}, "subscription='all' cannot be used to send.*leave subscription out"),
        ("body string, priority int", {}, "column 'priority' would be lost: a topic takes body, id, headers, subject"),
        ("body string, due timestamp", {}, "column 'due' would be lost: a topic takes"),
        ("body string, ttl int", {"ttlColumn": "ttl"}, "column 'ttl' cannot be the ttl of a row: a topic takes"),
        ("body string, key string", {"shardBy": "key"}, "column 'key' would be lost"),
        ("body string", {"shardBy": "key"}, "option shardBy='key' is for queues"),
        ("body string, subject int", {}, "column 'subject' is int, it cannot be the subject"),
    ],
)  # fmt: skip
def test_what_a_topic_does_not_take_is_named_with_its_remedy(
    topic, open_sink, columns, options, text
) -> None:
    with pytest.raises(InvalidSetting, match=text):
        open_sink(None, columns, topic=topic.name, **options)


def test_a_queue_and_a_topic_are_not_written_together(queue, topic, open_sink) -> None:
    with pytest.raises(InvalidSetting, match="and topic='events' are both given: leave one of them out"):
        open_sink(queue, "body string", topic=topic.name)


def test_a_topic_cannot_be_overwritten(topic, url) -> None:
    sink = ShardqDataSource({"url": url, "topic": "events", "truncate": "true"})
    with pytest.raises(InvalidSetting, match="topic 'events' cannot be overwritten"):
        sink.writer(columns_of("rows", "body string"), overwrite=True)


def test_a_topic_that_does_not_exist_is_named(client, open_sink) -> None:
    with pytest.raises(TopicNotFound, match="'nowhere'"):
        open_sink(None, "body string", topic="nowhere")


def test_rows_that_a_topic_cannot_hold_are_refused(topic, open_sink) -> None:
    with pytest.raises(InvalidMessage, match="subject='two words'"):
        open_sink(None, "body string, subject string", topic="events")([("x", "two words")])
    with pytest.raises(MessageTooLarge, match="a topic takes at most"):
        open_sink(None, "body string", topic="events")([("x" * 1_000_000,)])
    assert received(topic, "all") == []


def test_a_table_of_a_subscription_publishes_what_is_inserted(spark, topic, url) -> None:
    options = f"url '{url}', topic 'events', subscription 'all', columns 'body', bodyFormat 'text'"
    spark.sql(f"CREATE TABLE published USING shardq OPTIONS ({options})")
    try:
        spark.sql("INSERT INTO published VALUES ('x')")
        assert [body for body, _ in received(topic, "all")] == ["x"]
        assert spark.sql("SELECT body FROM published").collect() == [("x",)]
    finally:
        spark.sql("DROP TABLE published")
