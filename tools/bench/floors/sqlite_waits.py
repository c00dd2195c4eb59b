"""What waiting costs on SQLite: processes that the system tells of each write to the log of commits."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from inotify_simple import INotify, flags

from shardq.storage.sqlite.connections import Connection
from shardq.storage.sqlite.log import log_of

from ..stores.processes import Job, Ready
from .floor import Size
from .waiting import polling

# Seconds in which a process says once that it lives, as consumers that share shards have to know.
INTERVAL = 10.0
# Seconds from the first write of a commit to the log until another process sees it.
VISIBLE_AFTER = 0.002
TABLE = "CREATE TABLE bare_consumer (number INTEGER PRIMARY KEY, until REAL NOT NULL)"
ALIVE = "INSERT OR REPLACE INTO bare_consumer VALUES (?, ?)"


def clients(size: Size, folder: Path) -> Mapping[str, Sequence[Job]]:
    """As many processes as there are consumers."""
    path = folder / "waits.db"
    made = Connection.open(path, create=True).sql
    made.execute(TABLE)
    made.close()

    def jobs(*, looking: bool) -> Sequence[Job]:
        return [Job(wait, (path, size, number, looking)) for number in range(size.processes)]

    commits = f"each commits every {INTERVAL:g} s that it lives, and is told of all those commits"
    return {commits: jobs(looking=False), f"{commits}, and looks once for each": jobs(looking=True)}


def wait(ready: Ready, path: Path, size: Size, number: int, looking: bool) -> float:
    """Seconds of a core that a process takes."""
    sql = sqlite3.connect(path, isolation_level=None)
    sql.execute("PRAGMA synchronous = NORMAL")
    ended = threading.Event()
    listener = threading.Thread(target=_listen, args=(path, ended, looking))
    listener.start()
    used = polling(
        ready,
        lambda: sql.execute(ALIVE, (number, time.time())),
        number * INTERVAL / size.processes,
        INTERVAL,
        size.seconds,
    )
    ended.set()
    listener.join()
    sql.close()
    return used


def _listen(path: Path, ended: threading.Event, looking: bool) -> None:
    log = log_of(path)
    sql = sqlite3.connect(path)
    with INotify() as events:
        events.add_watch(log.parent, flags.MODIFY)
        while not ended.is_set():
            if any(event.name == log.name for event in events.read(timeout=1_000)):
                time.sleep(VISIBLE_AFTER)
                events.read(timeout=0)
                if looking:
                    sql.execute("PRAGMA data_version").fetchone()
    sql.close()
