"""The entries with the results of tasks, and the ids and keys under which they are stored.

An entry is written once. It is a message with a unique key in a queue of shardq's own, delayed by the time for which
it is to be kept. When it is due, it has expired: it counts for nothing, and a worker removes it.

A workflow has the id of the message that begins it. A step has a path behind it: its number, behind those of the
buckets that it is in, as in ``tasks:0:3:...:0#2#17``. When a workflow was retried, the number of the run stands before
the path: ``tasks:0:3:...:0@1#2#17``. The first run is 0, which is left out. The name of the queue, with which the id
begins, may have an @ too.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec

from shardq.base.outgoing_message import TASK_HEADER, Headers, OutgoingMessage
from shardq.base.receipt import ID_PATTERN, MessageId
from shardq.base.texts import shown
from shardq.client import Client
from shardq.client.batch import Batch
from shardq.client.queue import Queue
from shardq.client.queue_internals import found_in, holders_of, stored_in, waiting_on
from shardq.core.message import Message, StoredMessage
from shardq.core.sending.prepared import MAX_KEY_LENGTH
from shardq.errors import BodyNotFound, InvalidMessage, InvalidReceipt, QueueNotFound
from shardq.storage.per_process import OwnLock
from shardq.storage.requests import EntryState
from shardq.tasks.errors import Failure
from shardq.tasks.options import LONGEST_KEPT

__all__ = [
    "Decided",
    "Entry",
    "EntryQueue",
    "ancestors_of",
    "check_task_id",
    "headers_of",
    "in_run",
    "is_step",
    "is_step_message",
    "kept_seconds",
    "key_of",
    "result_id",
    "run_of",
    "runs_of",
    "split_step",
    "step_id",
]

NAME, KEEP, TIMEOUT, STEP = TASK_HEADER, "task-keep", "task-timeout", "task-step"
"""The headers of a task's message; the last one only of a step's: the id under which its result is stored."""

APART = "task-input-apart"
"""Of a step whose values do not fit into its message: its worker reads the results of the steps before it."""

RUN = "task-run"
"""Of the message that begins another run of a workflow: the id of the run."""

WORKFLOW = "shardq.workflow"
"""The name of a message that begins a workflow, in place of a task's name."""

MOST_RUNS = 9_999
"""Of one workflow. The entry of a step is looked for in the earlier runs, too."""

MAX_RESULT_BYTES = 100_000_000
MAX_ENTRY_BYTES = 1_000_000  # of a value that is stored in its entry, and not beside the queue
Kind = Literal["done", "failed", "cancelled"]

_ID = re.compile(rf"{ID_PATTERN}(@[1-9][0-9]{{0,3}})?(#(0|[1-9][0-9]{{0,8}}))*")
_FEW, _MANY = 10, 1_000  # entries that are removed together
_BYTES = 10_000_000  # that they have together, nearly: their values come with them
_PAGE = 50  # entries that are looked through together


class StepId(NamedTuple):
    """The id of a step of a workflow, and the unique key of its message."""

    text: str
    key: str


def step_id(workflow: str, number: int) -> StepId:
    """Return the id of a step, made of that of the workflow or bucket."""
    text = f"{workflow}#{number}"
    return StepId(text, key_of("workflow", text))


def split_step(step: str) -> tuple[str, int]:
    """Return the workflow or bucket of a step, and its number in it."""
    workflow, _, number = step.rpartition("#")
    return workflow, int(number)


def ancestors_of(step: str) -> list[str]:
    """Return the ids of the buckets of a step, from the inside out, then that of the workflow; none of a task."""
    found: list[str] = []
    while "#" in step:
        found.append(step := step.rpartition("#")[0])
    return found


def run_of(task: str) -> int:
    """Return the number of the run of a workflow that an id is of."""
    return _parts(task).run


def in_run(task: str, run: int) -> str:
    """Return the id of the same workflow or step in another run."""
    message, _, path = _parts(task)
    return f"{message}@{run}{path}" if run else f"{message}{path}"


def runs_of(task: str) -> list[str]:
    """Return the ids of a step in its run and in those before it."""
    return [task, *(in_run(task, run) for run in reversed(range(run_of(task))))]


def check_task_id(task: object) -> None:
    """Raise InvalidReceipt unless it is an id of a task, of a workflow or of a step."""
    if not isinstance(task, str) or _ID.fullmatch(task) is None:
        raise InvalidReceipt(
            f"{shown(task)} is not a message id, and none of a task or step: give one as `send` returned it, or as "
            "`shardq task show` shows it, such as ID#2#17"
        )


def is_step(task: object) -> bool:
    """Return True for an id of a step under which an entry can be written. Ids are forged: it need not exist."""
    if not isinstance(task, str) or "#" not in task or _ID.fullmatch(task) is None:
        return False
    return len(key_of("r", task)) <= MAX_KEY_LENGTH


def key_of(kind: str, task: str) -> str:
    """Return the key of an entry: the id of a bundle is unique among all queues."""
    message, run, path = _parts(task)
    place = MessageId.parse(message)
    key = f"{kind}-{place.bundle_id.hex()}-{place.position}{path.replace('#', '-')}"
    return f"{key}@{run}" if run else key


class _Parts(NamedTuple):
    """Of an id: that of the message which begins the workflow, the run, and the path with its marks."""

    message: str
    run: int
    path: str


def _parts(task: str) -> _Parts:
    workflow, mark, path = task.partition("#")
    place, colon, position = workflow.rpartition(":")
    number, _, run = position.partition("@")
    return _Parts(f"{place}{colon}{number}", int(run) if run else 0, f"{mark}{path}")


