"""What has to hold of schedules when a client dies between any two of its requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest

import shardq
from shardq.client import Client
from shardq.schedules import occurrences
from shardq.storage.store import Store
from tests.kills.killers import Killer
from tests.kills.scene import MOST, TRIES, Scene

__all__ = ["KilledSchedules"]

CHANGES: dict[str, Callable[[Client, str], object]] = {
    "create": lambda client, name: client.schedules.create(name, queue=name, every=1, count=1, exist_ok=True),
    "alter": lambda client, name: client.schedules.alter(name, body=b"new"),
    "pause": lambda client, name: client.schedules.pause(name),
    "delete": lambda client, name: client.schedules.delete(name),
}


class Ticks:
    """The messages of a schedule's occurrences that came out of a queue, also more than once."""

    def __init__(self, queue: shardq.Queue) -> None:
        self._consumer = queue.consumer()
        self.ids: dict[object, set[str]] = defaultdict(set)

    def receive(self) -> int:
        batch = self._consumer.receive(10)
        for message in batch:
            self.ids[message.headers["shardq-scheduled-for"]].add(message.id)
        batch.ack()
        return len(batch)

    @property
    def count(self) -> int:
        return sum(map(len, self.ids.values()))


@pytest.mark.long
@pytest.mark.timeout(600)
class KilledSchedules:
    """A store's tests provide the fixture ``killer``."""

    @pytest.fixture
    def schedules(self, killer: Killer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
        scene = Scene(killer)
        monkeypatch.setattr(occurrences, "_PATIENCE", scene.lease)
        yield scene
        scene.close()

    def test_an_occurrence_whose_consumer_dies_is_one_message(self, schedules: Scene) -> None:
        client = Client(schedules.healthy)
        for requests in schedules.killer.every_third(MOST):
            queue = self._new_queue(schedules, client)
            client.schedules.create(queue.name, queue=queue.name, every=1, count=2)
            schedules.harness.advance(1.0)

            def act(store: Store, name: str = queue.name) -> None:
                Client(store, retry_seconds=0).queue(name).consumer().receive(10)

            killed = schedules.killer.run(act, requests)
            heir = Client(schedules.harness.open())
            ticks = Ticks(heir.queue(queue.name))
            for _ in range(TRIES):
                ticks.receive()
                schedule = heir.schedules.get(queue.name)
                if schedule.next is None and ticks.count >= schedule.sent:
                    break
                schedules.harness.advance(0.5 * schedules.harness.time_scale)
            assert ticks.receive() == 0
            assert all(len(each) == 1 for each in ticks.ids.values()), requests
            assert (schedule.next, schedule.sent) == (None, len(ticks.ids)), requests
            heir.schedules.delete(queue.name)
            heir.close()
            if not killed:
                return
        pytest.fail("receiving has no end")

    @pytest.mark.parametrize("change", list(CHANGES))
    def test_a_change_that_was_cut_off_can_be_made_again(self, schedules: Scene, change: str) -> None:
        client = Client(schedules.healthy)
        for requests in schedules.killer.every_third(MOST):
            queue = self._new_queue(schedules, client)
            if change != "create":
                client.schedules.create(queue.name, queue=queue.name, every=1, count=1)

            def act(store: Store, name: str = queue.name) -> None:
                CHANGES[change](Client(store, retry_seconds=0), name)

            killed = schedules.killer.run(act, requests)
            heir = Client(schedules.harness.open())
            if killed:
                self._repeat(heir, change, queue.name)
            assert len(heir.schedules.list(queue.name)) == (change != "delete"), requests
            expected = 0 if change in ("delete", "pause") else 1
            ticks = Ticks(heir.queue(queue.name))
            schedules.harness.advance(1.0)
            for _ in range(TRIES if expected else 1):
                if ticks.receive():
                    break
                schedules.harness.advance(0.5 * schedules.harness.time_scale)
            assert ticks.count == expected, requests
            if change != "delete":
                heir.schedules.delete(queue.name)
            heir.close()
            if not killed:
                return
        pytest.fail("the change has no end")

    def _new_queue(self, scene: Scene, client: Client) -> shardq.Queue:
        return client.create_queue(
            scene.new_name(),
            shards=1,
            time_shards=1,
            visibility_timeout=scene.lease / 1e6,
            max_deliveries=None,
        )

    def _repeat(self, client: Client, change: str, name: str) -> None:
        try:
            CHANGES[change](client, name)
        except shardq.ScheduleNotFound:
            assert change == "delete"
