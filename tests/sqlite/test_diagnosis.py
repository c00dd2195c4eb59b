"""What `shardq doctor` says of SQLite where something weakens a promise, or lets others at the file."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from shardq.storage.requests import Finding, QueueRecord
from shardq.storage.sqlite.guarantees import check_file_system, check_release
from shardq.storage.sqlite.store import SqliteStore

ROOT = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw"


def findings(store: SqliteStore) -> dict[str, Finding]:
    return {finding.name: finding for finding in store.diagnose()}


@pytest.mark.parametrize(
    "version", ["3.7.0", "3.40.1", "3.44.5", "3.45.0", "3.49.2", "3.50.6", "3.51.0", "3.51.2"]
)
def test_a_release_with_the_corruption_bug_is_named(version: str) -> None:
    finding = check_release(version)
    assert finding.ok
    assert finding.note
    assert not finding.warning
    assert finding.value.startswith(version)
    assert "3.51.3" in finding.remedy


@pytest.mark.parametrize(
    "version", ["3.6.23", "3.44.6", "3.44.7", "3.50.7", "3.51.3", "3.52.0", "3.53.1", "4.0.0"]
)
def test_a_release_without_it_is_well(version: str) -> None:
    assert check_release(version) == Finding("sqlite", True, version)


def test_the_release_in_use_is_the_one_that_is_checked(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.51.2")
    assert findings(store)["sqlite"].note
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.51.3")
    assert not findings(store)["sqlite"].note


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("30 22 0:40 / /data rw shared:2 - nfs4 server:/x rw,vers=4.2", "nfs4"),
        ("30 22 0:40 / /data rw - cifs //server/x rw", "cifs"),
        ("30 22 0:40 / /data rw - tmpfs tmpfs rw,size=1g", "tmpfs"),
        ("30 22 8:1 / /data rw - ext4 /dev/sda rw,nobarrier", "nobarrier"),
        ("30 22 0:50 / /data rw - overlay overlay rw,lowerdir=/a,volatile", "volatile"),
    ],
)
def test_a_file_system_that_cannot_keep_the_promises_is_named(tmp_path: Path, line: str, word: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"{ROOT}\n{line}\n")
    (finding,) = check_file_system(Path("/data/queues"), mounts)
    assert not finding.ok
    assert word in finding.value
    assert finding.remedy
    assert [each.ok for each in check_file_system(Path("/elsewhere"), mounts)] == [True]


def test_of_mounts_over_each_other_the_last_and_deepest_counts(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    over = "31 22 0:41 / /my\\040data rw - nfs server:/x rw\n32 31 8:1 / /my\\040data rw - xfs /dev/sda rw"
    mounts.write_text(f"{ROOT}\n{over}\n33 22 0:42 / /my rw - tmpfs tmpfs rw\n")
    assert [each.value for each in check_file_system(Path("/my data/q"), mounts)] == ["xfs"]


def test_where_the_system_has_no_list_of_mounts_nothing_is_said(tmp_path: Path) -> None:
    assert list(check_file_system(tmp_path, tmp_path / "absent")) == []
    (tmp_path / "odd").write_text("no mounts\n")
    assert list(check_file_system(tmp_path, tmp_path / "odd")) == []


def test_a_store_that_does_not_wait_for_the_disk_says_so(path: Path) -> None:
    store = SqliteStore(str(path), synchronous="normal")
    store.create_queue(QueueRecord("orders", b"", 1))
    assert not findings(store)["synchronous"].ok
    store.close()


def test_a_file_in_another_journal_mode_is_named(path: Path, store: SqliteStore) -> None:
    assert findings(store)["journal mode"].ok
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    finding = findings(store)["journal mode"]
    assert (finding.ok, finding.value) == (False, "delete")


def test_in_order_all_is_well_but_what_lies_outside(store: SqliteStore) -> None:
    ill = {name for name, finding in findings(store).items() if not finding.ok}
    assert ill <= {"sqlite", "file system", "free space"}
    assert findings(store)["locking"].value == "normal"


def test_a_file_that_is_locked_for_a_moment_is_in_order(path: Path, store: SqliteStore) -> None:
    """As it is when the last client of a file closes it, or the first one finds the log of a killed process."""
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as locked:
        locked.execute("PRAGMA locking_mode = EXCLUSIVE")
        locked.execute("BEGIN EXCLUSIVE")
        freed = threading.Timer(0.2, locked.close)
        freed.start()
        found = findings(store)
        freed.join()
    assert "database" not in found
    assert found["writable"].ok


def test_a_file_that_is_not_there_is_said_and_not_made(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "absent.db"))
    assert not findings(store)["file"].ok
    assert list(tmp_path.iterdir()) == []


def access(path: Path) -> Finding:
    store = SqliteStore(str(path))
    try:
        return findings(store)["access"]
    finally:
        store.close()


@pytest.fixture
def open_path() -> Iterator[Path]:
    """The path of a file in a folder that everybody may enter, as those above it. Those of pytest are its user's."""
    with TemporaryDirectory() as folder:
        if not all(each.stat().st_mode & 0o001 for each in Path(folder).resolve().parents):
            pytest.skip("the folder for temporary files is of one user")
        Path(folder).chmod(0o755)
        yield Path(folder) / "queue.db"


