"""What has to hold of large bodies when a client dies between any two of its requests."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from shardq.client import Client
from shardq.core.large import bodies, collecting
from shardq.core.large.layout import BODIES, body_of, is_owner
from shardq.core.receiving import redrive
from shardq.storage.store import Store
from tests.kills.killers import Killer
from tests.kills.scene import Scene

__all__ = ["KilledBodies"]

MOST = 600  # writes that a client may make
PART = 100
CONTENT = bytes(range(256)) + b"end"  # of three parts


def live(client: Client, name: str) -> None:
    """Send large bodies, move one to the dead letters and back, replace one, and finish them."""
    queue = client.queue(name)
    for _ in range(2):
        queue.producer().send_stream(io.BytesIO(CONTENT))
    first, second = queue.consumer(visibility_timeout=60).receive(2, wait=10)
    first.dead_letter("bad")
    second.release(body=b"small")
    queue.redrive()
    queue.sweep()
    for _ in range(2):
        for message in queue.consumer(visibility_timeout=60).receive(1, wait=10):
            message.ack()


@pytest.mark.long
@pytest.mark.timeout(600)
class KilledBodies:
    """A store's tests provide the fixture ``killer``."""

    @pytest.fixture
    def bodies(self, killer: Killer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
        monkeypatch.setattr(bodies, "PART_BYTES", PART)
        scene = Scene(killer)
        monkeypatch.setattr(redrive, "REDRIVE_LEASE_SECONDS", scene.lease / 1e6)
        yield scene
        scene.close()

    def test_whoever_dies_every_message_is_read_whole_and_nothing_else_is_kept(
        self, bodies: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        others = self._stored(bodies)
        for requests in bodies.killer.every_ninth(MOST):
            name = bodies.new_name()
            bodies.queues.append(f"{name}.dead")
            Client(bodies.healthy).create_queue(name, shards=1, time_shards=1)

            def act(store: Store, name: str = name) -> None:
                live(Client(store, retry_seconds=0), name)

            killed = bodies.killer.run(act, requests)
            heir = Client(bodies.harness.open())
            with monkeypatch.context() as later:
                later.setattr(collecting, "GRACE", -60_000_000)  # as if everything were old
                had = self._whole(heir, name)
                heir.queue(name).sweep()
                assert self._whole(heir, name) == had
                stored = self._stored(bodies) - others
                assert {body_of(each) for each in stored if not is_owner(each)} == had, requests
                for queue in (name, f"{name}.dead"):
                    heir.queue(queue).purge()
                heir.queue(name).sweep()
                assert self._stored(bodies) <= others, requests
            heir.close()
            if not killed:
                assert not had
                return
        pytest.fail("the life has no end")

    def _whole(self, client: Client, name: str) -> set[bytes]:
        """The large bodies of the messages that are stored; all of them can be read."""
        found = set()
        for queue in (client.queue(name), client.queue(f"{name}.dead")):
            for message in queue.peek(100):
                if message.large is not None:
                    found.add(message.large.id)
                    with queue.open(message.id) as body:
                        assert body.read() == CONTENT
        return found

    def _stored(self, scene: Scene) -> set[bytes]:
        """The ids of all parts and owners' entries, behind the store."""
        if not Client(scene.healthy).exists(BODIES):
            return set()
        return {each for ids in scene.harness.raw_queue(BODIES).bodies.values() for each in ids}
