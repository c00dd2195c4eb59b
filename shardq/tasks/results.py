"""What became of tasks: entries that are written once, in a queue of shardq's own.

An entry is a message with a unique key that is made of the task's id. Whoever writes first decides: the worker that ran
the task, or somebody who cancels it. The message is delayed by the time for which the entry is to be kept. When it is
due, it is over: it counts for nothing, and a worker removes it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple, cast

import msgspec

from shardq.client import Client
from shardq.errors import QueueNotFound
from shardq.message import StoredMessage
from shardq.outgoing_message import OnConflict, OutgoingMessage
from shardq.queue import Queue, holders_of, wait_for
from shardq.receipt import MessageId
from shardq.storage.requests import EntryState
from shardq.tasks.errors import Failure

__all__ = ["MAX_RESULT_BYTES", "Decided", "Entry", "ResultLog", "StepId", "split_step", "step_id"]

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
    apart: bool = False  # of a bucket: its values are those of its steps, and not repeated here


class Decided(msgspec.Struct, frozen=True):
    """An entry that is to be written, unless another one stands, and for how many seconds it is kept."""

    task: str
    entry: Entry
    keep: float


class StepId(NamedTuple):
    """The id of a step of a workflow, and the unique key of its message."""

    text: str
    key: str


def step_id(workflow: str, number: int) -> StepId:
    """The id of a step, made of that of the workflow."""
    text = f"{workflow}#{number}"
    return StepId(text, _key("workflow", text))


def split_step(step: str) -> tuple[str, int]:
    """The workflow of a step, and its number in it."""
    workflow, _, number = step.rpartition("#")
    return workflow, int(number)


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
        """What became of tasks, of those for which something stands: one request, and one for each of these."""
        found = self._find("r", tasks)
        return {task: _DECODER.decode(cast("bytes", message.body)) for task, message in found.items()}

    def entered(self, tasks: Sequence[str]) -> list[bool]:
        """Of which tasks an entry stands, or did a moment ago, in one request. A hint: only :meth:`read` is sure."""
        return [holder is not None for holder in self._holders([_key("r", task) for task in tasks])]

    def standing(self, tasks: Sequence[str]) -> dict[str, Entry]:
        """What became of tasks, also of those whose workflow, or a bucket that they are in, was cancelled."""
        above = {task: [task, *buckets_of(task)] for task in tasks}
        wanted = list(dict.fromkeys(each for ids in above.values() for each in ids))
        found = self.read_many(wanted)
        standing: dict[str, Entry] = {}
        for task, (own, *others) in above.items():
            cancelled = [each for each in others if (entry := found.get(each)) and entry.state == "cancelled"]
            if own in found or cancelled:
                standing[task] = found[own] if own in found else found[cancelled[0]]
        return standing

    def enter_plans(self, plans: Iterable[tuple[str, bytes]], keep: float) -> None:
        """Store the plans of workflows, unless they are stored. They are drawn some at a time."""
        drawn = iter(plans)
        while some := list(islice(drawn, _PLANS)):
            self._write([_message("w", workflow, plan, keep) for workflow, plan in some])

    def plan(self, workflow: str) -> bytes | None:
        """The plan of a workflow that has begun."""
        return self._read("w", workflow)

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
                self._opened().remove(unique_key=_key(kind, task))
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
        keys = [_key(kind, task) for task in tasks]
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


def buckets_of(step: str) -> list[str]:
    """The ids of the buckets that a step is in, from the inside out."""
    found: list[str] = []
    while "#" in (step := step.rpartition("#")[0]):
        found.append(step)
    return found


def _key(kind: str, task: str) -> str:
    """The key of an entry: the id of a bundle is unique among all queues."""
    message, _, path = task.partition("#")
    place = MessageId.parse(message)
    key = f"{kind}-{place.bundle_id.hex()}-{place.position}"
    return f"{key}-{path.replace('#', '-')}" if path else key


def _message(
    kind: str, task: str, body: bytes, keep: float, on_conflict: OnConflict = "keep"
) -> OutgoingMessage:
    return OutgoingMessage(body=body, unique_key=_key(kind, task), delay=keep, on_conflict=on_conflict)


_PLANS = 50
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Entry)
