"""The gate before each call of a handler, and messages at their last attempt, which are held alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeAlias

from shardq.base.log import Log
from shardq.client.batch import Batch
from shardq.client.queue import Queue
from shardq.client.semaphore import Permit, Semaphore
from shardq.core.message import Message
from shardq.errors import PermitLost, PermitTimeout, QueueNotFound, ShardqError

__all__ = ["Gate", "HoldLimit", "existing_queue_gate", "open_gate", "permit_gate", "set_apart"]

_log = Log(__name__)

Gate: TypeAlias = Callable[[], AbstractContextManager[bool]]
"""Entered for each call of the handler. False: the worker is stopping, and the handler is not to be called."""

STOP_SECONDS = 0.5  # a stop is noticed within this time
RECHECK_SECONDS = 5.0  # between two checks whether the queue of the messages at hand exists


def open_gate(stopping: Callable[[], bool]) -> Gate:
    """Make a gate that needs no permit."""
    return lambda: nullcontext(not stopping())


def permit_gate(semaphore: Semaphore, stopping: Callable[[], bool], waits: Callable[[], None]) -> Gate:
    """Make a gate that holds a permit while the handler runs. It waits for one, and raises the errors of the store.

    It calls ``waits`` about twice a second while it waits and no handler of this gate runs in another thread.
    """
    within: list[Permit] = []

    def waiting() -> None:
        if not within:
            waits()

    @contextmanager
    def enter() -> Iterator[bool]:
        permit = _acquired(semaphore, stopping, waiting)
        if permit is None:
            yield False
            return
        within.append(permit)
        try:
            yield True
        finally:
            within.remove(permit)
            _release(permit)

    return enter


def existing_queue_gate(gate: Gate, queue: Queue) -> Gate:
    """Make another gate for one batch of a queue: it closes when the queue was deleted.

    It checks every five seconds.
    """
    checked_at = time.monotonic()

    @contextmanager
    def enter() -> Iterator[bool]:
        nonlocal checked_at
        if time.monotonic() - checked_at >= RECHECK_SECONDS:
            checked_at = time.monotonic()
            if _is_gone(queue):
                yield False
                return
        with gate() as is_open:
            yield is_open

    return enter


def _is_gone(queue: Queue) -> bool:
    try:
        queue.settings  # noqa: B018 - reads them
    except QueueNotFound as error:
        _log.warning("received messages that were not begun are not worked: %s", error)
        return True
    except ShardqError as error:
        _log.debug("whether queue %s is still there is not known: %s", queue.name, error)
    return False


def _acquired(semaphore: Semaphore, stopping: Callable[[], bool], waits: Callable[[], None]) -> Permit | None:
    while not stopping():
        try:
            return semaphore.acquire(timeout=STOP_SECONDS)
        except PermitTimeout:
            waits()
    return None


def _release(permit: Permit) -> None:
    try:
        permit.release()
    except PermitLost as error:
        _log.warning("while the handler ran, %s", error)


def set_apart(batch: Batch, last: Message | None) -> tuple[Batch, Batch | None]:
    """Return the messages of a batch that a process may hold, and those to release uncounted before it begins.

    ``last`` is a message of the batch at its last attempt: if the process dies, that message becomes a dead letter. So
    it is held alone, or the message that it waits for in its group. Without one all of the batch may be held.
    """
    if last is None or len(batch) == 1:
        return batch, None
    first = last
    if last.lane is not None:
        first = next(message for message in batch if message.lane == last.lane)
    return batch.part([first]), batch.part(message for message in batch if message != first)


class HoldLimit:
    """How many messages a worker may hold: few after it received one at its last attempt, as others often follow.

    ``patience`` is the number of reads without such a message after which any number may be held again.
    """

    def __init__(self, patience: int) -> None:
        self._patience, self._reads = patience, 0
        self.most: int | None = None  # None: any number

    def limit(self, most: int | None) -> None:
        """Take note of a read, after which ``most`` messages may be held; None: any number."""
        self._reads = self._reads - 1 if most is None else self._patience
        if self._reads <= 0:
            self.most = None
        elif most is not None:
            self.most = most
