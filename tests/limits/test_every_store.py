"""Limits hold on every store, between clients and processes, in real time."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import shardq
from tests.processes import running

Connect = Callable[[], shardq.Client]
PATIENCE = 60.0  # seconds

HOLDER = """
import sys
import shardq

semaphore = shardq.connect(sys.argv[1]).semaphore(sys.argv[2])
permit = semaphore.acquire(timeout=30)
print("held", flush=True)
sys.stdin.readline()
try:
    permit.release()
    print("released", flush=True)
except shardq.PermitLost:
    print("lost", flush=True)
"""


class Inside:
    """Counts how many are inside at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = self.most = 0

    def enter(self, count: int = 1) -> None:
        with self._lock:
            self.now += count
            self.most = max(self.most, self.now)

    def leave(self, count: int = 1) -> None:
        with self._lock:
            self.now -= count


def run_together(*work: Callable[[], object]) -> None:
    """Run each in a thread; raises what one of them raised."""
    errors: list[BaseException] = []

    def run(do: Callable[[], object]) -> None:
        try:
            do()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(do,)) for do in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    if errors:
        raise errors[0]


@contextmanager
def holder(url: str, semaphore: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a permit until it is told to release it."""
    command = [sys.executable, "-c", HOLDER, url, semaphore]
    with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_the_permit_of_a_process_that_is_killed_comes_back(
    any_url: str, connect_any: Connect, name: str
) -> None:
    semaphore = connect_any().semaphore(name, permits=1, lease=2)
    with holder(any_url, name) as process:
        with pytest.raises(shardq.PermitTimeout):
            semaphore.acquire(timeout=0.1)
        process.kill()
        with semaphore.acquire(timeout=PATIENCE) as permit:
            assert not permit.lost


def test_a_process_that_stood_still_is_told_that_it_lost_its_permit(
    any_url: str, connect_any: Connect, name: str
) -> None:
    semaphore = connect_any().semaphore(name, permits=1, lease=2)
    with holder(any_url, name) as process:
        process.send_signal(signal.SIGSTOP)
        with semaphore.acquire(timeout=PATIENCE):
            process.send_signal(signal.SIGCONT)
            told, _ = process.communicate("\n", timeout=PATIENCE)
            assert told == "lost\n"


def test_a_queue_never_has_too_many_in_flight(connect_any: Connect, name: str) -> None:
    client = connect_any()
    queue = client.create_queue(name, shards=2, time_shards=2, max_in_flight=6, max_deliveries=None)
    queue.producer().send_many(b"%d" % number for number in range(60))
    inside, seen, lock = Inside(), list[bytes](), threading.Lock()

    def work(queue: shardq.Queue, limit: int) -> None:
        with queue.consumer(keep_leases=True) as consumer:
            while len(seen) < 60:
                batch = consumer.receive(limit, wait=0.5)
                inside.enter(len(batch))
                with lock:
                    seen.extend(batch.bodies)
                time.sleep(0.002)
                inside.leave(len(batch))
                batch.ack()

    other = connect_any().queue(name)
    run_together(lambda: work(queue, 4), lambda: work(other, 4), lambda: work(other, 1))
    assert len(seen) == len(set(seen)) == 60
    assert inside.most <= 6
    assert client.queue(f"_shardq/permits/{name}.in-flight").counts().in_flight == 0


def test_a_queue_is_never_received_from_too_fast(connect_any: Connect, name: str) -> None:
    client = connect_any()
    queue = client.create_queue(name, shards=2, time_shards=2, rate_limit="8/2s", max_deliveries=None)
    queue.producer().send_many(b"%d" % number for number in range(30))
    moments, lock = list[float](), threading.Lock()

    def work(client: shardq.Client) -> None:
        with client.queue(name).consumer() as consumer:
            while len(moments) < 30:
                batch = consumer.receive(3, wait=0.5)
                with lock:
                    moments.extend(message.lease_until.timestamp() for message in batch)
                batch.ack()

    run_together(lambda: work(client), lambda: work(connect_any()))
    # The lease of each began when it was claimed, by the store's clock, which two clients know to some milliseconds
    assert all(sum(moment <= other < moment + 1.9 for other in moments) <= 8 for moment in moments)


def test_permits_are_claimed_in_bulk_and_cut_at_will(connect_any: Connect, name: str) -> None:
    queue = connect_any().create_queue(name, shards=1, time_shards=1, max_in_flight=300, max_deliveries=None)
    queue.producer().send_many([b"x"] * 450)
    consumer = queue.consumer()
    batches = [consumer.receive(limit) for limit in (200, 7, 90, 50)]
    assert [len(batch) for batch in batches] == [200, 7, 90, 3]
    batches[0].part(batches[0][::2]).ack()
    assert len(consumer.receive(300)) == 100
    queue.alter(max_in_flight=310)
    assert len(consumer.receive(100, wait=PATIENCE)) == 10


def test_permits_that_are_purged_are_not_given_out_while_they_are_held(
    connect_any: Connect, name: str
) -> None:
    semaphore = connect_any().semaphore(name, permits=2, lease=2)
    permit = semaphore.acquire(timeout=PATIENCE)
    other = connect_any()
    other.queue(f"_shardq/permits/{name}").purge()
    with pytest.raises(shardq.PermitTimeout):
        other.semaphore(name).acquire(timeout=0.2)
    waiting = threading.Event()
    assert any(permit.lost or waiting.wait(0.05) for _ in range(int(PATIENCE * 20)))
