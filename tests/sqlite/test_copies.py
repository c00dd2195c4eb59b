"""Backups and restores of the file: beside clients at work, after crashes, and killed at every step themselves."""

from __future__ import annotations

import fcntl
import itertools
import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import shardq
from shardq.errors import InvalidSetting, SchemaMismatch, ShardqError, StoreUnavailable
from shardq.storage.sqlite.log import side_files
from shardq.storage.sqlite.store import SqliteStore
from shardq.storage.sqlite.tables import BlobConnection
from tests.forking import ended_by, start, was_killed
from tests.processes import running

MOST_STEPS = 300
TRASH = b"no database " * 10
CHANGING = {"open", "flock", "ftruncate", "chmod", "chown", "fsync", "unlink", "replace", "rename", "close"}
IDLE = """
import sys, shardq
queue = shardq.connect(sys.argv[1]).queue("orders")
queue.peek(1)
print("connected", flush=True)
sys.stdin.read()
"""


def url(path: Path) -> str:
    return f"sqlite:///{path}?synchronous=normal"


def store(path: Path) -> SqliteStore:
    return SqliteStore(str(path), busy_timeout=0.2)


def made(path: Path, *bodies: bytes) -> Path:
    """A file with a queue that has these messages, which nobody is connected to."""
    with shardq.connect(url(path)) as client:
        client.create_queue("orders").producer().send_many(bodies)
    return path


def bodies(path: Path) -> list[bytes]:
    """The messages of a file that is whole."""
    with closing(sqlite3.connect(path)) as sql:
        assert sql.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with shardq.connect(url(path)) as client:
        return sorted(message.body for message in client.queue("orders").peek(100_000))


def crash_after_sending(path: Path, *texts: bytes) -> None:
    """Let a process send messages, and kill it: they are in the log beside the file."""

    def crash() -> None:
        producer = shardq.connect(url(path)).queue("orders").producer()
        for text in texts:
            producer.send(text)
        os.kill(os.getpid(), signal.SIGKILL)

    assert was_killed(start(crash))
    assert side_files(path)[0].stat().st_size > 0


