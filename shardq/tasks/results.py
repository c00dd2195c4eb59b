"""What became of tasks: entries that are written once, in a queue of shardq's own.

An entry is a message with a unique key that is made of the task's id. Whoever writes first decides: the worker that ran
the task, or somebody who cancels it. The message is delayed by the time for which the entry is to be kept. When it is
due, it is over: it counts for nothing, and a worker removes it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import Any, Literal, cast

import msgspec

from shardq.client import Client
from shardq.errors import QueueNotFound
from shardq.message import StoredMessage
from shardq.outgoing_message import OnConflict, OutgoingMessage
from shardq.queue import Queue, holders_of, wait_for
from shardq.storage.requests import EntryState
from shardq.tasks.errors import Failure
from shardq.tasks.ids import buckets_of, in_run, key_of, run_of, runs_of

__all__ = ["MAX_RESULT_BYTES", "Decided", "Entry", "ResultLog"]

RESULTS = "_shardq/tasks/results"
MAX_RESULT_BYTES = 1_000_000
_PAGE = 1_000
_PAUSE = 0.05  # seconds

Kind = Literal["done", "failed", "cancelled"]


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a task."""

    state: Kind
    value: bytes = b""  # of a task that is done
    failure: Failure | None = None
    seconds: float | None = None  # for which its last attempt ran
    apart: bool = False  # of a bucket: its values are those of its steps, and not repeated here


class Decided(msgspec.Struct, frozen=True):
    """An entry that is to be written, unless another one stands, and for how many seconds it is kept."""

    task: str
    entry: Entry
    keep: float


