"""What shardq keeps for itself goes on within a lease when a clock that was hours ahead is put right."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import shardq
from shardq.base.clock import SystemClock, microseconds
from shardq.cli.main import main
from shardq.storage.opening import open_store
from shardq.storage.requests import Claim, Claimed
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing.seam import claim_round, expire_caches
from tests.sqlite.test_clock_jumps import JumpingClock

LEASE = 30.0  # seconds, of all that is held here
BOUND = 2 * LEASE
HOUR = 3_600.0


class Scene:
    """A topic, a semaphore and queues with limits, each used by a new client every time."""

    def __init__(self, folder: Path) -> None:
        self.clock = JumpingClock()
        self.url = f"sqlite:///{folder}/queue.db?synchronous=normal"
        self.numbers = iter(range(10_000))
        self.left: list[object] = []  # of those that died: nothing of it is given back
        with self.client() as client:
            client.create_topic("t").subscribe("s")
            client.create_queue("few", max_in_flight=1, visibility_timeout=LEASE, max_deliveries=None)
            client.create_queue("slow", rate_limit="1/30s", visibility_timeout=LEASE, max_deliveries=None)
            client.semaphore("one", permits=1, lease=LEASE)

    def client(self) -> shardq.Client:
        return shardq.connect(self.url, clock=self.clock, retry_seconds=0.0)

    def body(self) -> bytes:
        return b"%d" % next(self.numbers)

    # -- each returns whether it went on ------------------------------------------------------------------------

    def topic(self) -> bool:
        with self.client() as client:
            topic, body = client.topic("t"), self.body()
            topic.publish(body)
            topic.relay()
            with topic.subscription("s").queue.consumer() as consumer:
                batch = consumer.receive(1_000)
                batch.ack()
                return body in batch.bodies

    def semaphore(self) -> bool:
        with self.client() as client:
            try:
                with client.semaphore("one").acquire(timeout=0):
                    return True
            except shardq.PermitTimeout:
                return False

    def few(self) -> bool:
        return self._received("few")

    def slow(self) -> bool:
        return self._received("slow")

    def _received(self, name: str) -> bool:
        with self.client() as client:
            queue = client.queue(name)
            queue.producer().send(self.body())
            with queue.consumer() as consumer:
                batch = consumer.receive(1)
                batch.ack()
                return bool(batch)

    def holder_dies(self) -> None:
        """Permits and a message are held, and the topic's log is claimed, by a process that ends."""
        client = self.client()
        for queue in ("few", "slow"):
            client.queue(queue).producer().send(self.body())
            self.left.append(client.queue(queue).consumer(keep_leases=False).receive(1))
        try:
            permits = client.semaphore("one")._permits
            self.left.append(permits.take(1, 1, int(LEASE * 1_000_000)))
        except shardq.ShardqError:
            return

    uses = ("topic", "semaphore", "few", "slow")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def goes_on(scene: Scene, use: str, within: float) -> bool:
    """True when it goes on within so many seconds."""
    until = within
    while not getattr(scene, use)():
        if until <= 0:
            return False
        scene.clock.jump(5)
        until -= 5
    return True


@pytest.mark.parametrize("use", Scene.uses)
@pytest.mark.parametrize("ahead", [600.0, HOUR, 10 * 366 * 24 * HOUR])
def test_what_was_used_while_the_clock_was_ahead_goes_on(scene: Scene, use: str, ahead: float) -> None:
    getattr(scene, use)()
    scene.clock.jump(ahead)
    assert getattr(scene, use)()
    scene.clock.jump(-ahead)
    assert goes_on(scene, use, BOUND)


@pytest.mark.parametrize("use", ["semaphore", "few", "slow"])
def test_a_clock_that_is_put_right_in_two_steps_holds_up_nothing_longer(scene: Scene, use: str) -> None:
    scene.clock.jump(2 * HOUR)
    scene.holder_dies()
    scene.clock.jump(-HOUR)
    getattr(scene, use)()  # finds no permit, and shortens the lease
    scene.clock.jump(-HOUR)
    assert goes_on(scene, use, BOUND)


