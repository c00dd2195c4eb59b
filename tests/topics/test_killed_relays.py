"""A client dies at any of its requests, and long after that others go on: each message arrives once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

import shardq
from shardq.core.context.queue_context import QueueContext, QueueContexts
from shardq.core.queue_lifecycle import create_queue
from shardq.core.settings import QueueSettingsArguments
from shardq.storage.opening import open_store
from shardq.testing import ManualClock
from shardq.topics import Subscription, SubscriptionNotFound, Topic, TopicNotFound
from shardq.topics.leftovers import drop_subscription
from shardq.topics.names import folder_of
from shardq.topics.relay import Relay
from shardq.topics.state import TopicState
from tests.dying_store import Died, MortalStore
from tests.topics.receiving import received

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("nobody_relays_beside")]

HOUR = 3600
ALL = [b"five", b"four", b"one", b"three", b"two"]
X = [b"four", b"one", b"three"]


class Scene:
    """Topics in a store: one client that may die, and one that lives."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.clock, self.store = clock, MortalStore(open_store(url, clock))
        self.alive = shardq.connect(url, clock=clock, retry_seconds=0)
        self.names = (f"t{number}" for number in count())

    def topic(self) -> Topic:
        topic = self.alive.create_topic(next(self.names), retention=10 * HOUR)
        topic.subscribe("all")
        topic.subscribe("x", filter="x")
        return topic

    def publish(self, topic: Topic) -> None:
        topic.publish(b"one", subject="x")
        topic.publish(b"two", subject="y")
        topic.publish_many([b"three", b"four"], subject="x")
        topic.publish(b"five")

    def dies(self, act: Callable[[shardq.Client], object], calls: int, *, after: bool) -> bool:
        """Let a client act that dies at such a call; False when it did not come to it."""
        self.store.calls_left, self.store.after = calls, after
        try:
            act(shardq.Client(self.store, retry_seconds=0))
        except Died:
            return True
        finally:
            self.store.calls_left = None
        return False


def relaying(name: str) -> Callable[[shardq.Client], object]:
    return lambda client: client.topic(name).relay()


def subscribing(name: str) -> Callable[[shardq.Client], object]:
    return lambda client: client.topic(name).subscribe("new", filter="x", start="earliest")


@pytest.fixture
def scene(url: str, clock: ManualClock, nobody_relays: None) -> Scene:
    return Scene(url, clock)


@pytest.mark.parametrize("after", [False, True])
def test_a_relay_that_dies_at_any_step_neither_doubles_nor_loses_however_late_others_go_on(
    scene: Scene, after: bool
) -> None:
    for calls in count():
        topic = scene.topic()
        scene.publish(topic)
        died = scene.dies(relaying(topic.name), calls, after=after)
        # What arrived is done, and its ids are forgotten when somebody else comes by
        every, some = topic.subscription("all"), topic.subscription("x")
        first = received(every), received(some)
        scene.clock.advance(HOUR if calls % 3 else 40)
        topic.relay()
        assert sorted(first[0] + received(every)) == ALL, calls
        assert sorted(first[1] + received(some)) == X, calls
        topic.publish(b"x", subject="x")
        topic.relay()
        counts = [each.queue.counts() for each in (every, some)]
        assert [(each.ready, each.delayed) for each in counts] == [(1, 0), (1, 0)], "no marker stays"
        if not died:
            break
    assert calls > 8


@pytest.mark.parametrize("after", [False, True])
def test_a_relay_that_dies_twice(scene: Scene, after: bool) -> None:
    for calls in range(1, 12):
        topic = scene.topic()
        scene.publish(topic)
        every = topic.subscription("all")
        bodies = []
        for again in range(3):
            scene.dies(relaying(topic.name), calls + again, after=after)
            bodies += received(every)
            scene.clock.advance(HOUR)
        topic.relay()
        assert sorted(bodies + received(every)) == ALL, calls


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_whoever_subscribes_from_the_beginning_and_dies_subscribes_again(
    scene: Scene, after: bool, waits: bool
) -> None:
    for calls in count():
        topic = scene.topic()
        scene.publish(topic)
        if not waits:
            topic.relay()
        scene.clock.advance(HOUR if calls % 2 else 1)
        died = scene.dies(
            subscribing(topic.name),
            calls,
            after=after,
        )
        scene.clock.advance(HOUR)
        new = topic.subscribe("new", filter="x", start="earliest")
        bodies = received(new)
        scene.clock.advance(HOUR)
        topic.relay()
        assert sorted(bodies + received(new)) == X, calls
        assert sorted(received(topic.subscription("all"))) == ALL
        if not died:
            break


