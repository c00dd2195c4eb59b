"""Schedules on every store: two clients keep one going in real time, and every occurrence comes once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

import shardq

Connect = Callable[[], shardq.Client]
PATIENCE = 60.0  # seconds


@pytest.mark.slow
def test_every_occurrence_comes_once_to_consumers_of_several_clients(connect_any: Connect, name: str) -> None:
    client = connect_any()
    client.create_queue(name, shards=1, time_shards=1)
    schedules = client.schedules
    made = schedules.create(name, queue=name, every=1, count=3, body=b"x")
    with pytest.raises(shardq.ScheduleExists):
        schedules.create(name, queue=name, every=1)
    assert schedules.list(name) == (made,)
    found: list[object] = []
    enough = threading.Event()
    until = time.monotonic() + PATIENCE

    def receive(consumer: shardq.Consumer) -> None:
        while not enough.is_set() and time.monotonic() < until:
            batch = consumer.receive(10, wait=0.5)
            found.extend(message.headers["shardq-scheduled-for"] for message in batch)
            batch.ack() if batch else None

    threads = [
        threading.Thread(target=receive, args=(connect_any().queue(name).consumer(),)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    while len(found) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    enough.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(found) == len(set(found)) == 3
    over = schedules.get(name)
    assert (over.sent, over.next) == (3, None)


def test_changes_of_several_clients_are_all_kept(connect_any: Connect, name: str) -> None:
    one, two = connect_any(), connect_any()
    one.create_queue(name, shards=1, time_shards=1)
    one.schedules.create(name, queue=name, cron="@daily", headers={"b": b"\0"})
    two.schedules.pause(name)
    assert one.schedules.alter(name, body=b"new").paused
    assert (two.schedules.get(name).body, two.schedules.get(name).headers) == (b"new", {"b": b"\0"})
    one.schedules.delete(name)
    with pytest.raises(shardq.ScheduleNotFound):
        two.schedules.resume(name)
    again = two.schedules.create(name, queue=name, every=5)
    assert (again.paused, one.schedules.get(name)) == (False, again)
    one.delete_queue(name)
    assert two.schedules.list() == ()