@pytest.mark.parametrize("use", ["semaphore", "few", "slow"])
def test_permits_that_were_left_by_who_died_while_the_clock_was_ahead_come_back_and_the_log_tells(
    scene: Scene, use: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene.clock.jump(HOUR)
    scene.holder_dies()
    scene.clock.jump(-HOUR)
    with caplog.at_level(logging.WARNING):
        assert goes_on(scene, use, BOUND)
    assert "the clock was ahead" in caplog.text


def test_a_permit_whose_holder_lives_is_not_given_to_another_one_when_the_clock_is_put_right(
    scene: Scene,
) -> None:
    # Given a holder that took its permit while the clock was ahead, and extends its lease
    with scene.client() as client:
        semaphore = client.semaphore("one")
        permits = semaphore._permits
        scene.clock.jump(HOUR)
        held = permits.take(1, 1, int(LEASE * 1_000_000))
        scene.clock.jump(-HOUR)
        # When others ask for it again and again
        for _ in range(20):
            assert not scene.semaphore()
            scene.clock.jump(5)
            permits.hold(held, int(LEASE * 1_000_000))
        # Then they have it when it is given back
        permits.release(held)
        assert scene.semaphore()


def test_a_shard_that_was_left_alone_for_a_moment_while_the_clock_was_ahead_is_read_when_it_is_right(
    url: str,
) -> None:
    clock = JumpingClock()
    store = ContendedStore(open_store(url, clock))
    with shardq.Client(store, retry_seconds=0) as client:
        queue = client.create_queue("q", shards=1, time_shards=1)
        queue.producer().send(b"a")
        with queue.consumer() as consumer:
            clock.jump(HOUR)
            store.contended = True
            assert not claim_round(consumer)
            store.contended = False
            clock.jump(-HOUR)
            assert claim_round(consumer)


class ContendedStore(WrappedStore):
    """A store in which others get ahead of each claim, if it is told so."""

    contended = False

    def claim(self, request: Claim) -> Claimed:
        if self.contended:
            return Claimed((), self.now() + request.lease, contended=True)
        return super().claim(request)


@pytest.mark.parametrize("dead", ["a", "z"])  # before and after the other one, in the order of consumers
def test_a_queue_is_swept_though_a_consumer_died_while_the_clock_was_ahead(url: str, dead: str) -> None:
    clock = JumpingClock()
    with shardq.connect(url, clock=clock) as client:
        queue = client.create_queue("q", history_retention=30)
        gone = queue.consumer(name=dead)
        clock.jump(HOUR)
        gone.receive(1)
        clock.jump(-HOUR)
        queue.producer().send(b"a")
        with queue.consumer(name="m") as consumer:
            consumer.receive(1).ack()
            for _ in range(20):
                clock.jump(6)
                consumer.receive(1)
        assert queue.counts().processed == 0
        assert [each.name for each in queue.consumers() if each.alive] == []


def test_a_full_queue_drops_the_oldest_though_another_client_did_so_while_the_clock_was_ahead(
    url: str,
) -> None:
    clock = JumpingClock()
    with shardq.connect(url, clock=clock) as gone, shardq.connect(url, clock=clock) as client:
        queue = gone.create_queue("q", max_messages=5, overflow="drop_oldest")
        queue.producer().send_many([b"old"] * 5)
        for ahead in (HOUR, 2 * HOUR):
            clock.jump(ahead)
            expire_caches(queue)
            queue.producer().send(b"ahead")
            clock.jump(-ahead)
        seen = client.queue("q")
        for _ in range(20):
            expire_caches(seen)
            seen.producer().send(b"new")
            clock.jump(1)
        assert seen.counts().ready + seen.counts().delayed <= 5


STEPS = st.one_of(
    st.sampled_from([*Scene.uses, "holder_dies"]),
    st.floats(min_value=-0.99, max_value=12.0),  # hours by which the clock is ahead from now on
)


ALL_STEPS = st.lists(STEPS, min_size=1, max_size=8)


@settings(
    max_examples=4, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)  # shrinking is for the long one
@given(steps=ALL_STEPS)
@example(steps=[2.0, "slow", 1.0, "slow"])
def test_what_is_done_while_the_clock_jumps_all_goes_on_when_it_is_right(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str | float]
) -> None:
    everything_goes_on(tmp_path_factory, steps)


@pytest.mark.long
@settings(max_examples=50)
@given(steps=ALL_STEPS)
def test_whatever_is_done_while_the_clock_jumps_all_goes_on_when_it_is_right(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str | float]
) -> None:
    everything_goes_on(tmp_path_factory, steps)


def everything_goes_on(tmp_path_factory: pytest.TempPathFactory, steps: list[str | float]) -> None:
    """Take these steps, put the clock right, and see that each use goes on within the bound."""
    scene, ahead = Scene(tmp_path_factory.mktemp("jumps")), 0.0
    for step in steps:
        if isinstance(step, float):
            scene.clock.jump(step * HOUR - ahead)
            ahead = step * HOUR
        else:
            getattr(scene, step)()
    scene.clock.jump(-ahead)
    for use in Scene.uses:
        assert goes_on(scene, use, BOUND), use


def test_doctor_tells_of_messages_that_were_sent_while_the_clock_was_ahead(tmp_path: Path) -> None:
    with shardq.connect(f"sqlite:///{tmp_path}/q.db") as client:
        client.create_queue("jobs")
        client.create_queue("fine").producer().send(b"a", delay=2 * HOUR)
    clock = JumpingClock(SystemClock().now() + microseconds(HOUR))
    with shardq.connect(f"sqlite:///{tmp_path}/q.db", clock=clock) as ahead:
        ahead.queue("jobs").producer().send(b"a")
    shown = CliRunner().invoke(main, ["--url", f"sqlite:///{tmp_path}/q.db", "doctor", "--json"])
    checks = {
        each["subject"]: each for each in json.loads(shown.stdout)["checks"] if each["name"] == "sent ahead"
    }
    assert (checks["jobs"]["warning"], checks["fine"]["warning"]) == (True, False)
    assert checks["jobs"]["value"].startswith("1 message, by up to ")