@pytest.mark.parametrize("after", [False, True])
def test_a_subscription_whose_rewinding_dies_has_everything_once_more_or_as_before(
    scene: Scene, after: bool
) -> None:
    for calls in count():
        topic = scene.topic()
        scene.publish(topic)
        topic.relay()
        every = topic.subscription("all")
        received(every)
        topic.publish(b"six")
        scene.clock.advance(HOUR if calls % 2 else 1)

        def rewind(client: shardq.Client, name: str = topic.name) -> None:
            client.topic(name).subscription("all").seek("earliest")

        died = scene.dies(rewind, calls, after=after)
        bodies = received(every)
        scene.clock.advance(HOUR)
        topic.relay()
        bodies += received(every)
        assert sorted(bodies) in ([b"six"], sorted([*ALL, b"six"])), calls
        if not died:
            assert len(bodies) == 6
            break


@pytest.mark.parametrize("after", [False, True])
def test_what_is_deleted_half_way_can_be_deleted_and_made_again(scene: Scene, after: bool) -> None:
    for calls in count():
        topic = scene.topic()
        scene.publish(topic)

        def delete(client: shardq.Client, name: str = topic.name) -> None:
            client.topic(name).subscription("x").delete()
            client.delete_topic(name)

        died = scene.dies(delete, calls, after=after)
        scene.clock.advance(40)
        try:
            new = topic.subscribe("x")
            topic.publish(b"new", subject="x")
            topic.relay()
            assert b"new" in received(new)
            new.delete()
        except (TopicNotFound, SubscriptionNotFound):
            pass
        try:
            scene.alive.delete_topic(topic.name)
        except TopicNotFound:
            assert calls
        assert scene.alive.queues("_shardq/") == ()
        if not died:
            break


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("act", ["subscribe", "delete"])
def test_what_is_left_of_a_subscription_goes_with_the_next_of_its_name(
    scene: Scene, act: str, after: bool
) -> None:
    for calls in count():
        topic = scene.topic()

        def change(client: shardq.Client, name: str = topic.name) -> None:
            if act == "subscribe":
                client.topic(name).subscribe("new")
            else:
                client.topic(name).subscription("x").delete()

        died = scene.dies(change, calls, after=after)
        scene.clock.advance(HOUR)
        subscription = "new" if act == "subscribe" else "x"
        made = topic.subscribe(subscription)
        found = scene.alive.queues(folder_of(topic.name, subscription))
        assert found == (made.queue.name, f"{made.queue.name}.dead"), calls
        topic.publish(b"one", subject="x")
        topic.relay()
        assert received(made) == [b"one"]
        made.delete()
        assert scene.alive.queues(folder_of(topic.name, subscription)) == ()
        if not died:
            break


def test_a_subscription_that_is_made_and_deleted_by_many_is_there_or_not(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = scene.topic()
    before = topic.subscription("x")
    made: list[Subscription] = []

    def drop(contexts: QueueContexts, queue: str) -> None:
        drop_subscription(contexts, queue)
        if not made:  # as soon as it is gone somebody subscribes again
            made.append(scene.alive.topic(topic.name).subscribe("x"))

    monkeypatch.setattr("shardq.topics.subscription.drop_subscription", drop)
    before.delete()
    topic.publish(b"one", subject="x")
    topic.relay()
    assert received(topic.subscribe("x")) == [b"one"]
    assert topic.subscription("x").queue.name == made[0].queue.name


def test_whoever_subscribes_while_another_one_subscribes_and_deletes_has_a_subscription(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, change = scene.topic(), Relay.change
    faster = [True]

    def changed(relay: Relay, act: Callable[[TopicState], TopicState]) -> TopicState:
        if faster and faster.pop():  # somebody else is faster
            scene.alive.topic(topic.name).subscribe("new")
        return change(relay, act)

    monkeypatch.setattr(Relay, "change", changed)
    dropped: list[str] = []

    def drop(contexts: QueueContexts, queue: str) -> None:
        drop_subscription(contexts, queue)
        if not dropped:  # and it is deleted before the slower one opens it
            dropped.append(queue)
            scene.alive.topic(topic.name).subscription("new").delete()

    monkeypatch.setattr("shardq.topics.topic.drop_subscription", drop)
    made = topic.subscribe("new")
    topic.publish(b"one", subject="x")
    topic.relay()
    assert received(made) == [b"one"]
    assert dropped


def test_whoever_subscribes_while_its_queue_is_taken_for_a_leftover_makes_another(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = scene.topic()
    dropped: list[str] = []

    def create(
        contexts: QueueContexts, queue: str, settings: QueueSettingsArguments, *, exist_ok: bool
    ) -> QueueContext:
        context = create_queue(contexts, queue, settings, exist_ok=exist_ok)
        if not dropped:
            dropped.append(queue)
            drop_subscription(contexts, queue)
        return context

    monkeypatch.setattr("shardq.topics.topic.create_queue", create)
    made = topic.subscribe("new")
    topic.publish(b"one", subject="x")
    topic.relay()
    assert received(made) == [b"one"]
    assert dropped != [made.queue.name]