@pytest.mark.parametrize(
    ("file", "folder", "ok", "warning", "told"),
    [
        (0o600, 0o700, True, False, "lets in"),
        (0o666, 0o700, True, False, "lets in"),
        (0o600, 0o755, True, False, "its user"),
        (0o660, 0o755, True, False, "its user and group"),
        (0o644, 0o755, True, True, "read the messages"),
        (0o666, 0o755, False, False, "change the file"),
        (0o602, 0o711, False, False, "change the file"),
        (0o600, 0o777, False, False, "replace the file"),
        (0o600, 0o1777, True, True, "put a log"),
    ],
)
def test_a_file_that_other_users_can_read_or_change_is_named(
    open_path: Path, file: int, folder: int, ok: bool, warning: bool, told: str
) -> None:
    store = SqliteStore(str(open_path))
    store.create_queue(QueueRecord("orders", b"", 1))
    store.close()
    open_path.chmod(file)
    open_path.parent.chmod(folder)
    found = access(open_path)
    assert (found.ok, found.warning) == (ok, warning), found
    assert found.value.endswith(told) or told in found.value
    assert bool(found.remedy) == (not ok or warning)


def test_a_log_that_was_made_when_all_could_read_the_file_is_named_too(open_path: Path) -> None:
    store = SqliteStore(str(open_path))
    store.create_queue(QueueRecord("orders", b"", 1))
    log = open_path.with_name("queue.db-wal")
    log.chmod(0o644)
    assert access(open_path).warning
    assert str(log) in access(open_path).remedy
    store.close()


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o600), (0o000, 0o600), (0o077, 0o600), (0o277, 0o400)])
def test_a_new_file_is_of_its_user_alone_whatever_the_umask_lets_others_do(
    tmp_path: Path, umask: int, mode: int
) -> None:
    """In a process of its own: the umask is of all threads."""
    program = (
        "import os, sys, shardq\n"
        f"os.umask({umask})\n"
        "client = shardq.connect('sqlite:///queue.db')\n"
        "try: client.create_queue('orders').producer().send(b'x')\n"
        "except shardq.StoreUnavailable: pass\n"  # as nobody may write what has no bit for it, but root
        "print(*sorted(f'{each} {os.stat(each).st_mode & 0o777:o}' for each in os.listdir()), sep=',')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    modes = dict(each.split() for each in done.stdout.strip().split(","))
    assert modes.pop("queue.db") == f"{mode:o}"
    assert set(modes.values()) <= {f"{mode:o}"}


def test_a_file_that_exists_keeps_its_mode_and_so_does_the_target_of_a_link(tmp_path: Path) -> None:
    shared, link, fresh = tmp_path / "shared.db", tmp_path / "link.db", tmp_path / "fresh.db"
    shared.touch()
    shared.chmod(0o660)
    link.symlink_to(fresh)
    for path in (shared, link):
        store = SqliteStore(str(path))
        store.create_queue(QueueRecord("orders", b"", 1))
        store.close()
    assert shared.stat().st_mode & 0o777 == 0o660
    assert fresh.stat().st_mode & 0o777 == 0o600
    assert link.is_symlink()
