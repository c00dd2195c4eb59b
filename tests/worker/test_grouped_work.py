"""A worker keeps the messages of a group in order: what follows one that failed is not worked before it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from shardq import Batch, Message, Queue
from shardq.client import Client
from shardq.worker import Worker


def fill(queue: Queue, groups: str, each: int) -> None:
    with queue.producer() as producer:
        for number in range(each):
            for group in groups:
                producer.send(b"%d" % number, group=group)


def run(queue: Queue, handler: Callable[[Any], object], **options: Any) -> Any:
    return Worker(queue, handler, **({"idle_exit": 0.5, "retry_delay": 0} | options)).run()


def worked_in_order(worked: list[tuple[str | None, bytes]], groups: str, each: int) -> bool:
    return all(
        [body for name, body in worked if name == group] == [b"%d" % number for number in range(each)]
        for group in groups
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch": 1},
        {"batch": 3},
        {"prefetch": 5, "batch": 2},
        {"prefetch": 50},
        {"threads": 4},
        {"threads": 2, "batch": 3},
    ],
)
def test_what_follows_a_failure_is_worked_after_its_retry(queue: Queue, options: dict[str, int]) -> None:
    fill(queue, "abc", 8)
    worked: list[tuple[str | None, bytes]] = []

    def handler(message: Message) -> None:
        if message.group == "b" and int(message.body) % 3 == 0 and message.deliveries < 3:
            raise ValueError("not now")
        worked.append((message.group, message.body))

    report = run(queue, handler, **options)
    assert worked_in_order(worked, "abc", 8)
    assert (report.worked, report.failed, report.lease_lost, report.dead_lettered) == (24, 6, 0, 0)
    assert queue.counts().ready == queue.counts().in_flight == 0


@pytest.mark.parametrize("options", [{}, {"prefetch": 50}, {"threads": 4}])
def test_what_follows_a_message_that_its_handler_released_is_not_worked_before_it(
    queue: Queue, options: dict[str, int]
) -> None:
    fill(queue, "ab", 5)
    worked: list[tuple[str | None, bytes]] = []

    def handler(message: Message) -> None:
        if message.body == b"2" and message.deliveries == 1:
            message.release()
        else:
            worked.append((message.group, message.body))

    report = run(queue, handler, **options)
    assert worked_in_order(worked, "ab", 5)
    assert report.lease_lost == 0


def test_a_group_goes_on_when_a_message_is_dead_lettered(queue: Queue) -> None:
    fill(queue, "ab", 4)
    worked: list[tuple[str | None, bytes]] = []

    def handler(message: Message) -> None:
        if message.group == "a" and message.body == b"1":
            raise ValueError("never")
        worked.append((message.group, message.body))

    report = run(queue, handler)
    assert [body for group, body in worked if group == "a"] == [b"0", b"2", b"3"]
    assert [body for group, body in worked if group == "b"] == [b"0", b"1", b"2", b"3"]
    assert (report.dead_lettered, report.lease_lost) == (1, 0)


def test_a_handler_of_batches_that_raises_fails_the_first_of_each_group(queue: Queue) -> None:
    fill(queue, "ab", 4)
    deliveries: dict[tuple[str | None, bytes], int] = {}
    calls = 0

    def handler(batch: Batch) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("once")
        deliveries.update({(message.group, message.body): message.deliveries for message in batch})

    report = run(queue, handler, by_batch=True, batch=100)
    assert set(deliveries) == {(group, b"%d" % number) for group in "ab" for number in range(4)}
    assert {key for key, count in deliveries.items() if count > 1} == {("a", b"0"), ("b", b"0")}
    assert (report.failed, report.lease_lost) == (2, 0)


def test_a_handler_of_batches_may_ack_the_front_of_a_group_and_raise(queue: Queue) -> None:
    fill(queue, "a", 4)
    seen: list[list[tuple[bytes, int]]] = []

    def handler(batch: Batch) -> None:
        seen.append([(message.body, message.deliveries) for message in batch])
        if len(seen) == 1:
            batch[0].ack()
            raise ValueError("once")

    run(queue, handler, by_batch=True, batch=100)
    assert seen == [[(b"%d" % number, 1) for number in range(4)], [(b"1", 2), (b"2", 1), (b"3", 1)]]


def test_a_handler_of_batches_may_release_a_part(queue: Queue) -> None:
    fill(queue, "a", 4)
    seen: list[list[tuple[bytes, int]]] = []

    def handler(batch: Batch) -> None:
        seen.append([(message.body, message.deliveries) for message in batch])
        if len(seen) == 1:
            batch[2].release()

    report = run(queue, handler, by_batch=True, batch=100)
    assert seen == [[(b"%d" % number, 1) for number in range(4)], [(b"2", 2), (b"3", 1)]]
    assert report.lease_lost == 0


def test_a_worker_that_is_stopped_gives_groups_back_in_order(queue: Queue) -> None:
    fill(queue, "ab", 4)
    stopped: list[Worker] = []

    def handler(message: Message) -> None:
        stopped[0].stop()

    worker = Worker(queue, handler)
    stopped.append(worker)
    report = worker.run()
    assert report.worked == 1
    worked: list[tuple[str | None, bytes]] = []
    run(queue, lambda message: worked.append((message.group, message.body)))
    assert len(worked) == 7
    for group in "ab":
        found = [int(body) for name, body in worked if name == group]
        assert found == sorted(found)


def test_a_worker_that_stood_still_begins_nothing_that_follows_in_a_group(client: Client) -> None:
    queue = client.create_queue("short", shards=1, time_shards=1, visibility_timeout=0.2)
    fill(queue, "a", 3)
    worked: list[bytes] = []

    def handler(message: Message) -> None:
        worked.append(message.body)
        if (
            len(worked) == 1
        ):  # it stands still for longer than the lease, and somebody else goes on with the group
            time.sleep(0.3)
            with queue.consumer(visibility_timeout=60) as other:
                assert other.receive(1, wait=5).bodies == [b"0"]

    report = run(queue, handler, keep_leases=False)
    assert worked == [b"0"]
    assert (report.worked, report.lease_lost) == (1, 3)
