"""The work of a stream beside its messages: leases, background jobs, its backlog, and its checkpoint.

Spark writes ``offsets/N`` before batch N begins, with a line for the end of each source, and ``commits/N`` when the
batch is done. It notifies a source of a commit only when it plans the batch after it.

The driver does so until the batch is finished, and each task for its own claims while it reads. So a driver that
stands still costs nothing while tasks read. After that it may stand still until the last extended leases expire.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from shardq.base.clock import microseconds, to_datetime
from shardq.base.closing import Closing
from shardq.base.log import Log
from shardq.base.waits import BackgroundThread
from shardq.core.context.queue_context import QueueContext
from shardq.core.counts import counts_of, total
from shardq.core.receiving.named_claim_log import ClaimName
from shardq.core.receiving.named_claims import NamedClaims
from shardq.core.receiving.several_queues import CLOSING_SECONDS
from shardq.core.receiving.upkeep import Upkeep
from shardq.errors import InvalidSetting, QueueNotFound

__all__ = ["Backlog", "CommitLog", "Heartbeat", "StreamUpkeep", "interval_of", "slots_of", "task_slots"]

_log = Log(__name__)

_LOCAL = re.compile(rb"(?:spark\.master=|--master[\0 =])local(?:\[(\d+|\*)(?:,\d+)?\])?\0")
_SCHEMES = {"s3a": "s3", "s3n": "s3"}  # what Hadoop calls otherwise than Arrow
FINISH_POLL_SECONDS = 0.25
MOST_SECONDS = 30.0


def task_slots() -> int:
    """Return how many tasks run at a time, as far as a process that plans can know: Spark does not report it.

    For a local master it is in the command of the JVM that started this process. Else the cores of this machine stand
    for those of the cluster.
    """
    try:
        command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
    except OSError:  # there is no such file on other systems
        command = b""
    return slots_of(command) or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()) or 2


def slots_of(command: bytes) -> int | None:
    """Return the threads of the local master that the command of a JVM names, by its arguments; None: it names none."""
    found = _LOCAL.findall(command + b"\0")
    if not found or found[-1] == b"*":
        return None
    return int(found[-1] or 1)


class CommitLog:
    """The log of commits below a checkpoint location; raises InvalidSetting where Python cannot read there.

    Batches that are missing there, or not understood, are not committed.
    """

    def __init__(self, location: str) -> None:
        self._files, self._folder = _opened(location)
        self._newest: tuple[int, list[dict[str, Any]]] = (-1, [])

    def has(self, offset: dict[str, Any]) -> bool:
        """Return whether the batch that ends at this offset, or one after it, is committed; raises OSError."""
        return any(
            end.get("incarnation") == offset["incarnation"] and end.get("seq", -1) >= offset["seq"]
            for end in self._ends()
        )

    def _ends(self) -> list[dict[str, Any]]:
        """Return where the sources were at the end of the newest batch that is committed."""
        newest = max(self._numbers(), default=-1)
        if newest != self._newest[0]:
            with self._files.open_input_stream(f"{self._folder}/offsets/{newest}") as stream:
                lines = stream.read().decode("utf-8", "replace").splitlines()
            self._newest = newest, list(_objects(lines))
        return self._newest[1]

    def _numbers(self) -> Iterator[int]:
        chosen = fs.FileSelector(f"{self._folder}/commits", allow_not_found=True)
        names = (info.base_name for info in self._files.get_file_info(chosen))
        return (int(name) for name in names if name.isdecimal())


def _opened(location: str) -> tuple[fs.FileSystem, str]:
    """Open the file system of a path or a URL of Hadoop, and return the path there."""
    scheme, _, rest = location.partition(":")
    if scheme == "file":
        place = f"/{rest[2:].partition('/')[2]}" if rest.startswith("//") else rest
        return fs.LocalFileSystem(), place  # a path of Hadoop: neither '#' nor '?' ends it
    if "://" not in location:
        return fs.LocalFileSystem(), str(Path(location).absolute())
    try:
        files, path = fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}:{rest}")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InvalidSetting(
            f"option checkpointLocation={location!r} cannot be read from Python ({error}): leave it out of readStream, "
            "where it lets batches be acked when they are committed; they are acked at the next trigger then"
        ) from error
    return files, path.rstrip("/")


def _objects(lines: list[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


class Backlog:
    """Counts a queue now and then: Spark asks at every trigger, and a count costs a request for each shard."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._before = context.counters.read()
        self._counted_at: int | None = None
        self._report: dict[str, Any] = {}

    def report(self, every: float) -> dict[str, Any]:
        """Return the messages by state, at most ``every`` seconds old, and the counts of acked and lost ones."""
        now = self._context.store.now()
        if self._counted_at is None or now - self._counted_at >= microseconds(every):
            self._report, self._counted_at = self._count(now), now
        return self._report | self._done()

    def _done(self) -> dict[str, int]:
        """Count since the stream began. The process that plans a stream has no other."""
        before, now = self._before, self._context.counters.read()
        return {"acked": now.acked - before.acked, "leaseLost": now.lease_lost - before.lease_lost}

    def _count(self, now: int) -> dict[str, Any]:
        context = self._context
        shards = context.retry(context.store.shards, context.name)
        counts = total([counts_of(context.retry(context.store.count, shard)) for shard in shards])
        return {
            "ready": counts.ready,
            "delayed": counts.delayed,
            "inFlight": counts.in_flight,
            "readySince": _text(counts.ready_since),
            "oldest": _text(counts.oldest),
            "countedAt": to_datetime(now).isoformat(),
        }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


