"""What has to hold of topics when a client dies between any two of its requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from shardq.client import Client
from shardq.core.settings import QueueSettingsArguments
from shardq.storage.store import Store
from shardq.topics import Subscription, SubscriptionNotFound, Topic, TopicNotFound, relay
from shardq.topics.background import Background
from shardq.topics.names import folder_of, log_of, state_of
from tests.kills.killers import Killer
from tests.kills.scene import TRIES, Scene
from tests.topics.receiving import received

__all__ = ["KilledTopics"]

MOST = 600  # writes that a client may make
HOUR = 3_600.0
ONE_SHARD: QueueSettingsArguments = {"shards": 1, "time_shards": 1}
ODD, EVEN = "odd.x", "even.x"


class TopicScene(Scene):
    """A topic with a subscription of everything and one with a filter. Nothing relays but who is asked to."""

    def __init__(self, killer: Killer) -> None:
        super().__init__(killer)
        self.client = Client(self.healthy)
        self.topics: list[str] = []
        self._heirs: list[Client] = []

    def new_topic(self) -> Topic:
        topic = self.client.create_topic(self.new_name(), retention=10_000 * HOUR)
        self.topics.append(self.queues.pop())  # of a topic more is to be deleted
        topic.subscribe("all", **ONE_SHARD)
        topic.subscribe("odd", filter="odd.*", **ONE_SHARD)
        return topic

    def publish(self, topic: Topic, batch: int) -> Sequence[bytes]:
        """Publish five messages, of which those with odd numbers have an odd subject."""
        bodies = [b"%d-%d" % (batch, number) for number in range(5)]
        topic.publish(bodies[0], subject=EVEN)
        topic.publish(bodies[1], subject=ODD)
        topic.publish_many([bodies[2], bodies[4]], subject=EVEN)
        topic.publish_many([bodies[3]], subject=ODD)
        return bodies

    def kills(self, act: Callable[[Client], object], numbers: Iterable[int]) -> Iterator[tuple[int, bool]]:
        """Let clients die after so many writes, until one lives; gives how many it were, and whether it died."""
        for requests in numbers:
            killed = self.killer.run(lambda store: self._act(act, store), requests)
            yield requests, killed
            self._close_heirs()
            if not killed:
                return
        pytest.fail("the operation has no end")

    def heir(self, topic: Topic) -> Topic:
        """The topic in another client, as of :meth:`heirs_client`."""
        return self.heirs_client(topic).topic(topic.name)

    def heirs_client(self, topic: Topic) -> Client:
        """Open another client, when the leases of who died are over, and long after that if it can be."""
        for name in (log_of(topic.name), state_of(topic.name)):
            if self.client.exists(name):
                self.end_leases(self.client.queue(name))
        if not self.harness.real_time:
            self.harness.advance(HOUR)  # no store knows the ids any more of what was received
        self._heirs.append(Client(self.harness.open()))
        return self._heirs[-1]

    def come(self, subscription: Subscription, expected: Collection[bytes]) -> list[Any]:
        """All that a subscription has, when as much came as is expected; more that comes with it, too."""
        bodies: list[Any] = []
        for _ in range(TRIES):
            bodies += received(subscription)
            if len(bodies) >= len(expected):
                break
            self.harness.advance(0.5 * self.harness.time_scale)
        return bodies + received(subscription)

    def close(self) -> None:
        self._close_heirs()
        for name in self.topics:
            if self.client.exists(log_of(name)):
                self.client.delete_topic(name)
        super().close()

    def _close_heirs(self) -> None:
        while self._heirs:
            self._heirs.pop().close()

    def _act(self, act: Callable[[Client], object], store: Store) -> None:
        act(Client(store, retry_seconds=0))


def odd(bodies: Collection[bytes]) -> list[bytes]:
    return [body for body in bodies if body[-1] % 2]


@pytest.mark.long
@pytest.mark.timeout(600)
class KilledTopics:
    """A store's tests provide the fixture ``killer``."""

    @pytest.fixture
    def topics(self, killer: Killer, monkeypatch: pytest.MonkeyPatch) -> Iterator[TopicScene]:
        monkeypatch.setattr(Background, "serve_for", lambda background, seconds: None)
        monkeypatch.setattr(Background, "published", lambda background: None)
        monkeypatch.setattr(relay, "TURN", 0.0)  # a round of who died is not left to it
        scene = TopicScene(killer)
        yield scene
        scene.close()

    def test_a_relay_that_dies_neither_loses_nor_doubles(self, topics: TopicScene) -> None:
        topic = topics.new_topic()
        every, some = topic.subscription("all"), topic.subscription("odd")

        def act(client: Client) -> None:
            own = client.topic(topic.name)
            own.publish(b"last-1", subject=ODD)
            own.relay()

        bodies = topics.publish(topic, 0)
        for requests, killed in topics.kills(act, topics.killer.every_ninth(MOST)):
            # What arrived is received before others go on
            came, few = received(every), received(some)
            topics.heir(topic).relay()
            came += topics.come(every, [] if len(came) > len(bodies) else bodies[len(came) :])
            few += topics.come(some, [] if len(few) > 2 else odd(bodies)[len(few) :])
            last = came.count(b"last-1")
            assert last in ((0, 1) if killed else (1,)), requests
            assert Counter(came) == Counter([*bodies, *[b"last-1"] * last]), requests
            assert Counter(few) == Counter([*odd(bodies), *[b"last-1"] * last]), requests
            bodies = topics.publish(topic, requests + 1)

    def test_whoever_subscribes_from_the_beginning_and_dies_subscribes_again(
        self, topics: TopicScene
    ) -> None:
        topic = topics.new_topic()

        def subscribe(client: Client) -> Subscription:
            return client.topic(topic.name).subscribe("late", filter="odd.*", start="earliest", **ONE_SHARD)

        published: list[bytes] = []
        for batch in (0, 1):
            published += topics.publish(topic, batch)
            topic.relay() if not batch else None
        for requests, _ in topics.kills(subscribe, topics.killer.every_ninth(MOST)):
            heir = topics.heirs_client(topic)
            late = subscribe(heir)
            heir.topic(topic.name).relay()
            assert Counter(topics.come(late, odd(published))) == Counter(odd(published)), requests
            late.delete()
            if requests % 20 == 0:  # each message is copied by each subscription to come
                published += topics.publish(topic, requests + 2)
        every = topic.subscription("all")
        topic.relay()
        assert Counter(topics.come(every, published)) == Counter(published)

    def test_a_subscription_whose_rewinding_dies_has_everything_once_more_or_as_before(
        self, topics: TopicScene
    ) -> None:
        topic = topics.new_topic()
        every = topic.subscription("all")
        published = [*topics.publish(topic, 0)]
        topic.relay()
        topics.come(every, published)

        def rewind(client: Client) -> None:
            client.topic(topic.name).subscription("all").seek("earliest")

        new = b"0-5"
        topic.publish(new, subject=ODD)
        for requests, killed in topics.kills(rewind, topics.killer.every_ninth(MOST)):
            published.append(new)
            came = received(every)
            topics.heir(topic).relay()
            came += topics.come(every, [] if came else [new])
            again = Counter(published)
            assert Counter(came) in (Counter([new]), again, again + Counter([new])), requests
            assert killed or Counter(came) == again
            new = b"%d-6" % requests
            topic.publish(new, subject=ODD)

    def test_what_is_deleted_half_way_can_be_deleted_and_made_again(self, topics: TopicScene) -> None:
        doomed = [topics.new_topic()]

        def delete(client: Client) -> None:
            topic = client.topic(doomed[-1].name)
            topic.subscription("odd").delete()
            client.delete_topic(topic.name)

        topics.publish(doomed[-1], 0)
        for requests, killed in topics.kills(delete, topics.killer.every_ninth(MOST)):
            topic = doomed[-1]
            try:
                heir = topics.heir(topic)
                again = heir.subscribe("odd", **ONE_SHARD)
                heir.publish(b"new", subject=ODD)
                heir.relay()
                assert b"new" in topics.come(again, [b"new"]), requests
                again.delete()
                topics.client.delete_topic(topic.name)
            except (TopicNotFound, SubscriptionNotFound):
                assert requests
                with suppress(TopicNotFound):  # unless its log was left half deleted
                    topics.client.delete_topic(topic.name)  # and what was left goes with that
            assert topics.client.queues(folder_of(topic.name)) == (), requests
            if killed:
                doomed.append(topics.new_topic())
                topics.publish(doomed[-1], requests + 1)