def headers_of(message: Message | StoredMessage) -> Headers:
    """Return the headers of a message; none of a damaged one, which fails when its task is looked for."""
    try:
        return message.headers
    except InvalidMessage:
        return {}


def result_id(message: Message) -> str:
    """Return the id under which the result of a task is stored: its own, or that of the step."""
    step = headers_of(message).get(STEP)
    return str(step) if step is not None and is_step(step) else message.id


def kept_seconds(message: Message | StoredMessage) -> float:
    """Return for how many seconds the result of a task is kept. Any value in its header is harmless."""
    keep = headers_of(message).get(KEEP)
    return min(float(keep), LONGEST_KEPT) if isinstance(keep, int | float) and keep > 0 else 0.0


def is_step_message(message: Message) -> bool:
    """Return True for the message of a step of a workflow."""
    step = headers_of(message).get(STEP)
    return step is not None and is_step(step)


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The entry of a task."""

    state: Kind
    value: bytes = b""  # of a task that is done
    failure: Failure | None = None
    seconds: float | None = None  # for which its last attempt ran
    apart: bool = False  # of a bucket: its values are those of its steps, and not repeated here
    partial: bool = False  # of a bucket in which failures were collected: a retry tries them again
    origin: int | None = None  # of a step that was given up: the number of the one before it that failed
    large: str = ""  # of a task whose value is stored beside the queue: the id under which it is


class Decided(msgspec.Struct, frozen=True):
    """An entry that is to be written, unless another one stands, and for how many seconds it is kept."""

    task: str
    entry: Entry
    keep: float


class EntryQueue:
    """A queue of entries. It is created when the first one is written. Any thread may use it."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._name = client, name
        self._lock = OwnLock()
        self._queue: Queue | None = None
        self._own = threading.local()  # how each thread waits

    def write(self, messages: Sequence[OutgoingMessage]) -> None:
        """Store entries, unless their keys are taken."""
        try:
            self._opened(create=True).producer().send_many(messages)
        except QueueNotFound:  # it was deleted
            self._queue = None
            self._opened(create=True).producer().send_many(messages)

    def write_large(self, key: str, value: bytes, keep: float) -> None:
        """Store a value of any size beside the queue, under a key, unless that is taken."""
        try:
            self._send_large(key, value, keep)
        except QueueNotFound:  # it was deleted
            self._queue = None
            self._send_large(key, value, keep)

    def read_large(self, key: str) -> bytes | None:
        """Read :meth:`write_large`; None when it has expired."""
        if (found := self.find([key]).get(key)) is None:
            return None
        with suppress(BodyNotFound), self._opened().open(found.id) as file:
            return file.read()
        return None

    def find(self, keys: Sequence[str]) -> Mapping[str, StoredMessage]:
        """Return the entries that stand and have not expired, by their keys."""
        holders = {key: each for key, each in zip(keys, self.holders(keys), strict=True) if each is not None}
        if not holders:
            return {}
        queue = self._opened()
        stored = found_in(queue, [each for each in holders.values() if each])
        found = {key: stored.get(each) or queue.get(unique_key=key) for key, each in holders.items()}
        return {
            key: each for key, each in found.items() if each is not None and each.state is EntryState.DELAYED
        }

    def holders(self, keys: Sequence[str]) -> Sequence[str | None]:
        """Return which messages have the keys, in one request: see :func:`shardq.client.queue_internals.holders_of`."""
        try:
            return holders_of(self._opened(), keys)
        except QueueNotFound:
            self._queue = None
            return [None] * len(keys)

    def all(self) -> Iterator[StoredMessage]:
        """Return every entry that has not expired, in no particular order. One that is being written may come twice."""
        try:
            for message in stored_in(self._opened(), _PAGE):
                if message.state is EntryState.DELAYED:
                    yield message
        except QueueNotFound:
            self._queue = None

    def remove(self, key: str) -> None:
        """Remove an entry before it expires."""
        try:
            self._opened().remove(unique_key=key)
        except QueueNotFound:
            self._queue = None

    def wait(self, seconds: float) -> bool:
        """Sleep until an entry may have been written, for at most ``seconds``; False: none ever was."""
        try:
            queue = self._opened()
            if not hasattr(self._own, "wait"):
                self._own.wait = waiting_on(queue)
            self._own.wait(seconds)
        except QueueNotFound:
            return False
        return True

    def remove_old(self, stopped: Callable[[], bool]) -> int:
        """Remove the expired entries, until that is stopped; returns how many they were."""
        removed, count = 0, _FEW
        try:
            with self._opened().consumer(visibility_timeout=60) as consumer:
                while not stopped() and (batch := consumer.receive(count)):
                    batch.ack()
                    removed += len(batch)
                    count = _as_many(batch, count)
        except QueueNotFound:
            self._queue = None
        return removed

    def _send_large(self, key: str, value: bytes, keep: float) -> None:
        producer = self._opened(create=True).producer()
        producer.send_stream(io.BytesIO(value), unique_key=key, delay=keep, on_conflict="keep")

    def _opened(self, *, create: bool = False) -> Queue:
        if (known := self._queue) is not None:  # another thread may find out that it was deleted
            return known
        with self._lock.plain:
            found = self._queue = self._created() if create else self._client.queue(self._name)
        return found

    def _created(self) -> Queue:
        settings: dict[str, Any] = {"shards": 4, "max_deliveries": None, "time_shard_seconds": 60.0}
        return self._client.create_queue(self._name, exist_ok=True, **settings)


def _as_many(batch: Batch, count: int) -> int:
    """Return how many entries are received together after these: more, while they are small enough together."""
    size = sum(len(each.raw) for each in batch if each.large is None)
    return max(_FEW, min(_MANY, 10 * count, _BYTES * len(batch) // max(size, 1)))
