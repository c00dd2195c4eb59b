"""A process of Spark has one connection to a store, which ends when no task has used it for a while."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import shardq
from shardq.spark import connection
from shardq.spark.connection import context_of, task_context
from shardq.spark.options import QueueOptions
from tests.processes import eventually
from tests.spark.every_store import on_every_store


@pytest.fixture
def options(url: str, queue: shardq.Queue, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueueOptions]:
    """For a process that has opened nothing yet."""
    connection.shared_connection.cache_clear()
    yield QueueOptions(url=url, queue=queue.name)
    connection.shared_connection.cache_clear()


def opened(options: QueueOptions) -> shardq.Client | None:
    return connection.shared_connection(options.url, options.retry_seconds, os.getpid()).client


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
        assert eventually(lambda: opened(options) is None)
        with pytest.raises(shardq.Closed):
            client.queue(queue.name)


def test_tasks_that_follow_each_other_share_it(options, monkeypatch, begun_threads) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 60.0)
    with task_context(options):
        first = opened(options)
    with task_context(options):
        assert opened(options) is first
    assert eventually(lambda: sum(isinstance(thread, threading.Timer) for thread in begun_threads()) == 1)
    opened(options).close()


def test_a_task_that_comes_while_it_is_to_be_closed_keeps_it(options, monkeypatch) -> None:
    timers: list[threading.Timer] = []
    came = threading.Event()

    class Late(threading.Timer):
        """Its time is over before it can be cancelled, and then it waits until a task has come."""

        def run(self) -> None:
            assert came.wait(60)
            self.function()

    def late(*given: Any) -> threading.Timer:
        timers.append(Late(*given))
        return timers[-1]

    monkeypatch.setattr(connection, "Timer", late)
    with task_context(options):
        client = opened(options)
    with task_context(options):
        came.set()
        timers[0].join(60)
        assert opened(options) is client
        assert client.ping() is None
    timers[1].join(60)
    assert opened(options) is None


def test_where_streams_are_planned_it_stays(options, queue, monkeypatch) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.05)
    context = context_of(options)
    with task_context(options):
        pass
    time.sleep(0.3)
    assert context.retry(context.store.shards, queue.name) == ()
    opened(options).close()