class ResultLog:
    """The entries of a store. Its queue is created when the first one is written."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._queue: Queue | None = None

    def decide(self, decided: Sequence[Decided]) -> None:
        """Write entries where none stands. May be repeated, whatever came of the first time."""
        self._write([_message("r", each.task, _ENCODER.encode(each.entry), each.keep) for each in decided])

    def read(self, task: str) -> Entry | None:
        """What became of a task; None: nothing yet, or it is over."""
        return self.read_many([task]).get(task)

    def read_many(self, tasks: Sequence[str]) -> dict[str, Entry]:
        """What became of tasks, of those for which something stands: one request, and one for each of these.

        What was done in an earlier run of a workflow stands in later ones; what failed or was cancelled does not.
        """
        return {task: entry for task, (entry, _) in self.dated(tasks).items()}

    def dated(self, tasks: Sequence[str]) -> dict[str, tuple[Entry, datetime]]:
        """What became of tasks, as :meth:`read_many`, and when that was."""
        runs = {task: runs_of(task) for task in tasks}
        found = {
            task: (_DECODER.decode(cast("bytes", message.body)), message.enqueued_at)
            for task, message in self._find("r", list(chain.from_iterable(runs.values()))).items()
        }
        standing = {
            task: [
                found[each]
                for each in own
                if each in found and (each == task or found[each][0].state == "done")
            ]
            for task, own in runs.items()
        }
        return {task: entries[0] for task, entries in standing.items() if entries}

    def entered(self, tasks: Sequence[str]) -> list[bool]:
        """Of which tasks an entry stands, or did a moment ago, in one request. A hint: only :meth:`read` is sure."""
        if any(run_of(task) for task in tasks):
            return [self.read(task) is not None for task in tasks]
        return [holder is not None for holder in self._holders([key_of("r", task) for task in tasks])]

    def standing(self, tasks: Sequence[str], *, working: bool = False) -> dict[str, Entry]:
        """What became of tasks, also of those whose workflow, or a bucket that they are in, was cancelled.

        For who is ``working`` on them, steps of a run of a workflow are cancelled that a later run has overtaken.
        """
        above = {task: [task, *buckets_of(task)] for task in tasks}
        wanted = list(dict.fromkeys(each for ids in above.values() for each in ids))
        found = self.read_many(wanted)
        overtaken = self._overtaken(tasks) if working else set[str]()
        standing: dict[str, Entry] = {}
        for task, ids in above.items():
            cancelled = task in overtaken or any(
                (entry := found.get(each)) and entry.state == "cancelled" for each in ids
            )
            if task in found or cancelled:
                standing[task] = found.get(task, Entry("cancelled"))
        return standing

    def enter_run(self, workflow: str, keep: float) -> None:
        """Note that a run of a workflow has begun: earlier ones are over."""
        self._write([_message("n", workflow, b"", keep)])

    def last_run(self, workflow: str) -> int:
        """The number of the run of a workflow that began last: 0 unless it was retried."""
        last = 0
        while True:
            runs = [in_run(workflow, last + number) for number in range(1, _RUNS + 1)]
            holders = self._holders([key_of("n", each) for each in runs])
            begun = holders.index(None) if None in holders else _RUNS
            last += begun
            if begun < _RUNS:
                return last

    def _overtaken(self, tasks: Sequence[str]) -> set[str]:
        """Those of steps whose workflow has begun a later run."""
        later = {task: in_run(task, run_of(task) + 1).partition("#")[0] for task in tasks if "#" in task}
        runs = list(dict.fromkeys(later.values()))
        begun = dict(zip(runs, self._holders([key_of("n", each) for each in runs]), strict=True))
        return {task for task, run in later.items() if begun[run] is not None}

    def enter_plans(self, plans: Iterable[tuple[str, bytes]], keep: float) -> None:
        """Store the plans of workflows, unless they are stored. They are drawn some at a time."""
        drawn = iter(plans)
        while some := list(islice(drawn, _PLANS)):
            self._write([_message("w", workflow, plan, keep) for workflow, plan in some])

    def plan(self, workflow: str) -> bytes | None:
        """The plan of a workflow that has begun."""
        return self._read("w", in_run(workflow, 0))

    def tell(self, task: str, progress: bytes, keep: float) -> None:
        """Note how far a task is, in place of what was noted before."""
        self._write([_message("p", task, progress, keep, "replace")])

    def told(self, task: str) -> bytes | None:
        """How far a task is, as it was noted last."""
        return self._read("p", task)

    def forget(self, task: str) -> None:
        """Remove what is kept of a task."""
        for kind in ("r", "p"):
            try:
                self._opened().remove(unique_key=key_of(kind, task))
            except QueueNotFound:
                self._queue = None

    def wait(self, seconds: float) -> None:
        """Sleep until something may have been written, for so many seconds at most."""
        try:
            wait_for(self._opened(), seconds)
        except QueueNotFound:  # nothing was written yet
            time.sleep(min(seconds, _PAUSE))

    def remove_old(self) -> int:
        """Remove the entries that are over; returns how many they were."""
        removed = 0
        try:
            with self._opened().consumer(visibility_timeout=60) as consumer:
                while batch := consumer.receive(_PAGE):
                    batch.ack()
                    removed += len(batch)
        except QueueNotFound:
            self._queue = None
        return removed

    def _write(self, messages: Sequence[OutgoingMessage]) -> None:
        try:
            self._opened(create=True).producer().send_many(messages)
        except QueueNotFound:  # it was deleted
            self._queue = None
            self._opened(create=True).producer().send_many(messages)

    def _read(self, kind: str, task: str) -> bytes | None:
        message = self._find(kind, [task]).get(task)
        return None if message is None else cast("bytes", message.body)

    def _find(self, kind: str, tasks: Sequence[str]) -> Mapping[str, StoredMessage]:
        """The entries that stand and are not over."""
        keys = [key_of(kind, task) for task in tasks]
        found: dict[str, StoredMessage] = {}
        for task, key, holder in zip(tasks, keys, self._holders(keys), strict=True):
            if holder is None:
                continue
            queue = self._opened()
            message = (queue.get(holder) if holder else None) or queue.get(unique_key=key)
            if message is not None and message.state is EntryState.DELAYED:
                found[task] = message
        return found

    def _holders(self, keys: Sequence[str]) -> Sequence[str | None]:
        try:
            return holders_of(self._opened(), keys)
        except QueueNotFound:
            self._queue = None
            return [None] * len(keys)

    def _opened(self, *, create: bool = False) -> Queue:
        if self._queue is None:
            with self._lock:
                self._queue = self._created() if create else self._client.queue(RESULTS)
        return self._queue

    def _created(self) -> Queue:
        settings: dict[str, Any] = {"shards": 4, "max_deliveries": None, "time_shard_seconds": 60.0}
        return self._client.create_queue(RESULTS, exist_ok=True, **settings)


def _message(
    kind: str, task: str, body: bytes, keep: float, on_conflict: OnConflict = "keep"
) -> OutgoingMessage:
    return OutgoingMessage(body=body, unique_key=key_of(kind, task), delay=keep, on_conflict=on_conflict)


_PLANS = 50
_RUNS = 8  # runs of a workflow that are looked for at a time
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Entry)
