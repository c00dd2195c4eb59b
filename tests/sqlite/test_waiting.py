"""Who waits for messages is woken, and costs next to nothing meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from shardq.base.shard import Shard
from shardq.errors import StoreUnavailable
from shardq.storage.listening import Waiter
from shardq.storage.requests import Append, Bundle, Claim, QueueRecord, Release, Span
from shardq.storage.sqlite import log
from shardq.storage.sqlite.log import EventSleeper, Sleeper, log_of
from shardq.storage.sqlite.signals import Signals
from shardq.storage.sqlite.store import SqliteStore

FORK = multiprocessing.get_context("fork")
MOST_EVENTS = Path("/proc/sys/fs/inotify/max_queued_events")


def fork_and_wait(store: SqliteStore, pipe: Any) -> None:
    waiter = Waiter(store)
    waiter.wait(["orders"], 0)
    pipe.send("ready")
    pipe.send(waiter.wait(["orders"], 20))


def test_a_commit_long_after_the_wait_began_is_seen(path: Path, store: SqliteStore, shard: Shard) -> None:
    other = SqliteStore(str(path))
    waiter = Waiter(store)
    waiter.wait(["orders"], 0)
    timer = threading.Timer(
        1.5, lambda: other.append(Append(shard, (Bundle(os.urandom(16), 0, 0, 0, 1, b""),)))
    )
    began = time.monotonic()
    timer.start()
    assert waiter.wait(["orders"], 10)
    assert 1.4 < time.monotonic() - began < 9
    timer.join()
    other.close()


def test_what_came_between_two_waits_ends_the_second(store: SqliteStore, send: Callable) -> None:
    waiter = Waiter(store)
    waiter.wait(["orders"], 0)
    send()
    assert waiter.wait(["orders"], 10)
    assert not waiter.wait(["orders"], 0.02)


def test_a_release_wakes_and_another_queue_does_not(store: SqliteStore, send: Callable, shard: Shard) -> None:
    sent = send()
    store.claim(Claim(shard, b"t" * 16, 1, 1_000_000))
    waiter = Waiter(store)
    waiter.wait(["orders"], 0)
    store.create_queue(QueueRecord("other", b"", 1))
    store.append(Append(Shard("other", 0, 0), (Bundle(os.urandom(16), 0, 0, 0, 1, b""),)))
    assert not waiter.wait(["orders"], 0.05)
    store.release(Release(shard, (Span(sent.id, 0, 1, b"t" * 16),)))
    assert waiter.wait(["orders"], 0)


def test_waiting_holds_no_transaction_open(path: Path, store: SqliteStore, send: Callable) -> None:
    waiter = Waiter(store)
    waiter.wait(["orders"], 0)
    thread = threading.Thread(target=waiter.wait, args=(["orders"], 0.5))
    thread.start()
    for _ in range(200):
        send(data=b"x" * 200_000)
    thread.join()
    assert path.with_name("queue.db-wal").stat().st_size < 30_000_000


def test_another_process_is_heard_through_a_symbolic_link_to_the_file(
    path: Path, store: SqliteStore, shard: Shard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite keeps the log beside the file itself."""
    for anyway in ("READ_ANYWAY", "POLL_ANYWAY"):  # so that what is heard has to wake it
        monkeypatch.setattr(log, anyway, 60.0)
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    other = SqliteStore(str(link))
    other_waiter = Waiter(other)
    other_waiter.wait(["orders"], 0)
    timer = threading.Timer(
        0.3, lambda: store.append(Append(shard, (Bundle(os.urandom(16), 0, 0, 0, 1, b""),)))
    )
    timer.start()
    assert other_waiter.wait(["orders"], 10)
    timer.join()
    other.close()


