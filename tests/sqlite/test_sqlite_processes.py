"""Several processes share one file, however they were started and however they end."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardq.base.shard import Shard
from shardq.storage.listening import Waiter
from shardq.storage.requests import Append, Bundle, Claim, QueueRecord
from shardq.storage.sqlite.store import SqliteStore
from tests.forking import ended_by, start

SPAWN = multiprocessing.get_context("spawn")
SHARD = Shard("orders", 0, 0)

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system lists no open files")

pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")


def new_bundle() -> Bundle:
    now = time.time_ns() // 1000
    return Bundle(os.urandom(16), 0, now, now, 1, b"body")


def in_child(work: Callable[[], None]) -> int:
    """The exit code of a forked child that does the work."""
    return ended_by(start(work))


def open_files() -> list[str]:
    return [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]


def create(path: str, barrier: Any) -> None:
    store = SqliteStore(path)
    barrier.wait(30)
    store.create_queue(QueueRecord("orders", b"", 1))
    store.append(Append(SHARD, (new_bundle(),)))
    store.close()


def send_many(path: str, count: int) -> None:
    store = SqliteStore(path)
    for _ in range(count):
        store.append(Append(SHARD, (new_bundle(),)))
    store.close()


def send_for_ever(path: str) -> None:
    store = SqliteStore(path)
    while True:
        store.append(Append(SHARD, (new_bundle(),)))


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(str(path))
    store.create_queue(QueueRecord("orders", b"", 1))
    yield store
    store.close()


def test_many_processes_may_make_the_file_at_once(path: Path) -> None:
    barrier = SPAWN.Barrier(4)
    processes = [SPAWN.Process(target=create, args=(str(path), barrier)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    store = SqliteStore(str(path))
    assert store.count(SHARD).ready == 4
    store.close()


def test_processes_that_write_at_once_lose_nothing(path: Path, store: SqliteStore) -> None:
    processes = [SPAWN.Process(target=send_many, args=(str(path), 100)) for _ in range(3)]
    for process in processes:
        process.start()
    for _ in range(100):
        store.append(Append(SHARD, (new_bundle(),)))
    for process in processes:
        process.join(60)
    assert store.count(SHARD).ready == 400


def test_a_killed_writer_leaves_the_file_usable(path: Path, store: SqliteStore) -> None:
    process = SPAWN.Process(target=send_for_ever, args=(str(path),))
    process.start()
    assert Waiter(store).wait(["orders"], 30)
    process.kill()
    process.join()
    before = store.count(SHARD).ready
    store.append(Append(SHARD, (new_bundle(),)))
    assert store.count(SHARD).ready == before + 1
    assert all(finding.ok for finding in store.diagnose() if finding.name == "integrity")


def test_a_forked_child_and_its_parent_both_go_on(store: SqliteStore) -> None:
    store.append(Append(SHARD, (new_bundle(),)))
    assert store.count(SHARD).ready == 1

    def work() -> None:
        store.append(Append(SHARD, (new_bundle(),)))
        assert len(store.claim(Claim(SHARD, b"t" * 16, 1, 1)).slices) == 1
        assert Waiter(store).wait(["orders"], 5)

    assert in_child(work) == 0
    store.append(Append(SHARD, (new_bundle(),)))
    assert store.count(SHARD).ready + store.count(SHARD).in_flight == 3


@needs_proc
def test_no_connection_is_open_while_the_process_forks(path: Path, store: SqliteStore) -> None:
    store.count(SHARD)

    def work() -> None:
        assert not any(str(path) in file for file in open_files())

    assert in_child(work) == 0


def test_a_child_holds_the_file_open_when_its_parent_gives_it_up(path: Path, store: SqliteStore) -> None:
    """SQLite deletes the log when it believes that the last process is leaving."""
    store.append(Append(SHARD, (new_bundle(),)))
    parent_closed, child_ready = SPAWN.Event(), SPAWN.Event()

    def work() -> None:
        store.append(Append(SHARD, (new_bundle(),)))
        child_ready.set()
        assert parent_closed.wait(20)
        store.append(Append(SHARD, (new_bundle(),)))

    def give_up() -> None:
        child_ready.wait(20)
        store.close()
        parent_closed.set()

    thread = threading.Thread(target=give_up)
    thread.start()
    assert in_child(work) == 0
    thread.join()
    assert store.count(SHARD).ready == 3


def test_a_fork_while_other_threads_write_deadlocks_nobody(store: SqliteStore) -> None:
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            store.append(Append(SHARD, (new_bundle(),)))
            store.count(SHARD)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        codes = [in_child(lambda: store.append(Append(SHARD, (new_bundle(),)))) for _ in range(10)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert codes == [0] * 10


def test_a_fork_while_another_thread_waits_deadlocks_nobody(store: SqliteStore) -> None:
    waiter = Waiter(store)
    waiter.wait(["orders"], 0)
    thread = threading.Thread(target=waiter.wait, args=(["orders"], 30))
    thread.start()
    assert in_child(lambda: store.append(Append(SHARD, (new_bundle(),)))) == 0
    thread.join(10)
    assert not thread.is_alive()


@needs_proc
def test_threads_share_the_writing_connection(path: Path, store: SqliteStore) -> None:
    threads = [threading.Thread(target=_append_ten, args=(store,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.count(SHARD).ready == 80
    assert open_files().count(str(path)) <= 2


def _append_ten(store: SqliteStore) -> None:
    for _ in range(10):
        store.append(Append(SHARD, (new_bundle(),)))
