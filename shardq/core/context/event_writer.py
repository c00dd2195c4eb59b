"""The events of messages, for the logs of the queues that keep events.

They are recorded in the background: a thread of the client writes all that are waiting with one request for each shard
of a log. So no send, claim or ack waits for it, or fails with it. Events are a report. Events that a process had not
written when it died, and those that the store refused, are missing.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from shardq.base.log import Log
from shardq.base.waits import BackgroundThread
from shardq.core.context.counters import MutableCounters
from shardq.errors import ShardqError
from shardq.storage.per_process import PerProcess
from shardq.storage.store import Store

__all__ = ["Entry", "EventWriter", "Write"]

_log = Log(__name__)

MOST_TEXT = 500  # characters of a reason or an error
_MOST_WAITING = 20_000  # entries; further ones are lost while this many wait for a store that fails
_AT_THE_END = 2.0  # seconds for which the end of a client or a process waits for what is not written


class Entry(msgspec.Struct, array_like=True, frozen=True):
    """An event of ``count`` neighbouring messages of a bundle at one moment."""

    kind: str
    first: str  # the id of the first of them
    count: int = 1
    delivery: int = 0  # 0: not known
    holder: str = ""  # the id of the consumer that holds them, or did
    owner: str = ""  # its name
    delay: int | None = None  # microseconds
    text: str = ""
    to: str = ""  # the id that the first of them has now; those of the others follow it
    at: int = 0  # microseconds, by the store's clock
    order: int = 0  # among entries of one moment and one machine


class _Source(Protocol):
    """A queue for which events are recorded."""

    @property
    def name(self) -> str: ...
    @property
    def store(self) -> Store: ...
    @property
    def counters(self) -> MutableCounters: ...


_Queue = TypeVar("_Queue", bound=_Source)
Write: TypeAlias = Callable[[_Queue, Sequence[Entry]], None]


class _Waiting(Generic[_Queue]):
    """The entries that one process has not written yet."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.entries: dict[str, tuple[_Queue, list[Entry]]] = {}  # by queue
        self.count = 0
        self.thread = BackgroundThread("shardq-events")


class EventWriter(Generic[_Queue]):
    """Writes the events of a client's queues. Safe for threads, and in forked children."""

    def __init__(self, write: Write[_Queue]) -> None:
        self._write = write
        self._waiting: PerProcess[_Waiting[_Queue]] = PerProcess(_Waiting)
        self._closed = False

    def record(self, context: _Queue, entries: Iterable[Entry], *others: _Queue) -> None:
        """Have entries written to the logs of queues. Returns at once, and raises nothing."""
        with suppress(ShardqError):
            at, order = context.store.now(), time.monotonic_ns()
            stamped = [
                msgspec.structs.replace(entry, at=at, order=order, text=entry.text[:MOST_TEXT])
                for entry in entries
            ]
            for each in (context, *others) if stamped and not self._closed else ():
                self._add(each, stamped)

    def flush(self, seconds: float) -> None:
        """Wait until the recorded events are written, for at most ``seconds``."""
        waiting = self._waiting.known
        if waiting is not None:
            _wait(waiting, seconds)

    def close(self) -> None:
        """Wait a moment for events that are not written, and take no more."""
        self.flush(_AT_THE_END)
        self._closed = True

    def _add(self, context: _Queue, entries: Sequence[Entry]) -> None:
        if self._waiting.known is None:
            weakref.finalize(self, _at_exit, self._waiting)
        waiting = self._waiting.get()
        with waiting.lock:
            taken = entries[: max(0, _MOST_WAITING - waiting.count)]
            waiting.entries.setdefault(context.name, (context, []))[1].extend(taken)
            waiting.count += len(taken)
            new = waiting.thread.prepare(partial(self._run, waiting))
        if new is not None:
            waiting.thread.begin(new)
        if len(taken) < len(entries):
            context.counters.add(events_lost=len(entries) - len(taken))

    def _run(self, waiting: _Waiting[_Queue]) -> None:
        while taken := _take(waiting):
            for context, entries in taken:
                self._write_all(context, entries)

    def _write_all(self, context: _Queue, entries: Sequence[Entry]) -> None:
        try:
            self._write(context, entries)
        except Exception as error:
            level = logging.WARNING if isinstance(error, ShardqError) else logging.ERROR
            _log.log(level, "%d events of queue %s are lost: %s", len(entries), context.name, error)
            context.counters.add(events_lost=len(entries))


def _take(waiting: _Waiting[_Queue]) -> list[tuple[_Queue, list[Entry]]]:
    """Take all waiting entries; without any, the thread is to end."""
    with waiting.lock:
        taken = [each for each in waiting.entries.values() if each[1]]
        waiting.entries, waiting.count = {}, 0
        if not taken:
            waiting.thread.forget()
        return taken


def _wait(waiting: _Waiting[_Queue], seconds: float) -> None:
    waiting.thread.join(seconds)


def _at_exit(waiting: PerProcess[_Waiting[_Queue]]) -> None:
    own = waiting.known
    if own is not None:
        _wait(own, _AT_THE_END)