@pytest.mark.parametrize("turned", ["the file", "a folder above it"])
def test_another_process_is_heard_where_a_link_leads_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turned: str
) -> None:
    monkeypatch.setattr(log, "READ_ANYWAY", 60.0)
    monkeypatch.setattr(log, "POLL_ANYWAY", 0.01)
    for name in ("old", "new"):
        (tmp_path / name / "shop").mkdir(parents=True)
        made = SqliteStore(str(tmp_path / name / "shop" / "queue.db"))
        made.create_queue(QueueRecord("orders", b"", 1))
        made.close()
    steps = ["shop", "queue.db"] if turned == "a folder above it" else []
    link = tmp_path / "now"
    link.symlink_to(tmp_path.joinpath("old", *([] if steps else ["shop", "queue.db"])))
    store, other = (SqliteStore(str(link.joinpath(*steps))) for _ in range(2))
    waiter = Waiter(store)
    old = watch_of(store, waiter)
    link.unlink()
    link.symlink_to(tmp_path.joinpath("new", *([] if steps else ["shop", "queue.db"])))
    while waiter.wait(["orders"], 0.02) or store.signals.sleeper is old:
        pass
    monkeypatch.setattr(log, "POLL_ANYWAY", 60.0)  # so that what is heard has to wake it
    waiter.wait(["orders"], 0.1)
    shard = Shard("orders", 0, 0)
    timer = threading.Timer(
        0.3, lambda: other.append(Append(shard, (Bundle(os.urandom(16), 0, 0, 0, 1, b""),)))
    )
    timer.start()
    assert waiter.wait(["orders"], 10)
    timer.join()
    for each in (store, other):
        each.close()


