"""What many queues cost: to create, list, count, examine, wait on and receive from, in requests and seconds for each.

    .venv/bin/python tools/scaling/many_queues.py --url sqlite:///many.db
    python tools/servers/mongodb.py run -- .venv/bin/python tools/scaling/many_queues.py --url {url}
    python tools/servers/cassandra.py run -- .venv/bin/python tools/scaling/many_queues.py --url {url}

It measures the same with a tenth of the queues first. What is asked of the store for a queue, and the time that takes,
should be the same with ten times as many. The queues are left where they are: use a database of its own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import ParamSpec, TypeVar
from urllib.parse import urlsplit

import psutil

import shardq
from shardq.base.clock import SystemClock
from shardq.cli.command import Session
from shardq.cli.commands.doctor import examine
from shardq.cli.commands.list_queues import lines
from shardq.storage.opening import open_store
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

P = ParamSpec("P")
T = TypeVar("T")

IDLE_SECONDS = 12
CONSUMED = 20


class Counting(WrappedStore):
    """Counts the calls of a store."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls, self._lock = 0, Lock()

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            self.calls += 1
        return super().call(method, do, *args, **kwargs)


class Measured:
    """One store, and what was done to it."""

    def __init__(self, url: str, threads: int) -> None:
        self.store = Counting(open_store(url, SystemClock()))
        self.session = Session(url)
        self.client = shardq.Client(self.store)
        vars(self.session).update(store=self.store, client=self.client)
        self.waiting = 0  # messages
        self.threads = ThreadPoolExecutor(threads)
        port = urlsplit(url).port
        self.servers = [
            psutil.Process(each.pid)
            for each in psutil.net_connections("tcp")
            if port and each.status == psutil.CONN_LISTEN and each.laddr.port == port and each.pid
        ]

    @contextmanager
    def measured(self, what: str, queues: int) -> Iterator[None]:
        """Print what it takes for each queue."""
        calls, began = self.store.calls, time.monotonic()
        yield
        seconds, calls = time.monotonic() - began, self.store.calls - calls
        each = f"{calls / queues:9.3f} requests {1e3 * seconds / queues:9.2f} ms"
        print(f"  {what:26} {each} for each; {seconds:.1f} s in all", flush=True)

    def each(self, do: Callable[[str], object], names: list[str]) -> None:
        list(self.threads.map(do, names))


def measure(at: Measured, first: int, number: int, sent: int) -> None:
    """Let there be so many queues, some of which have messages, and use them."""
    client, names = at.client, [f"tenant-{n:05}" for n in range(number)]
    print(f"{number} queues, {sent} of them with messages", flush=True)
    with at.measured("create", number - first):
        at.each(lambda name: client.create_queue(name, max_deliveries=None), names[first:])
    with at.measured("send 3 messages", sent):
        at.each(lambda name: client.queue(name).producer().send_many([b"x"] * 3), names[:sent])
    with at.measured("list", number):
        assert len(client.queues()) == number
    with at.measured("list --counts", number):
        counted = lines(at.session, "", counts=True)
    at.waiting += 3 * sent
    assert sum(line.counts.ready for line in counted) == at.waiting, "a message is missing"
    with at.measured("doctor", number):
        examine(client, None)
    with at.measured("doctor of one queue", 1):
        examine(client, names[0])
    wait(at, names[-CONSUMED:])
    received = min(CONSUMED, sent)
    receive(at, names[:received], 3 * received)
    at.waiting -= 3 * received
    with at.measured("sweep one", 1):
        client.queue(names[0]).sweep()
    for process in (*at.servers, psutil.Process()):
        size, files = process.memory_info().rss >> 20, process.num_fds()
        print(f"  {process.name()}: {size:,} MB of memory, {files:,} open files", flush=True)


def wait(at: Measured, names: list[str]) -> None:
    """Wait with one consumer of several empty queues."""
    with at.client.consumer(names) as consumer, at.measured(f"wait for {IDLE_SECONDS} s", len(names)):
        assert not consumer.receive(1, wait=IDLE_SECONDS)


def receive(at: Measured, names: list[str], left: int) -> None:
    """Receive all messages of several queues with one consumer."""
    with at.client.consumer(names) as consumer, at.measured("receive and ack", len(names)):
        while left and (batch := consumer.receive(10, wait=10)):
            left -= len(batch)
            batch.ack()
    assert not left, f"{left} messages were not received"


def main() -> None:
    """Measure with a tenth of the queues, then with all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", required=True)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--sent", type=int, default=300, help="how many of them are sent to")
    parser.add_argument("--threads", type=int, default=4)
    asked = parser.parse_args()
    at = Measured(asked.url, asked.threads)
    with at.client:
        tenth = asked.queues // 10
        measure(at, 0, tenth, asked.sent // 10)
        measure(at, tenth, asked.queues, asked.sent)


if __name__ == "__main__":
    main()
