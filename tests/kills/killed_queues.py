"""What has to hold of whole queues when a client dies between any two of its requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from shardq.base.outgoing_message import OnConflict
from shardq.base.shard import Shard
from shardq.client import Client
from shardq.storage.requests import Acknowledge, Append, Bundle, Claim, QueueRecord, Span
from shardq.storage.store import Store
from shardq.testing import BundleFactory
from shardq.testing.messages import of_bundle
from tests.kills.killers import Killer
from tests.kills.scene import MOST, Scene

__all__ = ["KilledQueues"]

PAUSE = 0.1  # seconds between two attempts to forget a shard


@pytest.mark.timeout(600)
class KilledQueues:
    """A store's tests provide the fixture ``killer``."""

    @pytest.fixture
    def queues(self, killer: Killer) -> Iterator[Scene]:
        scene = Scene(killer)
        yield scene
        scene.close()

    def _at_every_request(
        self, scene: Scene, act: Callable[[Store, int], object], turn: int = 0
    ) -> Iterator[tuple[int, bool, Store]]:
        """Let clients die after more and more requests; gives the number of each, whether it died, and its heir."""
        for each, requests in enumerate(scene.killer.every_ninth(MOST)):
            killed = scene.killer.run(lambda store, each=each: act(store, each), requests)  # type: ignore[misc]
            heir = scene.harness.open()
            yield each, killed, heir
            heir.close()
            if not killed:
                return
        pytest.fail("the operation has no end")

    def test_a_queue_that_was_half_created_can_be_created_and_used(self, queues: Scene) -> None:
        names = [queues.new_name()]
        for _, _, heir in self._at_every_request(
            queues, lambda store, each: store.create_queue(QueueRecord(names[each], b"", 1))
        ):
            heir.create_queue(QueueRecord(names[-1], b"", 1))
            assert heir.load_queue(names[-1]) == QueueRecord(names[-1], b"", 1)
            shard, bundle = Shard(names[-1], 0, 0), BundleFactory(heir.now)(2)
            queues.healthy.append(Append(shard, (bundle,)))
            assert sorted(queues.delivered(heir, shard).elements()) == of_bundle(bundle)
            assert queues.audit(names[-1]) == []
            names.append(queues.new_name())

    @pytest.mark.parametrize("repeated", [False, True], ids=["created again", "dropped again"])
    def test_nothing_of_a_queue_that_was_half_dropped_is_in_the_next_one(
        self, queues: Scene, repeated: bool
    ) -> None:
        # Given queues with messages that wait and messages that are held
        shards: list[Shard] = []
        bundles: list[tuple[Bundle, ...]] = []

        def given() -> None:
            make = BundleFactory(queues.healthy.now)
            shards.append(Shard(queues.new_queue(), 0, 0))
            bundles.append((make(2), make(3)))
            queues.healthy.append(Append(shards[-1], bundles[-1]))
            queues.healthy.claim(Claim(shards[-1], b"t" * 16, 2, queues.lease))

        def drop(store: Store, each: int) -> None:
            store.drop_queue(shards[each].queue)

        given()
        for each, killed, heir in self._at_every_request(queues, drop, repeated):
            name = shards[each].queue
            # When a queue is created under the name of one that was half dropped
            if repeated:
                heir.drop_queue(name)
            created = heir.create_queue(QueueRecord(name, b"new", 1))
            # Then it is empty, and takes the same bundles again; or the old one is whole
            assert created or not (repeated or not killed)
            if created:
                assert queues.delivered(heir, shards[each]).total() == 0
                heir.append(Append(shards[each], bundles[each]))
            assert queues.delivered(heir, shards[each]).total() == 5
            assert queues.audit(name) == []
            given()

    def test_what_is_sent_to_a_shard_that_was_half_forgotten_is_delivered_and_listed(
        self, queues: Scene
    ) -> None:
        def shard_of(each: int) -> Shard:
            return Shard(queues.queue, 1, each)

        def given(each: int) -> None:
            """A shard that a client knows, and in which nothing is left."""
            bundle, shard = BundleFactory(queues.healthy.now)(2), shard_of(each)
            queues.healthy.append(Append(shard, (bundle,)))
            queues.healthy.claim(Claim(shard, b"t" * 16, 2, queues.lease))
            queues.healthy.acknowledge(Acknowledge(shard, (Span(bundle.id, 0, 2, b"t" * 16),)))

        def forget(store: Store, each: int) -> None:
            for _ in range(50):
                if store.drop_if_empty(shard_of(each)):
                    return
                time.sleep(PAUSE)

        given(0)
        for each, _, heir in self._at_every_request(queues, forget):
            bundle = BundleFactory(heir.now)(2)
            queues.healthy.append(Append(shard_of(each), (bundle,)))
            assert shard_of(each) in heir.shards(queues.queue)
            assert sorted(queues.delivered(heir, shard_of(each)).elements()) == of_bundle(bundle)
            given(each + 1)
        assert queues.audit() == []

    @pytest.mark.parametrize("conflict", ["keep", "replace"])
    def test_a_unique_key_whose_send_was_cut_short_has_one_message(
        self, queues: Scene, conflict: OnConflict
    ) -> None:
        """Whoever sends the key next finds the message of the one that died, or its key free, or replaces it."""

        def send(store: Store, each: int) -> None:
            producer = Client(store).queue(name).producer()
            producer.send(b"first", unique_key=f"key {each}")
            producer.send(b"next", unique_key=f"key {each}", on_conflict="replace")

        name = queues.new_name()
        Client(queues.healthy).create_queue(name, shards=1, time_shards=1, max_deliveries=None)
        for each, _, heir in self._at_every_request(queues, send):
            queue, key = Client(heir).queue(name), f"key {each}"
            identity = queue.producer().send(b"second", unique_key=key, on_conflict=conflict)
            with queue.consumer() as consumer:
                batch = consumer.receive(10, wait=0)
                assert len(batch) == 1  # whoever receives first may complete what was begun
                assert conflict == "keep" or [message.id for message in batch] == [identity]
                batch.ack()
                assert not consumer.receive(10, wait=0)
            assert queue.get(unique_key=key) is None
        Client(queues.healthy).queue(name).sweep()
        assert not queues.healthy.list_keys(name)
        assert queues.audit(name) == []

    @pytest.mark.parametrize("group", [None, "a"], ids=["alone", "in lanes"])
    def test_a_key_whose_send_was_cut_short_stands_for_one_message(
        self, queues: Scene, group: str | None
    ) -> None:
        """Whoever sends the key next completes the send, or finds it done, also when a group has other lanes then."""
        if group is not None and not queues.healthy.capabilities.groups:
            pytest.skip("the store has no groups")

        def send(store: Store, each: int) -> None:
            Client(store).queue(name).producer().send(b"first", dedupe_key=f"key {each}", group=group)

        name = queues.new_name()
        Client(queues.healthy).create_queue(name, shards=1, time_shards=1, max_deliveries=None)
        for each, _, heir in self._at_every_request(queues, send):
            queue = Client(heir).queue(name)
            if group is not None:
                queue.alter(group_concurrency=7 - 6 * (each % 2))
            identity = queue.producer().send(b"second", dedupe_key=f"key {each}", group=group)
            with queue.consumer() as consumer:
                batch = consumer.receive(10, wait=0)
                assert [message.id for message in batch] == [identity]
                batch.ack()
                assert not consumer.receive(10, wait=0)
        assert queues.audit(name) == []
