"""Contracts on what is built on the port: topics, schedules, patterns and large bodies.

Published messages are stored, and every subscription gets each once, also after crashes. Each occurrence of a schedule
is one message, whatever the number of clients that keep it going. A consumer of a pattern notices queues that other
clients create and delete. A large body is read whole for as long as a message has it, and its parts go with the last
one.
"""

# ruff: noqa: D102 -- the name of a test is its sentence

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial

import pytest

from shardq.client.consumer import Consumer
from shardq.client.queue import Queue
from shardq.core.large import bodies, collecting
from shardq.core.large.layout import BODIES, body_of, is_owner
from shardq.core.message import Message
from shardq.core.settings import QueueSettingsArguments
from shardq.errors import ScheduleExists, ShardqError
from shardq.testing.conformance.applications import ApplicationContract, Applications
from shardq.testing.conformance.contract import run_together

__all__ = ["LargeBodyContract", "PatternContract", "ScheduleContract", "TopicContract"]

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


class ScheduleContract(ApplicationContract):
    """Schedules of a queue that clients consume at the same time."""

    def test_each_tick_is_one_message(self, apps: Applications) -> None:
        consumers = self._consumers(apps)
        apps.client.schedules.create(apps.name, queue=apps.name, every=1, count=3, body=b"x")
        ticks: list[object] = []

        def all_came() -> bool:
            for received in run_together([partial(self._ticks, each) for each in consumers]):
                ticks.extend(received)
            return len(ticks) >= 3

        assert apps.until(all_came)
        all_came()
        assert len(ticks) == len(set(ticks)) == 3
        schedule = apps.other.schedules.get(apps.name)
        assert (schedule.sent, schedule.next) == (3, None)

    def test_a_tick_of_a_client_that_died_comes_to_another(self, apps: Applications) -> None:
        self._consumers(apps)
        apps.client.schedules.create(apps.name, queue=apps.name, every=1, count=1, body=b"x")
        apps.kill(apps.client)
        consumer = apps.other.queue(apps.name).consumer()
        assert apps.until(lambda: len(self._ticks(consumer)) == 1)
        assert self._ticks(consumer) == []

    def test_of_several_clients_that_create_a_schedule_one_does(self, apps: Applications) -> None:
        self._consumers(apps)

        def create(number: int) -> bool:
            client = (apps.client, apps.other)[number % 2]
            try:
                client.schedules.create(apps.name, queue=apps.name, cron="@daily", body=b"%d" % number)
            except ScheduleExists:
                return False
            return True

        created = run_together([partial(create, number) for number in range(4)])
        assert created.count(True) == 1
        assert apps.other.schedules.get(apps.name).body == b"%d" % created.index(True)

    def _consumers(self, apps: Applications) -> list[Consumer]:
        """Return a consumer in each of two clients, of a queue that nothing was sent to."""
        apps.client.create_queue(apps.name, shards=1, time_shards=1)
        return [client.queue(apps.name).consumer() for client in (apps.client, apps.other)]

    def _ticks(self, consumer: Consumer) -> list[object]:
        """Receive and ack what there is; return which occurrences it was."""
        batch = consumer.receive(10)
        batch.ack()
        return [message.headers["shardq-scheduled-for"] for message in batch]


FOLLOW_SECONDS = 5


class PatternContract(ApplicationContract):
    """Names, patterns, and the catalogue that shows changes."""

    def test_a_pattern_matches_no_queue_for_dead_letters(self, apps: Applications) -> None:
        apps.client.create_queue(f"{apps.name}/a", dead_letter_queue=f"{apps.name}/failed")
        apps.other.create_queue(f"{apps.name}/b")
        assert apps.other.pattern(f"{apps.name}/*").names() == (f"{apps.name}/a", f"{apps.name}/b")

    def test_a_consumer_of_a_pattern_notices_what_another_client_creates_and_deletes(
        self, apps: Applications
    ) -> None:
        old, new = f"{apps.name}/old", f"{apps.name}/new"
        apps.client.create_queue(old, shards=1, time_shards=1).producer().send(b"1")
        with apps.other.consumer([f"{apps.name}/*"]) as consumer:
            first = consumer.receive()
            assert (first.queue, first.bodies) == (old, [b"1"])
            first.ack()
            apps.client.delete_queue(old)
            apps.client.create_queue(new, shards=1, time_shards=1).producer().send(b"2")
            if not apps.harness.real_time:
                apps.harness.advance(FOLLOW_SECONDS)
            second = consumer.receive(wait=4 * FOLLOW_SECONDS)
            assert (second.queue, second.bodies) == (new, [b"2"])
            second.ack()
            assert not consumer.receive()


