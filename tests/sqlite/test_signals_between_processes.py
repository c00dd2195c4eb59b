"""Who changes what others wait for tells them: once it can be seen, and whatever happens to it then."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardq.base.shard import Shard, group_shard
from shardq.storage.listening import Waiter
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Bundle,
    Claim,
    Extend,
    Finish,
    Forward,
    QueueRecord,
    Release,
    Span,
    Sweep,
)
from shardq.storage.sqlite import log, signals
from shardq.storage.sqlite.store import SqliteStore
from tests.forking import all_held, start
from tests.processes import running

SPAWN = multiprocessing.get_context("spawn")
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="other systems tell nobody")
GROUPED = group_shard("orders", "a")

WRITE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    connection.execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as error:
    print(error.sqlite_errorname)
"""
SLOW_DISK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

static int late(const char *name, int file) {
    usleep(150000);
    return ((int (*)(int)) dlsym(RTLD_NEXT, name))(file);
}

int fsync(int file) { return late("fsync", file); }
int fdatasync(int file) { return late("fdatasync", file); }
"""
SEND_SLOWLY = """
import os, sys, time
from shardq.base.shard import Shard
from shardq.storage.requests import Append, Bundle
from shardq.storage.sqlite.store import SqliteStore
quick, slow = SqliteStore(sys.argv[1], synchronous="normal"), SqliteStore(sys.argv[1])
def send(store, queue):
    store.append(Append(Shard(queue, 0, 0), (Bundle(os.urandom(16), 0, 0, 0, 1, b""),)))
for _ in range(int(sys.argv[2])):
    send(quick, "others")
    send(slow, "orders")
    print(time.monotonic(), flush=True)
    time.sleep(0.3)
"""


def held(store: SqliteStore, shard: Shard, count: int = 2) -> list[Span]:
    """Messages that were sent and claimed; in groups they are of one."""
    group = "a" if shard.is_grouped else ""
    bundles = tuple(
        Bundle(number.to_bytes(16, "big"), 0, 0, 0, 1, b"", group=group) for number in range(1, count + 1)
    )
    store.append(Append(shard, bundles))
    store.claim(Claim(shard, b"t" * 16, 1, 1_000_000))
    return [Span(bundles[0].id, 0, 1, b"t" * 16)]


def sent(shard: Shard) -> Append:
    group = "a" if shard.is_grouped else ""
    return Append(shard, (Bundle(os.urandom(16), 0, 0, 0, 1, b"", group=group),))


CHANGES: dict[str, Callable[[SqliteStore, Shard, list[Span]], Any]] = {
    "append": lambda store, shard, _: store.append(sent(shard)),
    "acknowledge": lambda store, shard, spans: store.acknowledge(Acknowledge(shard, tuple(spans))),
    "acknowledge, keep": lambda store, shard, spans: store.acknowledge(
        Acknowledge(shard, tuple(spans), keep=True)
    ),
    "extend": lambda store, shard, spans: store.extend(Extend(shard, tuple(spans), 9_000_000)),
    "release": lambda store, shard, spans: store.release(Release(shard, tuple(spans))),
    "forward": lambda store, shard, spans: store.forward(
        Forward(Acknowledge(shard, tuple(spans)), sent(Shard("others", 0, 0)))
    ),
    "forward in place": lambda store, shard, spans: store.forward(
        Forward(Acknowledge(shard, tuple(spans)), sent(shard), in_place=True)
    ),
    "settle by acks": lambda store, shard, spans: store.settle([Acknowledge(shard, tuple(spans))]),
    "settle by extensions": lambda store, shard, spans: store.settle(
        [Extend(shard, tuple(spans), 9_000_000)]
    ),
    "settle by releases": lambda store, shard, spans: store.settle(
        [Acknowledge(shard, ()), Release(shard, tuple(spans))]
    ),
    "settle by forwards": lambda store, shard, spans: store.settle(
        [Forward(Acknowledge(shard, tuple(spans)), sent(shard))]
    ),
    "claim": lambda store, shard, _: store.claim(Claim(shard, b"u" * 16, 1, 1_000_000)),
    "claim and finish": lambda store, shard, _: store.claim(
        Claim(shard, b"u" * 16, 1, 1_000_000, finish=Finish(most_deliveries=3))
    ),
    "remove": lambda store, shard, spans: store.remove(shard, spans[0].bundle_id, 0),
    "purge": lambda store, shard, _: store.purge(shard),
    "forget": lambda store, shard, _: store.drop_if_empty(shard),
    "sweep": lambda store, shard, _: store.sweep(Sweep(shard.queue, 0)),
    "register_consumer": lambda store, shard, _: store.register_consumer([shard.queue], "someone", 1_000_000),
    "deregister_consumer": lambda store, shard, _: store.deregister_consumer(shard.queue, "someone"),
    "create another queue": lambda store, _, __: store.create_queue(QueueRecord("new", b"", 1)),
    "update the queue": lambda store, shard, _: store.update_queue(QueueRecord(shard.queue, b"x", 2)),
    "drop the queue": lambda store, shard, _: store.drop_queue(shard.queue),
}


@pytest.mark.parametrize("is_grouped", [False, True], ids=["", "of a group"])
@pytest.mark.parametrize("change", CHANGES)
def test_who_changes_a_number_that_others_wait_for_tells_them_once_they_can_see_it(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch, change: str, is_grouped: bool
) -> None:
    """And who changes none wakes nobody."""
    store.create_queue(QueueRecord("others", b"", 1))
    shard = GROUPED if is_grouped else Shard("orders", 0, 0)
    spans = held(store, shard)
    other = SqliteStore(str(path))
    names = ["orders", "others", "new"]
    before, told = other.signals.numbers(names), []
    monkeypatch.setattr(signals, "notify_processes", lambda *_: told.append(other.signals.numbers(names)))
    CHANGES[change](store, shard, spans)
    after = other.signals.numbers(names)
    assert after == (told[-1] if told else before)
    if change in (
        "claim",
        "claim and finish",
        "extend",
        "register_consumer",
        "settle by extensions",
        "sweep",
    ):
        assert not told
    if change in ("acknowledge", "settle by acks"):
        assert bool(told) is is_grouped
    other.close()


def kill_itself(*_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def send_and_be_killed(path: str) -> None:
    signals.notify_processes = kill_itself  # type: ignore[attr-defined,assignment]
    SqliteStore(path).append(sent(Shard("orders", 0, 0)))


@ON_LINUX
def test_what_a_process_commits_before_it_is_killed_is_heard(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system closes the log for it."""
    monkeypatch.setattr(log, "POLL_ANYWAY", 60.0)  # so that what is heard has to wake it
    waiter = Waiter(store)
    waiter.wait(["orders"], 0)
    process = SPAWN.Process(target=send_and_be_killed, args=(str(path),))
    process.start()
    assert waiter.wait(["orders"], 30)
    process.join(20)
    assert process.exitcode == -signal.SIGKILL


