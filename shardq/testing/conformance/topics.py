"""Contract: published messages are stored, and every subscription gets each once, also after crashes."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from shardq.core.settings import QueueSettingsArguments
from shardq.testing.conformance.applications import ApplicationContract, Applications

__all__ = ["TopicContract"]

RETENTION = 3_600.0
ONE_SHARD: QueueSettingsArguments = {"shards": 1, "time_shards": 1}


class TopicContract(ApplicationContract):
    """Publishing to a topic, and the messages that its subscriptions get."""

    def test_every_subscription_gets_what_a_publisher_that_died_has_published(
        self, apps: Applications
    ) -> None:
        topic = apps.client.create_topic(apps.name, retention=RETENTION)
        for name in ("one", "two"):
            topic.subscribe(name, **ONE_SHARD)
        topic.subscribe("some", filter="odd.*", **ONE_SHARD)
        topic.publish(b"0", subject="even.x")
        topic.publish_many([b"1", b"2", b"3"], subject="odd.x")
        apps.kill(apps.client)
        every = [b"0", b"1", b"2", b"3"]
        self._check(apps, {"one": every, "two": every, "some": every[1:]})

    def test_what_is_published_again_under_its_key_comes_once(self, apps: Applications) -> None:
        topic = apps.client.create_topic(apps.name, retention=RETENTION)
        topic.subscribe("one", **ONE_SHARD)
        for client in (apps.client, apps.other):
            client.topic(apps.name).publish(b"0", dedupe_key="k")
        self._check(apps, {"one": [b"0"]})

    def test_a_subscription_that_starts_earlier_gets_what_others_have_had(self, apps: Applications) -> None:
        topic = apps.client.create_topic(apps.name, retention=RETENTION)
        topic.subscribe("one", **ONE_SHARD)
        topic.publish_many([b"0", b"1"])
        self._check(apps, {"one": [b"0", b"1"]})
        apps.other.topic(apps.name).subscribe("late", start="earliest", **ONE_SHARD)
        topic.publish(b"2")
        self._check(apps, {"one": [b"2"], "late": [b"0", b"1", b"2"]})

    def test_a_topic_that_is_deleted_leaves_no_queue(self, apps: Applications) -> None:
        topic = apps.client.create_topic(apps.name, retention=RETENTION)
        topic.subscribe("one", **ONE_SHARD)
        topic.publish(b"0")
        apps.other.delete_topic(apps.name)
        assert apps.name not in apps.client.topics()
        assert apps.queues() == ()

    def _check(self, apps: Applications, expected: dict[str, list[bytes]]) -> None:
        """Relay until every subscription has what it is to have, and no more comes."""
        topic, came = apps.other.topic(apps.name), {name: list[bytes]() for name in expected}
        queues = {name: apps.other.queue(topic.subscription(name).queue.name) for name in expected}
        consumers = {name: queue.consumer() for name, queue in queues.items()}

        def all_came() -> bool:
            topic.relay()
            for name, consumer in consumers.items():
                batch = consumer.receive(100)
                came[name] += batch.bodies
                batch.ack()
            return all(len(came[name]) >= len(expected[name]) for name in expected)

        assert apps.until(all_came)
        all_came()
        assert {name: sorted(bodies) for name, bodies in came.items()} == expected
