"""What a worker passes before it calls its handler: it must not be stopping, and may need a permit of a semaphore."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeAlias

from shardq.errors import PermitLost, PermitTimeout, QueueNotFound, ShardqError
from shardq.queue import Queue
from shardq.semaphore import Permit, Semaphore

__all__ = ["Gate", "open_gate", "permit_gate", "present_gate"]

_log = logging.getLogger(__name__)

Gate: TypeAlias = Callable[[], AbstractContextManager[bool]]
"""Entered for each call of the handler. False: the worker is stopping, and the handler is not to be called."""

STOP_SECONDS = 0.5  # a stop is noticed within this time
LOOK_SECONDS = 5.0  # until it is looked again whether the queue of the messages at hand is there


def open_gate(stopping: Callable[[], bool]) -> Gate:
    """A gate that needs no permit."""
    return lambda: nullcontext(not stopping())


def permit_gate(semaphore: Semaphore, stopping: Callable[[], bool], waits: Callable[[], None]) -> Gate:
    """A gate that holds a permit while the handler runs. It waits for one, and raises the errors of the store.

    It tells that it ``waits`` about twice a second, while no handler of this gate runs in another thread.
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


def present_gate(gate: Gate, queue: Queue) -> Gate:
    """Another gate for one batch of a queue: it closes when the queue was deleted. It looks every five seconds."""
    looked_at = time.monotonic()

    @contextmanager
    def enter() -> Iterator[bool]:
        nonlocal looked_at
        if time.monotonic() - looked_at >= LOOK_SECONDS:
            looked_at = time.monotonic()
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
        _log.warning("what was received and not begun is not worked: %s", error)
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
