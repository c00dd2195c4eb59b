"""A process of Spark has one connection to a store, which ends when no task has used it for a while."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import shardq
from shardq.spark import connection
from shardq.spark.connection import context_of, task_context
from shardq.spark.options import QueueOptions
from tests.spark.every_store import on_every_store


@pytest.fixture
def options(url: str, queue: shardq.Queue, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueueOptions]:
    """For a process that has opened nothing yet."""
    connection._shared.cache_clear()
    yield QueueOptions(url=url, queue=queue.name)
    connection._shared.cache_clear()


def opened(options: QueueOptions) -> shardq.Client | None:
    return connection._shared(options.url, options.retry_seconds, os.getpid())._client


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "it never came to it"
        time.sleep(0.01)


@on_every_store
def test_it_is_closed_after_the_last_task_and_opened_for_the_next(options, queue, monkeypatch) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.1)
    queue.producer().send(b"x")
    for _ in range(2):
        with task_context(options) as context:
            client = opened(options)
            (shard,) = context.retry(context.store.shards, context.name)
            assert context.retry(context.store.count, shard).ready == 1
            with task_context(options):
                assert opened(options) is client
            time.sleep(0.3)
            assert opened(options) is client
        wait_for(lambda: opened(options) is None)
        with pytest.raises(shardq.Closed):
            client.queue(queue.name)


def test_tasks_that_follow_each_other_share_it(options, monkeypatch) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 60.0)
    with task_context(options):
        first = opened(options)
    with task_context(options):
        assert opened(options) is first
    assert sum(isinstance(thread, threading.Timer) for thread in threading.enumerate()) <= 2
    opened(options).close()


def test_a_task_that_comes_while_it_is_to_be_closed_keeps_it(options, monkeypatch) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.1)
    shared = connection._shared(options.url, options.retry_seconds, os.getpid())
    with task_context(options):
        pass
    with shared._lock:  # its time is over, but it waits
        time.sleep(0.3)
        late = shared._closing
        client = shared._opened()
        shared._users += 1
    late.join()
    assert opened(options) is client
    shared.leave()
    wait_for(lambda: opened(options) is None)


def test_where_streams_are_planned_it_stays(options, queue, monkeypatch) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.05)
    context = context_of(options)
    with task_context(options):
        pass
    time.sleep(0.3)
    assert context.retry(context.store.shards, queue.name) == ()
    opened(options).close()