@contextmanager
def process(code: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has written its first line."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with running([sys.executable, "-c", code, url(path)], **pipes) as started:
        assert started.stdout is not None
        assert started.stdout.readline()
        yield started


def is_step(called: object) -> bool:
    """Whether a function is one by which the system or SQLite changes something."""
    of_system = getattr(called, "__module__", None) in {"posix", "fcntl"}
    name = getattr(called, "__name__", "")
    return isinstance(getattr(called, "__self__", None), sqlite3.Connection) or (
        of_system and name in CHANGING
    )


def is_done_within(steps: int, act: Callable[[], object]) -> bool:
    """Do it in a process that is killed before it takes one step more; False if it was killed."""

    def do() -> None:
        taken = itertools.count()

        def kill(_frame: object, event: str, called: object) -> None:
            if event == "c_call" and is_step(called) and next(taken) == steps:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(kill)
        act()
        sys.setprofile(None)

    return not was_killed(start(do))


def between_steps(patch: pytest.MonkeyPatch, do: Callable[[int], None]) -> None:
    """Let something happen after each step of a copy: it is told how much is left."""

    def back_up(connection: sqlite3.Connection, target: sqlite3.Connection, **options: Any) -> None:
        options["progress"] = lambda _status, left, _total: do(left)
        sqlite3.Connection.backup(connection, target, **options)

    patch.setattr(BlobConnection, "backup", back_up, raising=False)


def test_commits_of_others_do_not_begin_a_backup_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, backup = made(tmp_path / "queue.db", b"before"), tmp_path / "backup.db"
    with shardq.connect(url(live)) as client:
        client.create_queue("archive").producer().send_many([bytes(20_000)] * 1_000)
        producer = client.queue("orders").producer()
        seen: list[int] = []

        def commit(left: int) -> None:
            assert left not in seen, "it has begun anew"
            seen.append(left)
            producer.send(b"meanwhile")

        between_steps(monkeypatch, commit)
        saved = store(live).back_up(str(backup))
        assert len(seen) > 2
    assert bodies(backup) == [b"before"]
    assert (saved.path, saved.queues, saved.bytes) == (str(backup), 4, backup.stat().st_size)


def test_ctrl_c_ends_a_backup_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_left: int) -> None:
        raise KeyboardInterrupt

    live = made(tmp_path / "queue.db", b"live")
    between_steps(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        store(live).back_up(str(tmp_path / "backup.db"))
    assert list(tmp_path.iterdir()) == [live]


def test_a_file_that_appears_during_a_backup_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live, backup = made(tmp_path / "queue.db", b"live"), tmp_path / "backup.db"
    between_steps(monkeypatch, lambda _left: backup.touch())
    with pytest.raises(InvalidSetting, match=r"backup\.db exists"):
        store(live).back_up(str(backup))
    assert backup.stat().st_size == 0


def test_a_restore_over_the_log_of_a_killed_process_gives_the_backup_and_nothing_else(tmp_path: Path) -> None:
    live, backup = made(tmp_path / "queue.db", b"before"), tmp_path / "backup.db"
    store(live).back_up(str(backup))
    crash_after_sending(live, *(b"after %d" % number * 100 for number in range(100)))
    store(live).restore(str(backup))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.db", "queue.db"]
    assert bodies(live) == [b"before"]


def test_what_a_killed_process_has_left_in_the_log_is_in_a_backup(tmp_path: Path) -> None:
    live = made(tmp_path / "queue.db", b"before")
    crash_after_sending(live, b"after")
    store(live).back_up(str(tmp_path / "backup.db"))
    assert bodies(tmp_path / "backup.db") == [b"after", b"before"]


def trash(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(TRASH)


def contents(path: Path) -> list[bytes]:
    """The messages of a file, or how it begins if it was trashed."""
    head = path.read_bytes()[: len(TRASH)]
    return [head] if head == TRASH else bodies(path)


@pytest.mark.parametrize(
    ("replaced", "old"),
    [("queue.db", [b"after", b"before"]), ("queue.db", [TRASH]), ("backup.db", [b"saved"])],
    ids=["restore", "restore over a damaged file", "backup"],
)
def test_a_kill_at_any_step_leaves_the_file_of_before_or_the_new_one(
    tmp_path: Path, replaced: str, old: list[bytes]
) -> None:
    scene = tmp_path / "scene"
    scene.mkdir()
    made(scene / "backup.db", b"saved")
    crash_after_sending(made(scene / "queue.db", b"before"), b"after")
    if TRASH in old:
        trash(scene / "queue.db")
    new = [b"saved"] if replaced == "queue.db" else [b"after", b"before"]
    seen = []
    for steps in range(MOST_STEPS):
        folder = shutil.copytree(scene, tmp_path / f"killed after {steps}")
        live, backup = store(folder / "queue.db"), str(folder / "backup.db")

        def act(live: SqliteStore = live, backup: str = backup) -> None:
            live.restore(backup) if replaced == "queue.db" else live.back_up(backup, overwrite=True)

        done = is_done_within(steps, act)
        left = contents(folder / replaced)
        assert left in (old, new), f"after {steps} steps"
        seen.append(left)
        act()  # goes on, whatever was left
        assert contents(folder / replaced) == new
        assert sorted(path.name for path in folder.iterdir()) == ["backup.db", "queue.db"]
        if done:
            break
    assert done
    assert seen.count(old) > 10
    assert new in seen[:-1]


def empty_the_log(path: Path) -> None:
    with closing(sqlite3.connect(path)) as sql:
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.mark.parametrize(
    "happening", [lambda _: None, empty_the_log, trash], ids=["none", "emptied", "trashed"]
)
def test_a_restore_is_refused_while_an_idle_client_is_connected(
    tmp_path: Path, happening: Callable[[Path], None]
) -> None:
    live, backup = made(tmp_path / "queue.db", b"live"), made(tmp_path / "backup.db", b"saved")
    with process(IDLE, live):
        happening(live)
        before = live.read_bytes()
        with pytest.raises(StoreUnavailable, match=r"queue\.db is in use: end the processes .* `fuser -v"):
            store(live).restore(str(backup))
        assert live.read_bytes() == before
    store(live).restore(str(backup))
    assert bodies(live) == [b"saved"]


def test_a_client_of_this_process_keeps_its_file_too(tmp_path: Path) -> None:
    live, backup = made(tmp_path / "queue.db", b"live"), made(tmp_path / "backup.db", b"saved")
    with shardq.connect(url(live)) as client:
        assert client.queue("orders").counts().ready == 1
        with pytest.raises(StoreUnavailable, match="in use"):
            store(live).restore(str(backup))
        with pytest.raises(StoreUnavailable, match="in use"):
            store(backup).back_up(str(live), overwrite=True)
        client.queue("orders").producer().send(b"more")
    assert bodies(live) == [b"live", b"more"]


def test_a_client_that_comes_during_a_restore_waits_and_finds_the_backup(tmp_path: Path) -> None:
    live, backup = made(tmp_path / "queue.db", b"live"), made(tmp_path / "backup.db", b"saved")
    replace = Path.replace
    with shardq.connect(url(live)) as client, pytest.MonkeyPatch.context() as patch:

        def look_first(part: Path, target: Path) -> Path:
            with pytest.raises(StoreUnavailable, match="locked"):
                store(live).list_queues()
            return replace(part, target)

        patch.setattr(Path, "replace", look_first)
        store(live).restore(str(backup))
        assert client.queue("orders").peek(1)[0].body == b"saved"


@pytest.mark.parametrize("damage", [trash, lambda path: os.truncate(path, 50_000)], ids=["trashed", "cut"])
def test_a_file_that_is_damaged_is_replaced_by_a_restore(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    live, backup = made(tmp_path / "queue.db", b"x" * 100_000), made(tmp_path / "backup.db", b"saved")
    damage(live)
    with pytest.raises(StoreUnavailable, match="`shardq restore BACKUP`"):
        store(live).back_up(str(tmp_path / "another.db"))
    store(live).restore(str(backup))
    assert bodies(live) == [b"saved"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.db", "queue.db"]


def test_a_file_that_seems_to_be_of_another_application_is_kept_until_it_is_moved_away(
    tmp_path: Path,
) -> None:
    live, backup = made(tmp_path / "queue.db", b"live"), made(tmp_path / "backup.db", b"saved")
    with live.open("r+b") as file:  # one byte of the application's id
        file.seek(68)
        file.write(b"\xff")
    before = live.read_bytes()
    with pytest.raises(SchemaMismatch, match=r"queue\.db .* damaged: move it away first"):
        store(live).restore(str(backup))
    assert live.read_bytes() == before
    live.rename(tmp_path / "damaged.db")
    store(live).restore(str(backup))
    assert bodies(live) == [b"saved"]


def overwrite_a_page(path: Path) -> None:
    """Damage what no read of a queue's name finds."""
    with path.open("r+b") as file:
        file.seek(-8192 * 3, os.SEEK_END)
        file.write(b"\xff" * 8192)


def other_application(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as sql:
        sql.execute("CREATE TABLE other (x)")


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (overwrite_a_page, StoreUnavailable, "is damaged"),
        (trash, StoreUnavailable, "is not a SQLite database"),
        (lambda path: os.truncate(path, 50_000), StoreUnavailable, "is damaged"),
        (lambda path: os.truncate(path, 0), SchemaMismatch, "is empty"),
        (other_application, SchemaMismatch, "belongs to another application"),
        (Path.unlink, InvalidSetting, "does not exist"),
    ],
)
def test_a_backup_that_is_of_no_use_changes_nothing(
    tmp_path: Path, spoil: Callable[[Path], None], error: type[ShardqError], words: str
) -> None:
    live, backup = made(tmp_path / "queue.db", b"live"), made(tmp_path / "backup.db", b"x" * 100_000)
    spoil(backup)
    with pytest.raises(error, match=rf"backup\.db {words}"):
        store(live).restore(str(backup))
    assert bodies(live) == [b"live"]
    assert not list(tmp_path.glob("*.shardq-part"))


def test_a_disk_that_is_full_leaves_the_old_file(tmp_path: Path) -> None:
    live, backup = made(tmp_path / "queue.db", b"live"), made(tmp_path / "backup.db", b"x" * 500_000)

    def restore() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        with pytest.raises(StoreUnavailable, match=r"queue\.db.* free space"):
            store(live).restore(str(backup))

    assert ended_by(start(restore)) == 0
    assert bodies(live) == [b"live"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.db", "queue.db"]


def test_two_backups_to_one_file_do_not_meet(tmp_path: Path) -> None:
    live, part = made(tmp_path / "queue.db", b"live"), tmp_path / "backup.db.shardq-part"
    with part.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StoreUnavailable, match=r"shardq-part is being written by another backup"):
            store(live).back_up(str(tmp_path / "backup.db"))
    store(live).back_up(str(tmp_path / "backup.db"))  # takes what a killed one has left
    assert bodies(tmp_path / "backup.db") == [b"live"]
    assert not part.exists()


def test_a_copy_has_the_rights_of_the_file_that_it_stands_for(tmp_path: Path) -> None:
    live, backup = made(tmp_path / "queue.db", b"live"), tmp_path / "backup.db"
    live.chmod(0o640)
    store(live).back_up(str(backup))
    assert stat.S_IMODE(backup.stat().st_mode) == 0o640
    backup.chmod(0o400)
    store(live).restore(str(backup))
    assert stat.S_IMODE(live.stat().st_mode) == 0o640
    live.unlink()
    store(live).restore(str(backup))
    assert stat.S_IMODE(live.stat().st_mode) == 0o600


def test_a_restore_changes_nothing_beside_the_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the backup may be on a disk that is mounted for reading only, or belong to another user."""
    folder = tmp_path / "disk"
    folder.mkdir()
    live, backup = made(tmp_path / "queue.db", b"live"), made(folder / "backup.db", b"saved")
    before, seen = folder.stat().st_mtime_ns, []
    between_steps(monkeypatch, lambda _left: seen.append(sorted(folder.iterdir())))
    store(live).restore(str(backup))
    assert bodies(live) == [b"saved"]
    assert seen
    assert all(each == [backup] for each in seen)
    assert folder.stat().st_mtime_ns == before


def test_a_backup_that_comes_into_use_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, backup = made(tmp_path / "queue.db", b"live"), made(tmp_path / "backup.db", b"saved")

    def change(_left: int) -> None:
        with shardq.connect(url(backup)) as client:
            client.queue("orders").producer().send(b"more")

    between_steps(monkeypatch, change)
    with pytest.raises(StoreUnavailable, match=r"backup\.db came into use"):
        store(live).restore(str(backup))
    assert bodies(live) == [b"live"]
    monkeypatch.undo()
    store(live).restore(str(backup))
    assert bodies(live) == [b"more", b"saved"]


def test_a_link_to_the_file_stays_one(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    live, link = made(tmp_path / "disk" / "queue.db", b"live"), tmp_path / "queue.db"
    link.symlink_to(live)
    backup = made(tmp_path / "backup.db", b"saved")
    store(link).restore(str(backup))
    assert link.is_symlink()
    assert bodies(live) == [b"saved"]


def test_a_connection_to_a_file_that_was_replaced_meanwhile_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, other = made(tmp_path / "queue.db", b"old"), made(tmp_path / "other.db", b"new")
    connect = sqlite3.connect

    def connect_and_replace(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        if other.exists():
            other.replace(live)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_and_replace)
    with shardq.connect(url(live)) as client:
        assert client.queue("orders").peek(1)[0].body == b"new"