def test_a_wait_outlives_a_folder_that_cannot_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads the file tells of it, as StoreUnavailable."""

    def refuse(_: Path) -> None:
        raise StoreUnavailable("no right to look")

    sleeper = watching(tmp_path / "queue.db")
    monkeypatch.setattr(log, "file_identity", refuse)
    sleeper.sleep(0.001)
    assert not sleeper.lasting
    sleeper.close()


def watch_of(store: SqliteStore, waiter: Waiter) -> Sleeper:
    """That of the thread which looks for all who wait, once it has begun."""
    while (watch := store.signals.sleeper) is None:
        waiter.wait(["orders"], 0.01)
    return watch


def watching(path: Path) -> EventSleeper:
    try:
        return EventSleeper(path)
    except OSError:
        pytest.skip("this system gives no watch")


def is_told(sleeper: EventSleeper) -> bool:
    return sleeper.is_told(time.monotonic() + 10)


def open_descriptors() -> int:
    """How many descriptors are open of what is not a file, as watches are: others may close files meanwhile."""
    links = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return sum(link.startswith("anon_inode:") for link in links)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors as Linux lists them")
def test_one_watch_serves_all_who_wait_and_is_given_back_by_close(path: Path) -> None:
    store = SqliteStore(str(path))
    store.create_schema()
    watch_of(store, Waiter(store))
    kept = open_descriptors()
    threads = [threading.Thread(target=Waiter(store).wait, args=(["orders"], 0.1)) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert open_descriptors() == kept
    store.signals.close()
    assert open_descriptors() == kept - 2  # the watch, and what ends its sleep
    store.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors as Linux lists them")
def test_a_thread_that_waits_while_the_store_is_closed_leaves_no_watch(path: Path) -> None:
    store = SqliteStore(str(path))
    store.create_schema()
    closed = threading.Event()
    waiter = Waiter(store, closed.is_set)
    watch_of(store, waiter)
    kept = open_descriptors()
    waiting = threading.Thread(target=waiter.wait, args=(["orders"], 60))
    waiting.start()
    while not store.signals.listening:
        time.sleep(0.001)
    closed.set()
    store.signals.close()
    waiting.join(30)
    assert open_descriptors() == kept - 2
    store.close()


def test_a_closed_store_that_is_used_again_is_told_at_once(
    path: Path, store: SqliteStore, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "POLL_ANYWAY", 60.0)  # so that what is heard has to wake it
    woken = threading.Event()
    listener = store.listen(woken.set)
    listener.news(["orders"])
    store.close()
    while listener.news(["orders"]):
        pass
    woken.clear()
    other = SqliteStore(str(path))
    other.append(Append(shard, (Bundle(os.urandom(16), 0, 0, 0, 1, b""),)))
    assert woken.wait(30)
    other.close()


@pytest.mark.parametrize("is_held", [False, True])
def test_a_watch_of_a_folder_that_was_made_again_is_made_again_too(
    path: Path, is_held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while this process has a file of the old one open, as it has after a send."""
    monkeypatch.setattr(log, "POLL_ANYWAY", 0.01)
    store = SqliteStore(str(path))
    store.create_schema()
    waiter = Waiter(store)
    sleeper = watch_of(store, waiter)
    held = path.open("rb") if is_held else None
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    path.parent.mkdir()
    while store.signals.sleeper is sleeper:
        waiter.wait(["orders"], 0.02)
    made_again = store.signals.sleeper
    assert made_again is not None
    assert made_again.lasting is isinstance(made_again, EventSleeper)
    # Then its thread looks as soon as it is told of the new one
    monkeypatch.setattr(log, "POLL_ANYWAY", 60.0)
    waiter.wait(["orders"], 0.1)
    looked, numbers = threading.Event(), store.signals.numbers

    def note(queues: Sequence[str]) -> Mapping[str, int]:
        if store.signals.thread.is_current:
            looked.set()
        return numbers(queues)

    store.signals.numbers = note
    assert not store.listen(lambda: None).news(["orders"])
    for name in (path.name, f"{path.name}-wal"):
        path.with_name(name).touch()
    log.notify_processes(str(path))
    assert looked.wait(10)
    store.close()
    if held is not None:
        held.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_does_not_take_its_parents_events(
    path: Path, store: SqliteStore, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    for anyway in ("READ_ANYWAY", "POLL_ANYWAY"):  # so that an event has to wake them
        monkeypatch.setattr(log, anyway, 60.0)
    waiter = Waiter(store)
    waiter.wait(["orders"], 0)
    here, there = FORK.Pipe()
    children = [FORK.Process(target=fork_and_wait, args=(store, there)) for _ in range(2)]
    for child in children:
        child.start()
    assert [here.recv(), here.recv()] == ["ready"] * 2
    other = SqliteStore(str(path))
    timer = threading.Timer(
        0.3, lambda: other.append(Append(shard, (Bundle(os.urandom(16), 0, 0, 0, 1, b""),)))
    )
    timer.start()
    assert waiter.wait(["orders"], 20)
    assert [bool(here.recv()), bool(here.recv())] == [True] * 2
    for child in children:
        child.join(10)
    timer.join()
    other.close()


def test_where_the_system_gives_no_watch_the_log_is_polled(
    path: Path, store: SqliteStore, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "inotify_simple", None)
    other = SqliteStore(str(path))
    waiter = Waiter(store)
    waiter.wait(["orders"], 0)
    timer = threading.Timer(
        0.3, lambda: other.append(Append(shard, (Bundle(os.urandom(16), 0, 0, 0, 1, b""),)))
    )
    timer.start()
    assert waiter.wait(["orders"], 10)
    timer.join()
    other.close()


def test_a_busy_queue_beside_it_does_not_keep_a_waiting_thread_busy(store: SqliteStore, path: Path) -> None:
    other = SqliteStore(str(path))
    other.create_queue(QueueRecord("busy", b"", 1))
    waiter = Waiter(store)
    waiter.wait(["orders"], 0)
    looks = 0
    numbers = store.signals.numbers

    def count(queues: Sequence[str]) -> Mapping[str, int]:
        nonlocal looks
        looks += 1
        return numbers(queues)

    store.signals.numbers = count
    thread = threading.Thread(target=waiter.wait, args=(["orders"], 0.5))
    thread.start()
    while thread.is_alive():
        other.append(Append(Shard("busy", 0, 0), (Bundle(os.urandom(16), 0, 0, 0, 1, b""),)))
    assert looks < 150
    other.close()


@pytest.mark.skipif(not MOST_EVENTS.exists(), reason="fills the queue of a watch as Linux bounds it")
def test_a_commit_is_looked_for_where_too_much_else_was_done_to_be_told_of_it(tmp_path: Path) -> None:
    for name in ("queue.db", "queue.db-wal"):
        (tmp_path / name).touch()
    sleeper = EventSleeper(tmp_path / "queue.db")
    for _ in range(int(MOST_EVENTS.read_text())):
        for name in ("another.log", "one more.log"):
            (tmp_path / name).open("ab", buffering=0).close()
    log.notify_processes(str(tmp_path / "queue.db"))
    assert is_told(sleeper)
    sleeper.close()


def keep_writing(path: Path) -> None:
    with log_of(path).open("r+b", buffering=0) as file:
        for _ in range(20):
            file.write(b"x")
            time.sleep(0.05)


def tell_of_it(path: Path) -> None:
    log.notify_processes(str(path))


def tell_of_another_file(path: Path) -> None:
    log.notify_processes(str(path.with_name("another.db")))


@pytest.mark.parametrize(
    ("do", "most"),
    [(tell_of_it, 3), (keep_writing, 2), (tell_of_another_file, 2)],
    ids=["news of another queue", "what nobody waits for", "another file"],
)
def test_what_is_no_news_is_not_looked_at_again_and_again(
    tmp_path: Path, do: Callable[[Path], None], most: int
) -> None:
    """A wait and its watch begin with a look each, and what is told causes one more. What is written causes none."""
    for name in ("queue.db", "queue.db-wal", "another.db", "another.db-wal"):
        (tmp_path / name).touch()
    looks = 0

    def look(_: Sequence[str]) -> Mapping[str, int]:
        nonlocal looks
        looks += 1
        return {}

    own = Signals(look, tmp_path / "queue.db")
    doing = threading.Timer(0.1, do, (tmp_path / "queue.db",))
    doing.start()
    waiter = Waiter(own)
    assert not waiter.wait(["orders"], 0.6)
    doing.join()
    assert looks <= most
    own.close()


def test_a_listener_that_rests_while_the_numbers_are_read_is_not_woken(tmp_path: Path) -> None:
    reading, goes_on, numbers = threading.Event(), threading.Event(), {"orders": 0}

    def read(_: Sequence[str]) -> Mapping[str, int]:
        if numbers["orders"] and threading.current_thread() is not threading.main_thread():
            reading.set()
            goes_on.wait(20)
        return dict(numbers)

    own, woken, seen = Signals(read, tmp_path / "queue.db"), list[str](), threading.Event()
    resting = own.listen(lambda: woken.append("rests"))
    listening = own.listen(seen.set)
    for each in (resting, listening):
        assert not each.news(["orders"])
    numbers["orders"] = 1
    while not reading.wait(0.01):  # the thread may not sleep yet
        own.announce()
    resting.rest()
    goes_on.set()
    assert seen.wait(20)
    assert not woken
    own.close()


@pytest.mark.parametrize(("every", "most"), [(0.0, 60), (0.004, 60), (0.05, 15)])
def test_what_is_told_again_and_again_without_news_is_looked_at_50_times_a_second(
    tmp_path: Path, every: float, most: int
) -> None:
    for name in ("queue.db", "queue.db-wal"):
        (tmp_path / name).touch()
    sleeper = watching(tmp_path / "queue.db")
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(every):
            log.notify_processes(str(tmp_path / "queue.db"))

    telling = threading.Thread(target=tell)
    telling.start()
    looks, until = 0, time.monotonic() + 0.5
    while (left := until - time.monotonic()) > 0:
        sleeper.sleep(left)
        looks += 1
    ended.set()
    telling.join()
    assert looks <= most
    sleeper.close()


def test_after_a_quiet_time_what_is_told_is_looked_at_at_once(tmp_path: Path) -> None:
    """Also where much was told before, without news."""
    for name in ("queue.db", "queue.db-wal"):
        (tmp_path / name).touch()
    sleeper = watching(tmp_path / "queue.db")
    sleeper.pause = 0.02
    sleeper.sleep(0.2)
    assert not sleeper.pause
    sleeper.close()


def test_who_waits_is_woken_although_an_interrupt_came_as_the_thread_was_to_be_started(
    path: Path, store: SqliteStore, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "POLL_ANYWAY", 60.0)  # so that what is heard has to wake it

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    woken = threading.Event()
    listener = store.listen(woken.set)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(threading.Thread, "start", interrupt)
        listener.news(["orders"])
    while store.signals.sleeper is None:  # another thread is made after a second
        listener.news(["orders"])
        time.sleep(0.01)
    while listener.news(["orders"]):
        pass
    woken.clear()
    other = SqliteStore(str(path))
    other.append(Append(shard, (Bundle(os.urandom(16), 0, 0, 0, 1, b""),)))
    assert woken.wait(30)
    other.close()
