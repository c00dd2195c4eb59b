"""Threads that are interrupted again and again, at any moment, block no other thread of their client."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardq
from shardq.tasks import Tasks, TaskWorker
from shardq.worker import Worker
from tests.any_store import any_url
from tests.forking import locks_of

__all__ = ["any_url"]

PROGRAM = Path(__file__).with_name("interrupting.py")


@pytest.fixture
def queue(any_url: str) -> Iterator[str]:
    with shardq.connect(any_url) as client:
        name = f"i{os.urandom(4).hex()}"
        client.create_queue(name, shards=1, time_shards=1, max_deliveries=None, visibility_timeout=5)
        yield name
        client.delete_queue(name)


def run(*arguments: str | Path) -> None:
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,  # it finds by itself what hangs
        env=unmeasured,  # else each step takes a multiple of its time, most of it with what measures
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("group", ["", "g"], ids=["no group", "a group"])
@pytest.mark.parametrize("prefetch", ["0", "5"], ids=["read", "claimed ahead"])
def test_threads_go_on_after_exceptions_were_raised_in_them(
    any_url: str, queue: str, prefetch: str, group: str
) -> None:
    run(PROGRAM, any_url, queue, group, prefetch, "thread")


def test_threads_go_on_after_handlers_of_signals_have_raised_in_the_main_thread(
    any_url: str, queue: str
) -> None:
    run(PROGRAM, any_url, queue, "", "0", "signal")


def test_no_lock_is_held_while_a_thread_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a client, and what it starts threads for: events, the relay of a topic, a commit, a loop
    client = shardq.connect(f"sqlite:///{tmp_path}/queue.db")
    tasks, held, names = Tasks(), list[str](), list[str]()
    tasks.bind(client)
    start = threading.Thread.start

    def start_and_look(thread: threading.Thread) -> None:
        def look(name: str) -> None:
            for lock in locks_of(client, tasks, worker):
                if lock.acquire(timeout=30):
                    lock.release()
                else:
                    held.append(name)

        if thread.name.startswith("shardq-") and thread.name not in names:
            names.append(thread.name)
            looking = threading.Thread(target=look, args=[thread.name])
            start(looking)
            looking.join()
        start(thread)

    @tasks.task
    async def nothing() -> None:
        await asyncio.sleep(0)

    worker = TaskWorker(tasks, client, threads=1, idle_exit=0)
    monkeypatch.setattr(threading.Thread, "start", start_and_look)
    # When it does that
    orders = client.create_queue("orders", events=60)
    orders.producer().send(b"x")
    with orders.consumer(prefetch=5) as consumer:
        consumer.receive(1, wait=5).ack()
    orders.producer().send_many([b"x"] * 600)
    Worker(orders, lambda batch: None, by_batch=True, batch=100, idle_exit=0).run()
    topic = client.create_topic("news")
    topic.subscribe("readers")
    topic.publish(b"x")
    with sqlite3.connect(tmp_path / "queue.db", isolation_level=None) as db:
        db.execute("BEGIN IMMEDIATE")
        with client.transaction(connection=db) as within:
            within.queue("orders").producer().send(b"y")
        db.execute("COMMIT")
    nothing.send()
    worker.run()
    client.close()
    # Then no thread is started under a lock
    assert held == []
    several = {"events", "relay", "commit", "loop", "prefetcher"}
    assert {f"shardq-{each}" for each in several} <= set(names)


def test_a_topic_is_relayed_though_its_thread_could_not_be_started_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []
    start = threading.Thread.start

    def fail_once(thread: threading.Thread) -> None:
        if thread.name == "shardq-relay" and not failed:
            failed.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_once)
    with shardq.connect(url) as client:
        topic = client.create_topic("news")
        readers = topic.subscribe("readers")
        topic.publish(b"one")
        topic.publish(b"two")
        assert failed
        bodies: list[bytes] = []
        with readers.queue.consumer() as consumer:
            while len(bodies) < 2 and (batch := consumer.receive(2, wait=30)):
                bodies += batch.bodies
                batch.ack()
        assert bodies == [b"one", b"two"]
