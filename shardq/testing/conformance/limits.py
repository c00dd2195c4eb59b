"""Contract: permits never exceed their number, and come back from the dead; what they hold back stays untouched."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import os
import threading

import pytest

from shardq.client import Client
from shardq.client.queue import Queue
from shardq.client.semaphore import Permit, Semaphore
from shardq.errors import PermitTimeout
from shardq.testing.conformance.applications import ApplicationContract, Applications
from shardq.testing.conformance.contract import run_together

__all__ = ["LimitContract"]

LONG = 600.0  # seconds of a lease that does not run out
SHORT = 20.0  # of one that does


class LimitContract(ApplicationContract):
    """Semaphores, ``max_in_flight``, ``rate_limit`` and ``group_concurrency``, over all clients of a storage."""

    # -- semaphores

    def test_the_clients_of_a_semaphore_never_hold_more_than_its_permits(self, apps: Applications) -> None:
        one, other = self._semaphores(apps, permits=3)
        held = self._taken(one, 2)
        assert len(self._taken(other)) == 1
        apps.advance(1)
        assert (self._taken(one), one.state().held) == ([], 3)
        held[0].release()
        assert len(self._taken(other)) == 1

    def test_threads_are_never_more_inside_than_there_are_permits(self, apps: Applications) -> None:
        lock, inside, most = threading.Lock(), list[Semaphore](), list[int]()

        def work(semaphore: Semaphore) -> None:
            for _ in range(3):
                with semaphore.acquire(timeout=60):
                    with lock:
                        inside.append(semaphore)
                        most.append(len(inside))
                    os.sched_yield()
                    with lock:
                        inside.remove(semaphore)

        semaphores = self._semaphores(apps, permits=2)
        run_together([lambda each=each: work(each) for each in semaphores * 2])  # type: ignore[misc]
        assert len(most) == 12
        assert max(most) <= 2
        assert semaphores[0].state().held == 0

    def test_the_permit_of_a_dead_holder_comes_back(self, apps: Applications) -> None:
        one, other = self._semaphores(apps, permits=1, lease=SHORT)
        permit = one.acquire(timeout=0)
        assert self._taken(other) == []
        apps.kill(apps.client)
        assert apps.until(lambda: len(self._taken(other)) == 1)
        assert permit.lost

    # -- messages in flight

    def test_consumers_never_hold_more_than_may_be_in_flight(self, apps: Applications) -> None:
        one, other = self._queues(apps, visibility_timeout=LONG, max_in_flight=4)
        mine, others = one.consumer(), other.consumer()
        held = mine.receive(3)
        assert (len(held), len(others.receive(10)), len(mine.receive(10))) == (3, 1, 0)
        held.part(held[:2]).ack()
        apps.advance(1)
        assert (len(others.receive(10)), len(mine.receive(10))) == (2, 0)
        held.part(held[2:]).release()
        assert len(mine.receive(10)) == 1
        assert one.counts().in_flight == 4

    def test_what_a_limit_holds_back_counts_no_delivery(self, apps: Applications) -> None:
        one, other = self._queues(apps, visibility_timeout=LONG, max_in_flight=2, rate_limit="3/s")
        held = one.consumer().receive(10)
        for queue in (one, other, other):
            assert not queue.consumer().receive(10)
        assert sorted(each.deliveries for each in one.peek(20)) == [0] * 8 + [1] * 2
        held.ack()
        again = other.consumer()
        seen: list[int] = []

        def all_came() -> bool:
            batch = again.receive(10)
            seen.extend(each.deliveries for each in batch)
            batch.ack()
            return len(seen) == 8

        assert apps.until(all_came)
        assert seen == [1] * 8

    def test_the_places_of_a_dead_consumer_come_back(self, apps: Applications) -> None:
        one, other = self._queues(apps, visibility_timeout=SHORT, max_in_flight=3)
        assert len(one.consumer().receive(10)) == 3
        apps.kill(apps.client)
        other.alter(visibility_timeout=apps.seconds(LONG))
        consumer, came = other.consumer(), list[int]()

        def all_came() -> bool:
            came.extend(each.deliveries for each in consumer.receive(10))
            assert len(came) <= 3
            return len(came) == 3

        assert apps.until(all_came)
        assert not consumer.receive(10)

    # -- rates

    def test_a_rate_is_never_exceeded(self, apps: Applications) -> None:
        queues = self._queues(apps, visibility_timeout=LONG, rate_limit="4/s")
        consumers, moments = [queue.consumer() for queue in queues], list[float]()
        for _ in range(200):
            for consumer in consumers:  # a lease begins when its message is claimed
                moments += [each.lease_until.timestamp() for each in consumer.receive(3)]
            if len(moments) == 10:
                break
            apps.harness.advance(0.1)
        assert len(moments) == 10
        # Clients know a server's clock to some milliseconds
        period = 0.9 if apps.harness.real_time else 0.999
        assert max(sum(first <= each < first + period for each in moments) for first in moments) <= 4

    # -- lanes of groups

    def test_claims_of_a_group_are_never_more_than_its_lanes(self, apps: Applications) -> None:
        self._need_groups(apps)
        queue, other = self._queues(apps, visibility_timeout=LONG, group_concurrency=3, group="a")
        queue.producer().send_many([b"b"] * 2, group="b")
        batches = [each.consumer().receive(1) for each in (queue, other) * 4]
        assert sorted(each.group or "" for batch in batches for each in batch) == ["a"] * 3 + ["b"] * 2
        deliveries = [each.deliveries for each in queue.peek(20)]
        assert sorted(deliveries) == [0] * 7 + [1] * 5
        next(batch for batch in batches if batch and batch[0].group == "a").ack()
        assert sum(len(each.consumer().receive(1)) for each in (queue, other) * 2) == 1

    def test_the_lane_of_a_dead_consumer_comes_back(self, apps: Applications) -> None:
        self._need_groups(apps)
        queue, other = self._queues(apps, visibility_timeout=SHORT, group_concurrency=2, group="a")
        (first,) = queue.consumer().receive(1)
        apps.kill(apps.client)
        other.alter(visibility_timeout=apps.seconds(LONG))
        lanes: list[str | None] = []

        def both_came() -> bool:
            lanes.extend(each.lane for each in other.consumer().receive(1))
            return len(lanes) == 2

        assert apps.until(both_came)
        assert first.lane in lanes
        assert len(set(lanes)) == 2
        assert not other.consumer().receive(1)

    def test_what_moves_has_no_more_lanes_than_its_new_queue(self, apps: Applications) -> None:
        self._need_groups(apps)
        queue, _ = self._queues(apps, visibility_timeout=LONG, group_concurrency=3, group="a")
        target = apps.other.create_queue(f"{apps.name}.next", max_deliveries=None)
        batch = queue.consumer().receive(10)
        assert len({each.lane for each in batch}) == 3
        batch.part(batch[:5]).forward(target.name, atomic=False)
        batch.part(batch[5:]).dead_letter("for later")
        queue.alter(group_concurrency=1)
        assert queue.redrive() == 5
        for each in (target, queue):
            assert apps.until(lambda each=each: each.counts().ready == 5)  # type: ignore[misc]
            (first,) = each.consumer().receive(1)
            assert (first.group, first.headers) == ("a", {})
            assert not each.consumer().receive(10)

    def _semaphores(self, apps: Applications, *, permits: int, lease: float = LONG) -> list[Semaphore]:
        clients: tuple[Client, ...] = (apps.client, apps.other)
        return [each.semaphore(apps.name, permits=permits, lease=apps.seconds(lease)) for each in clients]

    def _taken(self, semaphore: Semaphore, most: int = 10) -> list[Permit]:
        """Take permits until no more are free."""
        permits: list[Permit] = []
        while len(permits) < most:
            try:
                permits.append(semaphore.acquire(timeout=0))
            except PermitTimeout:
                break
        return permits

    def _queues(
        self,
        apps: Applications,
        *,
        visibility_timeout: float,
        group: str | None = None,
        max_in_flight: int | None = None,
        rate_limit: str | None = None,
        group_concurrency: int = 1,
    ) -> tuple[Queue, Queue]:
        """Return a queue of ten messages, as two clients know it."""
        queue = apps.client.create_queue(
            apps.name,
            shards=1,
            time_shards=1,
            max_deliveries=None,
            visibility_timeout=apps.seconds(visibility_timeout),
            max_in_flight=max_in_flight,
            rate_limit=rate_limit,
            group_concurrency=group_concurrency,
        )
        for _ in range(2):
            queue.producer().send_many([b"%d" % number for number in range(5)], group=group)
        return queue, apps.other.queue(apps.name)

    def _need_groups(self, apps: Applications) -> None:
        if not apps.capabilities.groups:
            pytest.skip("the store keeps no order of groups")