def test_signalling_gives_up_no_lock_of_this_process(path: Path, store: SqliteStore) -> None:
    """To close a descriptor of the file itself, or of its -shm, would."""
    store.append(sent(Shard("orders", 0, 0)))
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    store.signals.announce()
    asked = subprocess.run([sys.executable, "-c", WRITE, path], capture_output=True, text=True, check=True)
    assert asked.stdout.strip() == "SQLITE_BUSY"
    db.close()


@pytest.mark.parametrize("refused", [FileNotFoundError, PermissionError, OSError])
def test_who_cannot_tell_has_sent_all_the_same(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, refused: type[OSError]
) -> None:
    """As where no descriptor is left. Who waits looks by itself."""

    def refuse(*_: object, **__: object) -> None:
        raise refused

    waiter = Waiter(store)
    waiter.wait(["orders"], 0)
    monkeypatch.setattr(log, "FileIO", refuse)
    store.append(sent(Shard("orders", 0, 0)))
    assert waiter.wait(["orders"], 0) == ("orders",)


def test_signalling_leaves_no_descriptor_and_makes_no_file(path: Path, store: SqliteStore) -> None:
    store.append(sent(Shard("orders", 0, 0)))
    files, descriptors = sorted(path.parent.iterdir()), len(list(Path("/dev/fd").iterdir()))
    for told in (path, path.with_name("missing.db"), path / "beneath.db"):
        log.notify_processes(str(told))
    assert sorted(path.parent.iterdir()) == files
    assert len(list(Path("/dev/fd").iterdir())) == descriptors