PART = 1_000
CONTENT = bytes(range(256)) * 10 + b"end"
PARTS = 3
LONG = 600.0  # seconds of a lease that does not run out


class LargeBodyContract(ApplicationContract):
    """Bodies in parts, beside their messages."""

    @pytest.fixture
    def large(self, apps: Applications, monkeypatch: pytest.MonkeyPatch) -> Queue:
        """Make a queue, in which bodies are stored in small parts."""
        monkeypatch.setattr(bodies, "PART_BYTES", PART)
        return apps.client.create_queue(
            apps.name, shards=1, time_shards=1, visibility_timeout=apps.seconds(LONG)
        )

    @pytest.fixture
    def later(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
        """Let everything that is stored count as written long ago."""
        return lambda: monkeypatch.setattr(collecting, "GRACE", -60_000_000)

    def test_a_large_body_is_read_whole_by_another_client(self, apps: Applications, large: Queue) -> None:
        large.producer().send_stream(io.BytesIO(CONTENT))
        message = self._only(apps)
        with message.open() as body:
            assert body.read() == CONTENT
            assert body.seek(PART - 3) == PART - 3
            assert body.read(10) == CONTENT[PART - 3 :][:10]

    def test_the_parts_of_a_body_go_with_its_message(self, apps: Applications, large: Queue) -> None:
        large.producer().send_stream(io.BytesIO(CONTENT))
        message = self._only(apps)
        assert message.large is not None
        assert self._parts(apps, message.large.id) == PARTS
        message.ack()
        assert self._parts(apps, message.large.id) == 0

    @pytest.mark.parametrize("by", ["pop", "remove", "purge"])
    def test_the_parts_of_a_body_whose_message_is_gone_are_swept(
        self, apps: Applications, large: Queue, later: Callable[[], None], by: str
    ) -> None:
        identity = large.producer().send_stream(io.BytesIO(CONTENT))
        (stored,) = large.peek()
        assert stored.large is not None
        other = apps.other.queue(apps.name)
        leave: dict[str, Callable[[], object]] = {
            "pop": other.consumer().pop,
            "remove": lambda: other.remove(identity),
            "purge": other.purge,
        }
        assert leave[by]()
        later()
        large.sweep()
        assert self._parts(apps, stored.large.id) == 0

    def test_the_parts_of_a_body_stay_while_a_message_has_them(
        self, apps: Applications, large: Queue, later: Callable[[], None]
    ) -> None:
        large.producer().send_stream(io.BytesIO(CONTENT))
        message = self._only(apps)
        assert message.large is not None
        large.producer().send(message.large)
        message.ack()
        later()
        large.sweep()
        assert self._parts(apps, message.large.id) == PARTS
        again = self._only(apps)
        with again.open() as body:
            assert body.read() == CONTENT
        again.ack()
        large.sweep()
        assert self._parts(apps, message.large.id) == 0

    def test_what_a_sender_that_died_has_stored_of_a_body_is_swept(
        self, apps: Applications, large: Queue, later: Callable[[], None]
    ) -> None:
        before = self._stored(apps)

        class Interrupted(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                if self.tell() >= 2 * PART:
                    apps.kill(apps.client)
                return super().read(size)

        with pytest.raises(ShardqError):
            large.producer().send_stream(Interrupted(CONTENT))
        left = self._stored(apps) - before
        assert sum(not is_owner(each) for each in left) == 2
        assert apps.other.queue(apps.name).counts().ready == 0
        later()
        apps.other.queue(apps.name).sweep()
        assert not left & self._stored(apps)

    def _only(self, apps: Applications) -> Message:
        (message,) = apps.other.queue(apps.name).consumer().receive(1)
        return message

    def _parts(self, apps: Applications, body: bytes) -> int:
        """Count the parts of a body that are stored."""
        return sum(body_of(each) == body and not is_owner(each) for each in self._stored(apps))

    def _stored(self, apps: Applications) -> set[bytes]:
        """Return the ids of all parts and owners' entries that are stored, whosever they are."""
        bodies = apps.harness.raw_queue(BODIES).bodies
        return {each for ids in bodies.values() for each in ids}