class StreamUpkeep:
    """Looks after the queue of one stream.

    A sweep reads every shard, which takes up to seconds over a network. Where the store takes several requests at once
    a thread does it, and the trigger continues.
    """

    def __init__(self, context: QueueContext) -> None:
        self._context, self._upkeep = context, Upkeep(context)
        self._thread = BackgroundThread("shardq-sweep")

    def attend(self) -> None:
        """Do the due work, or begin it."""
        self._upkeep.attend()
        now = self._context.store.now()
        if not self._upkeep.has_to_sweep(now) or not self._thread.has_ended:
            return
        if self._context.store.capabilities.requests_at_once == 1:
            self._sweep(now)
            return
        self._thread.run(partial(self._sweep, now))

    def close(self) -> None:
        """Wait for a sweep that is under way, for some seconds."""
        self._thread.join(CLOSING_SECONDS)

    def _sweep(self, now: int) -> None:
        """Sweep also large bodies: only the tasks know whether there were any."""
        with suppress(QueueNotFound):  # the plan finds it out
            self._upkeep.sweep(now, large=True)


def interval_of(lease: float) -> float:
    """Return after how many seconds a lease is extended again: the rest of it is for pauses."""
    return min(lease / 3, MOST_SECONDS)


class Heartbeat(Closing):
    """A thread that extends some claims every few seconds, until ``finish`` returns True. Ends with its process.

    More names may be added to the claims while it runs. ``finish`` is called four times a second; None: the claims are
    finished elsewhere. ``at_once`` is how many claims are extended together, which takes a connection for each eight.
    """

    def __init__(
        self,
        claims: NamedClaims,
        names: Sequence[ClaimName],
        interval: float,
        finish: Callable[[], bool] | None = None,
        *,
        at_once: int = 1_000_000,
    ) -> None:
        self._claims, self._names, self._interval, self._finish = claims, names, interval, finish
        self._at_once = at_once
        self._stopped, self._finished = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="shardq-spark-heartbeat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Extend and finish nothing more; returns when nothing is being extended."""
        self._stopped.set()
        self._thread.join()

    def close_finishing(self) -> None:
        """Close it, after a last check whether the claims are to be finished."""
        self.close()
        if self._finish is not None and not self._finished:
            self._tried(self._finish, "was not acked when the query ended")

    def _run(self) -> None:
        pause = self._interval if self._finish is None else min(FINISH_POLL_SECONDS, self._interval)
        extended = time.monotonic()
        while not self._stopped.wait(pause):
            if self._finish is not None and self._tried(self._finish, "was not acked when it was committed"):
                self._finished = True
                return
            if time.monotonic() - extended >= self._interval:
                extended = time.monotonic()
                self._extend_all()

    def _extend_all(self) -> None:
        names = list(self._names)
        for start in range(0, len(names), self._at_once):
            extend = partial(self._extend, names[start : start + self._at_once])
            self._tried(extend, "may lose its leases, which were not extended")

    def _extend(self, names: Sequence[ClaimName]) -> bool:
        self._claims.extend(names)
        return True

    def _tried(self, step: Callable[[], bool], otherwise: str) -> bool:
        try:
            return step()
        except Exception as error:  # if the thread ended, the leases would
            _log.warning("a batch %s, trying again: %s", otherwise, error)
            return False