@ON_LINUX
def test_a_commit_that_a_disk_confirms_late_is_heard_whatever_was_heard_before(
    path: Path, store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written to the log 150 ms before it can be seen, and just after another one that no wait was for."""
    if not shutil.which("cc"):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("a slow disk needs Linux and a C compiler")
    monkeypatch.setattr(log, "POLL_ANYWAY", 60.0)  # so that what is heard has to wake it
    store.create_queue(QueueRecord("others", b"", 1))
    library, source = tmp_path / "slow.so", tmp_path / "slow.c"
    source.write_text(SLOW_DISK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    waiter = Waiter(store)
    waiter.wait(["orders"], 0)
    rounds = 8
    command = [sys.executable, "-c", SEND_SLOWLY, str(path), str(rounds)]
    slow = os.environ | {"LD_PRELOAD": str(library)}
    woken = []
    with running(command, env=slow, stdout=subprocess.PIPE) as sending:
        for _ in range(rounds):
            assert waiter.wait(["orders"], 10)
            woken.append(time.monotonic())
        told, _ = sending.communicate(timeout=20)
    late = [after - float(at) for after, at in zip(woken, told.split(), strict=True)]
    assert sorted(late)[rounds // 2] < 0.05
    assert max(late) < 0.25  # of the 300 ms until the next one, which would wake it


@ON_LINUX
def test_a_transaction_of_the_application_is_told_of_after_its_commit(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes, one after the other on one connection, and also after one that was rolled back."""
    monkeypatch.setattr(log, "POLL_ANYWAY", 60.0)  # so that what is heard has to wake it
    waiting, woken = SqliteStore(str(path)), []
    waiter = Waiter(waiting)
    waiter.wait(["orders"], 0)

    def wait() -> None:
        while waiter.wait(["orders"], 2):
            woken.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    db = sqlite3.connect(path, isolation_level=None)
    for pause, end in ((0, "COMMIT"), (0.1, "ROLLBACK"), (0.1, "COMMIT"), (0, "COMMIT"), (0.3, "COMMIT")):
        known = len(woken)
        db.execute("BEGIN IMMEDIATE")
        store.within(db).append(sent(Shard("orders", 0, 0)))
        time.sleep(pause)
        db.execute(end)
        ended = time.monotonic()
        while end == "COMMIT" and len(woken) == known and time.monotonic() < ended + 4:
            time.sleep(0.001)
        assert end == "ROLLBACK" or woken[-1] - ended < 0.5
    db.close()
    store.append(sent(Shard("orders", 0, 0)))  # what ends the last look for a commit
    waiting.close()
    thread.join(20)
    assert len(woken) >= 5


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_nobody_looks_for_a_commit_any_more_after_it_or_once_the_store_is_closed(
    path: Path, store: SqliteStore, end: str, begun_threads: Callable[..., list[threading.Thread]]
) -> None:
    def lookers() -> list[threading.Thread]:
        return begun_threads("shardq-commit")

    db = sqlite3.connect(path, isolation_level=None)
    for _ in range(3):
        db.execute("BEGIN IMMEDIATE")
        joined = store.within(db)
        for _ in range(3):
            joined.append(sent(Shard("orders", 0, 0)))
        for thread in lookers()[:-1]:  # that of the commit before is about to end
            thread.join(10)
        assert len(lookers()) == 1
        db.execute(end)
    if end == "ROLLBACK":
        store.close()
    for thread in lookers():
        thread.join(10)
    assert not lookers()
    db.close()


def test_a_transaction_that_was_rolled_back_is_looked_for_ever_less_often(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next one again at once."""
    looks: list[float] = []
    state = store.commits.state
    monkeypatch.setattr(store.commits, "state", lambda: (looks.append(time.monotonic()), state())[1])
    db = sqlite3.connect(path, isolation_level=None)
    for _ in range(2):
        looks.clear()
        db.execute("BEGIN IMMEDIATE")
        store.within(db).append(sent(Shard("orders", 0, 0)))
        time.sleep(0.1)
        early = len(looks)
        db.execute("ROLLBACK")
        time.sleep(2)
        assert early >= 5
        assert len([look for look in looks if look > looks[0] + 1]) <= 20
    db.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_closes_its_store_whatever_the_thread_that_looks_for_a_commit_held(
    path: Path, store: SqliteStore
) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    store.within(db).append(sent(Shard("orders", 0, 0)))
    db.execute("ROLLBACK")
    with all_held(store.commits.woken):
        child = start(store.close)
    assert os.waitpid(child, 0)[1] == 0
    db.close()
