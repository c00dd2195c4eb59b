"""Senders and listeners are killed before any change that they ask for: nobody else notices, nothing stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

import shardq
from shardq.broadcast import Broadcast
from shardq.broadcast.broadcast import LEASE_SECONDS, Entry
from shardq.storage.opening import open_store
from shardq.testing import FaultPlan, FaultyStore, ManualClock
from tests.broadcast.conftest import received
from tests.dying_store import Died, MortalStore

KEEP = 60.0
MANY = [b"%d" % number for number in range(5)]


class Scene:
    """A client that is killed, and sound ones beside it; each broadcast is a new one."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.clock, self.store = clock, MortalStore(open_store(url, clock))
        self.sound = shardq.connect(url, clock=clock, retry_seconds=0)

    def kills(self, act: Callable[[Broadcast], object]) -> Iterator[tuple[Broadcast, Callable[[], bool]]]:
        """For each request of what is done a new broadcast, and what kills there; ends when nothing is left to kill."""
        for calls in count():
            name, killed = f"news{calls}", []

            def kill(calls: int = calls, name: str = name, killed: list[bool] = killed) -> bool:
                killed.append(self._killed(act, name, calls))
                return killed[0]

            yield Broadcast(self.sound, name), kill
            if not killed[0]:
                assert calls > 1, "it made no requests"
                return

    def _killed(self, act: Callable[[Broadcast], object], name: str, calls: int) -> bool:
        self.store.calls_left = calls
        try:
            act(Broadcast(shardq.Client(self.store, retry_seconds=0), name))
        except Died:
            return True
        finally:
            self.store.calls_left = None
        return False

    def left(self, news: Broadcast) -> tuple[str, ...]:
        """The queues of a broadcast, long after everybody is gone."""
        for _ in range(4):
            self.clock.advance(KEEP)
            self.sound.delete_expired_queues(f"{news.name}.live/")
        return self.sound.queues(news.name + ".")


@pytest.fixture
def scene(url: str, clock: ManualClock) -> Iterator[Scene]:
    scene = Scene(url, clock)
    yield scene
    scene.sound.close()
    scene.store.close()


def test_of_a_sender_that_is_killed_each_listener_gets_all_or_nothing_and_none_twice(scene: Scene) -> None:
    for news, kill in scene.kills(lambda news: news.publish_many(MANY)):
        with news.subscribe() as one, news.subscribe() as other:
            kill()
            assert all(sorted(received(each)) in ([], MANY) for each in (one, other))
            assert news.publish(b"after") == 2
            assert received(one) == received(other) == [b"after"]
        assert scene.left(news) == (f"{news.name}.subscribers",)


def test_a_listener_that_is_killed_is_left_out_and_its_queue_and_its_place_are_free_again(
    scene: Scene, entries: list[Entry]
) -> None:
    def listen(news: Broadcast) -> None:
        with news.subscribe(keep=KEEP) as subscription:
            news.publish(b"own")
            received(subscription)

    for news, kill in scene.kills(listen):
        with news.subscribe() as other:
            other_entry = entries[-1]
            killed = kill()
            news.publish(b"while its lease lasts")
            scene.clock.advance(LEASE_SECONDS - 5)
            other_entry.keep()
            scene.clock.advance(5)
            assert news.publish(b"after") == 1
            heard = received(other)
            assert sorted(heard)[:1] == [b"after"]
            assert heard.count(b"own") <= 1
            assert heard.count(b"while its lease lasts") == 1
            with news.subscribe() as heir:
                assert received(heir) == []
                assert news.publish(b"to the heir") == 2
                assert received(heir) == [b"to the heir"]
        counts = scene.sound.queue(f"{news.name}.subscribers").counts()
        assert (counts.ready, counts.in_flight) == (0, 0), killed
        assert scene.left(news) == (f"{news.name}.subscribers",)


@pytest.mark.parametrize("method", ["create_queue", "claim", "load_queue"])
def test_a_subscription_that_cannot_be_made_again_now_is_made_by_a_later_receive(
    url: str, clock: ManualClock, client: shardq.Client, method: str
) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store, retry_seconds=0) as failing:
        subscription = Broadcast(failing, "news").subscribe(keep=KEEP)
        clock.advance(LEASE_SECONDS + 1)
        store.plan = FaultPlan(probability=1.0, methods=frozenset({method}))
        for _ in range(2):
            with pytest.raises((shardq.StoreUnavailable, shardq.OutcomeUnknown)):
                subscription.receive()
        store.plan = FaultPlan()
        assert not subscription.receive()
        assert Broadcast(client, "news").publish(b"x") == 1
        assert received(subscription) == [b"x"]
        subscription.close()
    assert client.queues() == ("news.subscribers",)
