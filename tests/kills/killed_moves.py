"""What has to hold of messages that are moved when a client dies between any two of its requests."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import shardq
from shardq.client import Client
from shardq.core.receiving import redrive
from shardq.storage.store import Store
from tests.kills.killers import Killer
from tests.kills.scene import MOST, TRIES, Scene

__all__ = ["KilledMoves"]

BODIES = [f"message {number}".encode() for number in range(5)]


def dead_letter(queue: shardq.Queue, limit: int) -> None:
    with queue.consumer() as consumer:
        batch = consumer.receive(limit, wait=0)
        if batch:
            batch.dead_letter("by hand")


def forward(queue: shardq.Queue, limit: int) -> None:
    with queue.consumer() as consumer:
        batch = consumer.receive(limit, wait=0)
        if batch:
            batch.forward(f"{queue.name}.dead", atomic=False)


def forward_changed(queue: shardq.Queue, limit: int) -> None:
    """Each attempt changes the messages in its own way."""
    with queue.consumer() as consumer:
        for message in consumer.receive(limit, wait=0):
            headers = {"attempt": random.randbytes(random.choice((4, 4_000)))}
            message.forward(
                f"{queue.name}.dead",
                headers=headers,
                priority=random.randrange(10),
                delay=random.choice((0, 0.5)),
                atomic=False,
            )


def send_back(queue: shardq.Queue, limit: int) -> None:
    queue.redrive(limit)


MOVES = (dead_letter, forward, forward_changed, send_back)


@pytest.mark.timeout(600)
class KilledMoves:
    """A store's tests provide the fixture ``killer``."""

    @pytest.fixture
    def moves(self, killer: Killer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
        scene = Scene(killer)
        lease = scene.lease / 1e6
        monkeypatch.setattr(redrive, "REDRIVE_LEASE_SECONDS", lease)
        yield scene
        scene.close()

    @pytest.mark.parametrize("move", MOVES)
    def test_a_move_that_is_cut_short_leaves_each_message_once_in_the_end(
        self, moves: Scene, move: Callable[[shardq.Queue, int], None]
    ) -> None:
        # Of one group, in three lanes; the target has one, and two for those who complete it
        in_lanes = move is forward and moves.healthy.capabilities.groups
        for requests in moves.killer.every_third(MOST):
            name = self._given(moves, dead=move is send_back, group="a" if in_lanes else None)

            def act(store: Store, name: str = name) -> None:
                move(Client(store).queue(name), 100)

            killed = moves.killer.run(act, requests)
            # When others move the rest, cut in another way
            heir = moves.harness.open()
            client = Client(heir)
            source, target = client.queue(name), client.queue(f"{name}.dead")
            if move is send_back:
                source, target = target, source
            if in_lanes:
                target.alter(group_concurrency=2)
            for _ in range(TRIES):
                move(client.queue(name), 2)
                counts = source.counts()
                if not counts.ready + counts.delayed + counts.in_flight:
                    break
                moves.harness.advance(0.5 * moves.harness.time_scale)
            # Then each message is in one place, once
            assert self._bodies(target) == Counter(BODIES)
            heir.close()
            if not killed:
                break
        else:
            pytest.fail("the move has no end")

    def _given(self, scene: Scene, *, dead: bool, group: str | None) -> str:
        name = scene.new_name()
        client = Client(scene.healthy)
        queue = client.create_queue(
            name,
            shards=1,
            time_shards=1,
            max_deliveries=50,
            visibility_timeout=scene.lease / 1e6,
            group_concurrency=3,
        )
        client.queue(f"{name}.dead").alter(visibility_timeout=scene.lease / 1e6)
        with queue.producer(bundle_messages=3) as producer:
            producer.send_many(BODIES, group=group)
        while dead and queue.counts().ready:
            dead_letter(queue, 3)
        scene.queues.append(f"{name}.dead")
        return name

    def _bodies(self, queue: shardq.Queue) -> Counter[bytes]:
        return Counter(stored.body for stored in queue.peek(100))
